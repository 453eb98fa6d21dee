"""The interface of exploration, the random numbers of stochastic policies, and the default exploration process.

In each step exploration first draws (`advance`) and then disturbs actions (`disturb`). Disturbing draws nothing, so
that the same disturbance can be applied at another observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.setting import LearnerSetting
from replaybench.controllers.settings import NonNegative, Number, Settings, Share
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_double, next_normal

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Explored(NamedTuple):
    """Actions that explore.

    Attributes:
        action: float32 `[M, A]`.
        deviation: distance from the policy's action, ‖a − π(s)‖₁, float32 `[M]`.
        extras: further fields to store with the experience, float32 `[M, width]` by name.
    """

    action: Floats
    deviation: Floats
    extras: Mapping[str, Floats] = MappingProxyType({})


class Exploration(Protocol):
    """The exploration of a population with deterministic policies."""

    def start_episode(self, episode: int, members: Bools) -> None:
        """Begin training episode `episode` (from 0) of the chosen `members` `[M]`; the others continue theirs."""

    def advance(self, observation: Any, active: Bools) -> None:
        """Draw for the next step of the `active` `[M]` members, at normalised observations `[M, S]`.

        The other members draw nothing, so that their next episode does not depend on how long others continue.
        """

    def disturb(self, action: Any, observation: Any) -> Explored:
        """Return policy actions `[M, A]` at observations `[M, S]`, disturbed by the draws of this step."""

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that the next draws depend on, by name; a resumed run overwrites them in place."""


@kernel
def draw_normal(stream: NDArray[np.uint64], active: Bools, drawn: Doubles) -> None:
    """Fill the rows of `drawn` `[M, n]` of active members with standard normals; the others draw nothing."""
    for m in range(drawn.shape[0]):
        if active[m]:
            for i in range(drawn.shape[1]):
                drawn[m, i] = next_normal(stream[m])


@kernel
def draw_uniform(stream: NDArray[np.uint64], active: Bools, drawn: Doubles) -> None:
    """Fill the rows of `drawn` `[M, n]` of active members with uniform numbers in [0, 1); the others draw nothing."""
    for m in range(drawn.shape[0]):
        if active[m]:
            for i in range(drawn.shape[1]):
                drawn[m, i] = next_double(stream[m])


class PolicyDraws:
    """The random numbers by which a stochastic policy chooses its action.

    Args:
        setting: of the learner.
        width: numbers of a step.
        draw: `draw_normal` or `draw_uniform`.

    Attributes:
        drawn: float64 `[M, width]`, those of the present step.
    """

    def __init__(self, setting: LearnerSetting, width: int, draw: Callable[..., None] = draw_normal) -> None:
        self.stream, self._draw = setting.stream("exploration"), draw
        self.drawn = np.zeros((len(setting.members), width))

    def start_episode(self, episode: int, members: Bools) -> None:
        """Nothing lasts for an episode."""

    def advance(self, observation: Any, active: Bools) -> None:
        """Draw for the next step of the `active` members."""
        self._draw(self.stream.state, active, self.drawn)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return the random streams."""
        return {"stream": self.stream.state}


@dataclass(frozen=True, kw_only=True)
class ProcessNoise(Settings):
    """u ← u + diffusion · N(0, 1) − friction · u, temporally correlated and decaying (de Bruin et al. 2018, B.2).

    The paper prints 5.14 and 0.3 under names that are swapped with respect to custom; this is the printed form. The
    state u is never clipped. The noise is clip(u, ±1) times the amplitude, which falls linearly from `first_amplitude`
    at the first episode to `last_amplitude` at episode `decay_episodes`. With `per_second` the constants are converted
    from 50 Hz to the control rate; by default they hold per sample.
    """

    form: Literal["process"] = "process"
    diffusion: NonNegative = 5.14
    friction: Share = 0.3
    first_amplitude: Share = 1.0
    last_amplitude: Share = 0.1
    decay_episodes: Number = 500
    per_second: bool = False


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
        ratio, kept = 50.0 / frequency if config.per_second else 1.0, 1.0 - config.friction
        self.config = config
        self.friction = 1.0 - kept**ratio
        # The stationary spread of u is the same at every rate.
        added = (1.0 - kept ** (2 * ratio)) / (1.0 - kept**2) if config.friction else ratio
        self.diffusion = float(config.diffusion * np.sqrt(added))
        self.stream = Stream(root, members, "exploration")
        self.u = np.zeros((len(members), actions))
        self.amplitude = np.full(len(members), config.first_amplitude)

    def start_episode(self, episode: int, members: Bools) -> None:
        """Reset the process of the chosen `members` `[M]`, and set their amplitude for this episode."""
        config = self.config
        self.u[members] = 0.0
        self.amplitude[members] = decayed(config.first_amplitude, config.last_amplitude, config.decay_episodes, episode)

    def advance(self, observation: Any, active: Bools) -> None:
        """Advance the `active` `[M]` members one sample."""
        _advance_process(self.u, self.stream.state, active, self.diffusion, self.friction)

    def disturb(self, action: Any, observation: Any) -> Explored:
        """Return clip(action + noise, ±1) for policy actions `[M, A]`."""
        return disturbed(action, self.amplitude, self.u, 1.0, 1.0)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return streams, the state of the process and the amplitudes."""
        return {"stream": self.stream.state, "u": self.u, "amplitude": self.amplitude}


def decayed(first: float, last: float, episodes: int, episode: int) -> float:
    """Return a value that falls linearly from `first` at episode 0 to `last` at the `episodes`-th, and stays."""
    return first + min(1.0, episode / max(1, episodes - 1)) * (last - first)


@kernel
def _advance_process(u: Doubles, stream: NDArray[np.uint64], active: Bools, diffusion: float, friction: float) -> None:
    for m in range(u.shape[0]):
        if active[m]:
            for a in range(u.shape[1]):
                u[m, a] += diffusion * next_normal(stream[m]) - friction * u[m, a]


def disturbed(action: NDArray[Any], scale: Doubles, noise: Doubles, noise_bound: float, bound: float) -> Explored:
    """Return policy actions `[M, A]` plus scale `[M]` · noise `[M, A]`.

    The noise is clipped to ±`noise_bound`, the sum to ±`bound`.
    """
    explored = Explored(np.empty(action.shape, np.float32), np.empty(len(action), np.float32))
    _disturb(np.ascontiguousarray(action), scale, noise, noise_bound, bound, *explored[:2])
    return explored


@kernel
def _disturb(
    action: NDArray[Any], scale: Doubles, noise: Doubles, noise_bound: float, bound: float, explored: Floats,
    deviation: Floats,
) -> None:  # fmt: skip
    """Compute `disturbed`; NaN passes."""
    for m in range(action.shape[0]):
        distance = np.float32(0)
        for a in range(action.shape[1]):
            tried = action[m, a] + scale[m] * min(max(noise[m, a], -noise_bound), noise_bound)
            explored[m, a] = bound if tried > bound else -bound if tried < -bound else tried
            distance += np.float32(abs(explored[m, a] - action[m, a]))
        deviation[m] = distance
