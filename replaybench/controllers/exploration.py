"""Temporally correlated exploration with an amplitude that decays over episodes (de Bruin et al. 2018, B.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_normal


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig:
    """Settings of u ← u + diffusion · N(0, 1) − friction · u.

    The paper prints 5.14 and 0.3 under names that are swapped with respect to custom; the printed form is
    taken. The state u is never clipped; what leaves is clip(u, ±1) times the amplitude, which falls linearly
    from `first_amplitude` at the first episode to `last_amplitude` at episode `decay_episodes`. With
    `per_second` the constants are rescaled from 50 Hz to the actual rate; by default they hold per sample.
    """

    diffusion: float = 5.14
    friction: float = 0.3
    first_amplitude: float = 1.0
    last_amplitude: float = 0.1
    decay_episodes: int = 500
    per_second: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.diffusion) and self.diffusion >= 0 and 0 <= self.friction <= 1):
            raise UserError("exploration: diffusion must be finite and ≥ 0, friction in [0, 1]")
        if not (0 <= self.first_amplitude <= 1 and 0 <= self.last_amplitude <= 1 and self.decay_episodes >= 1):
            raise UserError("exploration: amplitudes must lie in [0, 1], decay_episodes must be at least 1")


class Explored(NamedTuple):
    """What was chosen to be tried.

    Attributes:
        action: float32 `[M, A]`.
        deviation: how far each is from the policy's, ‖a − π(s)‖₁, float32 `[M]`.
        extras: what is to be stored with the experience beside it, by name, float32 `[M, width]`.
    """

    action: NDArray[np.float32]
    deviation: NDArray[np.float32]
    extras: Mapping[str, NDArray[np.float32]] = MappingProxyType({})


class Exploration:
    """The process of every member.

    Args:
        root, members: seed of the study and member numbers.
        actions: action dimensions A.
        frequency: control rate in Hz, used only with `per_second`.
    """

    def __init__(
        self, config: ExplorationConfig, root: int, members: Sequence[int], actions: int, frequency: float
    ) -> None:
        ratio = 50.0 / frequency if config.per_second else 1.0
        self.config = config
        self.diffusion = config.diffusion * np.sqrt(ratio)
        self.friction = 1.0 - (1.0 - config.friction) ** ratio
        self.stream = Stream(root, members, "exploration")
        self.u = np.zeros((len(members), actions))
        self.amplitude = config.first_amplitude

    def start_episode(self, episode: int) -> None:
        """Put the process to rest and set the amplitude of this episode (counted from 0)."""
        config = self.config
        progress = min(1.0, episode / max(1, config.decay_episodes - 1))
        self.amplitude = config.first_amplitude + progress * (config.last_amplitude - config.first_amplitude)
        self.u[:] = 0.0

    def advance(self, active: NDArray[np.bool_]) -> None:
        """Advance the `active` `[M]` members one sample.

        A member whose episode has ended draws nothing: its next one must not depend on how long others go on.
        """
        _advance(self.u, self.stream.state, active, self.diffusion, self.friction)

    def disturb(self, action: NDArray[np.float32]) -> Explored:
        """Return clip(action + noise, ±1) for policy actions `[M, A]` with the noise of the present sample."""
        noisy = action + self.amplitude * np.clip(self.u, -1.0, 1.0)
        explored = np.clip(noisy, -1.0, 1.0).astype(np.float32)
        return Explored(explored, np.abs(explored - action).sum(axis=1))


@kernel
def _advance(
    u: NDArray[np.float64], stream: NDArray[np.uint64], active: NDArray[np.bool_], diffusion: float, friction: float
) -> None:
    for m in range(u.shape[0]):
        if active[m]:
            for a in range(u.shape[1]):
                u[m, a] += diffusion * next_normal(stream[m]) - friction * u[m, a]
