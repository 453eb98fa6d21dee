"""What every form of exploration offers a learner, and the default form: the process of the 2018 benchmarks.

Exploration is told once a step where its members are, and then says what becomes of a policy's action; the second
draws nothing, so that the same disturbance can be asked for at another observation. The forms know neither plants
nor replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_normal

Floats = NDArray[np.float32]


class Explored(NamedTuple):
    """Actions that explore.

    Attributes:
        action: float32 `[M, A]`.
        deviation: how far each is from the policy's, ‖a − π(s)‖₁, float32 `[M]`.
        extras: further numbers to be stored with the experience, float32 `[M, width]` by name.
    """

    action: Floats
    deviation: Floats
    extras: Mapping[str, Floats] = MappingProxyType({})


class Exploration(Protocol):
    """The exploration of a population with deterministic policies."""

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin a training episode of the chosen `members` `[M]`, the others' go on; episodes count from 0."""

    def advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        """Advance the `active` `[M]` members one sample; `observation` `[M, S]` is what their actors are given.

        A member whose episode has ended draws nothing: its next one must not depend on how long others go on.
        """

    def disturb(self, action: Floats, observation: Floats) -> Explored:
        """Return what becomes of policy actions `[M, A]` at observations `[M, S]`, by the draws of this sample."""

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return all that the next draws depend on, by name: views, which a resumed run overwrites in place."""


@dataclass(frozen=True, kw_only=True)
class ProcessNoise:
    """u ← u + diffusion · N(0, 1) − friction · u, temporally correlated and decaying (de Bruin et al. 2018, B.2).

    The paper prints 5.14 and 0.3 under names that are swapped with respect to custom; the printed form is
    taken. The state u is never clipped; what leaves is clip(u, ±1) times the amplitude, which falls linearly
    from `first_amplitude` at the first episode to `last_amplitude` at episode `decay_episodes`. With
    `per_second` the constants are rescaled from 50 Hz to the actual rate; by default they hold per sample.
    """

    form: Literal["process"] = "process"
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


class RunningProcess:
    """The process of every member.

    Args:
        root, members: seed of the study and member numbers.
        actions: action dimensions A.
        frequency: control rate in Hz, used only with `per_second`.

    Attributes:
        amplitude: float64 `[M]`, in each member's episode.
    """

    def __init__(self, config: ProcessNoise, root: int, members: Sequence[int], actions: int, frequency: float) -> None:
        ratio = 50.0 / frequency if config.per_second else 1.0
        self.config = config
        kept = 1.0 - config.friction
        self.friction = 1.0 - kept**ratio
        # What a step adds is as large as leaves the spread of u, in the long run, the same at every rate.
        added = (1.0 - kept ** (2 * ratio)) / (1.0 - kept**2) if config.friction else ratio
        self.diffusion = float(config.diffusion * np.sqrt(added))
        self.stream = Stream(root, members, "exploration")
        self.u = np.zeros((len(members), actions))
        self.amplitude = np.full(len(members), config.first_amplitude)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Put the process of the chosen `members` `[M]` to rest; the episode (from 0) says their amplitude."""
        config = self.config
        self.u[members] = 0.0
        self.amplitude[members] = decayed(config.first_amplitude, config.last_amplitude, config.decay_episodes, episode)

    def advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        """Advance the `active` `[M]` members one sample."""
        _advance_process(self.u, self.stream.state, active, self.diffusion, self.friction)

    def disturb(self, action: Floats, observation: Floats) -> Explored:
        """Return clip(action + noise, ±1) for policy actions `[M, A]` with the noise of the present sample."""
        return disturbed(action, self.amplitude, self.u, 1.0, 1.0)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return streams, the state of the process and the amplitudes."""
        return {"stream": self.stream.state, "u": self.u, "amplitude": self.amplitude}


def decayed(first: float, last: float, episodes: int, episode: int) -> float:
    """Return what falls linearly from `first` at episode 0 to `last` at the `episodes`-th, and stays."""
    return first + min(1.0, episode / max(1, episodes - 1)) * (last - first)


@kernel
def _advance_process(
    u: NDArray[np.float64], stream: NDArray[np.uint64], active: NDArray[np.bool_], diffusion: float, friction: float
) -> None:
    for m in range(u.shape[0]):
        if active[m]:
            for a in range(u.shape[1]):
                u[m, a] += diffusion * next_normal(stream[m]) - friction * u[m, a]


def disturbed(
    action: NDArray[Any], scale: NDArray[np.float64], noise: NDArray[np.float64], noise_bound: float, bound: float
) -> Explored:
    """Return policy actions `[M, A]` with scale · noise added.

    Noise `[M, A]` is clipped to ±`noise_bound`, the sum to ±`bound`; `scale` is `[M]`.
    """
    explored = Explored(np.empty(action.shape, np.float32), np.empty(len(action), np.float32))
    _disturb(np.ascontiguousarray(action), scale, noise, noise_bound, bound, *explored[:2])
    return explored


@kernel
def _disturb(
    action: NDArray[Any],
    scale: NDArray[np.float64],
    noise: NDArray[np.float64],
    noise_bound: float,
    bound: float,
    explored: Floats,
    deviation: Floats,
) -> None:
    """Do what `disturbed` says; NaN passes."""
    for m in range(action.shape[0]):
        distance = np.float32(0)
        for a in range(action.shape[1]):
            tried = action[m, a] + scale[m] * min(max(noise[m, a], -noise_bound), noise_bound)
            explored[m, a] = bound if tried > bound else -bound if tried < -bound else tried
            distance += np.float32(abs(explored[m, a] - action[m, a]))
        deviation[m] = distance


@kernel
def draw_active(stream: NDArray[np.uint64], active: NDArray[np.bool_], noise: NDArray[np.float64]) -> None:
    """Fill the rows of `noise` `[M, A]` of active members with standard normals; the others draw nothing."""
    for m in range(noise.shape[0]):
        if active[m]:
            for a in range(noise.shape[1]):
                noise[m, a] = next_normal(stream[m])
