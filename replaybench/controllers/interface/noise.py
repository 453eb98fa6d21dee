"""Exploration noise: processes, Gaussian noise and random actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import Bools, Floats, Floats32
from replaybench.runtime.configuration import NonNegative, Number, Positive, Settings, Share
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_double, next_normal


class Explored(NamedTuple):
    """Actions with exploration.

    Attributes:
        action: float32 `[M, A]`.
        deviation: distance from the policy's action, ‖a − π(s)‖₁, float32 `[M]`.
        extras: further fields to store with the experience, float32 `[M, width]` by name.
    """

    action: Floats32
    deviation: Floats32
    extras: Mapping[str, Floats32] = MappingProxyType({})


class Exploration(Protocol):
    """The exploration of a population with deterministic policies."""

    def start_episode(self, episode: int, members: Bools) -> None:
        """Begin training episode `episode` (from 0) of the chosen `members` `[M]`; the others continue theirs."""

    def advance(self, observation: Any, active: Bools) -> None:
        """Draw random numbers for the next step of the `active` `[M]` members, at normalised observations `[M, S]`.

        The other members draw nothing, so that their next episode does not depend on how long others continue.
        """

    def disturb(self, action: Any, observation: Any) -> Explored:
        """Return the policy's actions `[M, A]` at observations `[M, S]`, disturbed by the draws of this step."""

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that the next draws depend on, by name; a resumed run overwrites them in place."""


@kernel
def draw_normal(stream: NDArray[np.uint64], active: Bools, drawn: Floats) -> None:
    """Fill the rows of `drawn` `[M, n]` of active members with standard normals; the others draw nothing."""
    for m in range(drawn.shape[0]):
        if active[m]:
            for i in range(drawn.shape[1]):
                drawn[m, i] = next_normal(stream[m])


@kernel
def draw_uniform(stream: NDArray[np.uint64], active: Bools, drawn: Floats) -> None:
    """Fill the rows of `drawn` `[M, n]` of active members with uniform numbers in [0, 1); the others draw nothing."""
    for m in range(drawn.shape[0]):
        if active[m]:
            for i in range(drawn.shape[1]):
                drawn[m, i] = next_double(stream[m])


class PolicyDraws:
    """The random numbers with which a stochastic policy draws actions: `drawn` float64 `[M, width]`, for this step."""

    def __init__(self, setting: LearnerSetting, width: int, draw: Callable[..., None] = draw_normal) -> None:
        self.stream, self._draw = setting.stream("exploration"), draw
        self.drawn = np.zeros((len(setting.members), width))

    def start_episode(self, episode: int, members: Bools) -> None:
        """Do nothing: no number is constant within an episode."""

    def advance(self, observation: Any, active: Bools) -> None:
        self._draw(self.stream.state, active, self.drawn)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        return {"stream": self.stream.state}


@dataclass(frozen=True, kw_only=True)
class ProcessNoise(Settings):
    """u ← u + diffusion · N(0, 1) − friction · u, temporally correlated and decaying (de Bruin et al. 2018, B.2).

    The paper calls 5.14 and 0.3 by names that usually mean the opposite; this is the formula as printed. The state u is
    never clipped. The noise is clip(u, ±1) times the amplitude, which falls linearly from `first_amplitude`
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
    """The process of every member; `amplitude` is float64 `[M]`, and `frequency` the control rate in Hz."""

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
        config = self.config
        self.u[members] = 0.0
        self.amplitude[members] = decayed(config.first_amplitude, config.last_amplitude, config.decay_episodes, episode)

    def advance(self, observation: Any, active: Bools) -> None:
        _advance_process(self.u, self.stream.state, active, self.diffusion, self.friction)

    def disturb(self, action: Any, observation: Any) -> Explored:
        return disturbed(action, self.amplitude, self.u, 1.0, 1.0)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        return {"stream": self.stream.state, "u": self.u, "amplitude": self.amplitude}


def decayed(first: float, last: float, episodes: int, episode: int) -> float:
    """Return a value that falls linearly from `first` at episode 0 to `last` at the `episodes`-th, and then stays."""
    return first + min(1.0, episode / max(1, episodes - 1)) * (last - first)


@kernel
def _advance_process(u: Floats, stream: NDArray[np.uint64], active: Bools, diffusion: float, friction: float) -> None:
    for m in range(u.shape[0]):
        if active[m]:
            for a in range(u.shape[1]):
                u[m, a] += diffusion * next_normal(stream[m]) - friction * u[m, a]


def disturbed(action: NDArray[Any], scale: Floats, noise: Floats, noise_bound: float, bound: float) -> Explored:
    """Return policy actions `[M, A]` plus scale `[M]` · noise `[M, A]`.

    The noise is clipped to ±`noise_bound`, the sum to ±`bound`.
    """
    explored = Explored(np.empty(action.shape, np.float32), np.empty(len(action), np.float32))
    _disturb(np.ascontiguousarray(action), scale, noise, noise_bound, bound, *explored[:2])
    return explored


@kernel
def _disturb(
    action: NDArray[Any], scale: Floats, noise: Floats, noise_bound: float, bound: float, explored: Floats32,
    deviation: Floats32,
) -> None:  # fmt: skip
    """Kernel of `disturbed`; NaN stays."""
    for m in range(action.shape[0]):
        distance = np.float32(0)
        for a in range(action.shape[1]):
            tried = action[m, a] + scale[m] * min(max(noise[m, a], -noise_bound), noise_bound)
            explored[m, a] = bound if tried > bound else -bound if tried < -bound else tried
            distance += np.float32(abs(explored[m, a] - action[m, a]))
        deviation[m] = distance


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Settings):
    """a = π(s) + σ · N(0, 1), independent in every sample and dimension (σ = 0.2 in Novati & Koumoutsakos 2019).

    σ falls linearly from `sigma` at the first episode to `last_sigma` at episode `decay_episodes`; without `last_sigma`
    it is constant. `truncate` = c limits draws to ±cσ; use 3 with ReF-ER. If the mean moves by Δ, the importance weight
    of an action z σ away from it changes by exp(z Δ/σ), so that the few actions with large |z| would become far-policy
    at once. Truncation raises the density by a constant, which cancels in importance weights.

    Actions are stored and returned unclipped, because a clipped action has no Gaussian density; the environment clips
    what it applies. `clip` bounds them to ±1, for learners that use no density.
    """

    form: Literal["gaussian"] = "gaussian"
    sigma: Positive = 0.2
    last_sigma: Positive | None = None
    decay_episodes: Number = 500
    truncate: Positive | None = None
    clip: bool = False


class RunningGaussian:
    """The noise of every member; `sigma` float64 `[M, 1]` is its deviation in this episode, before truncation."""

    def __init__(self, config: GaussianNoise, root: int, members: Sequence[int], actions: int) -> None:
        self.config = config
        self.stream = Stream(root, members, "exploration")
        self.noise = np.zeros((len(members), actions))
        self.sigma = np.full((len(members), 1), config.sigma)

    def start_episode(self, episode: int, members: Bools) -> None:
        config = self.config
        last = config.sigma if config.last_sigma is None else config.last_sigma
        self.sigma[members] = decayed(config.sigma, last, config.decay_episodes, episode)

    def advance(self, observation: Any, active: Bools) -> None:
        bound = self.config.truncate
        if bound is None:
            draw_normal(self.stream.state, active, self.noise)
        else:
            uniform = np.full_like(self.noise, 0.5)
            draw_uniform(self.stream.state, active, uniform)
            self.noise[active] = truncated_normal(uniform, bound)[active]

    def disturb(self, action: Any, observation: Any) -> Explored:
        """Return action + noise for policy actions `[M, A]`.

        Without clipping, the extras describe the density: `behaviour_mean` and `behaviour_log_sigma`, both `[M, A]`.
        """
        explored = disturbed(action, self.sigma[:, 0], self.noise, np.inf, 1.0 if self.config.clip else np.inf)
        if self.config.clip:
            return explored
        log_sigma = np.repeat(elementwise.log(self.sigma).astype(np.float32), action.shape[1], axis=1)
        density = {"behaviour_mean": action.astype(np.float32, copy=False), "behaviour_log_sigma": log_sigma}
        return explored._replace(extras=density)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        return {"stream": self.stream.state, "noise": self.noise, "sigma": self.sigma}


def truncated_normal(uniform: Floats, bound: float) -> Floats:
    """Return standard normals within ±bound from as many uniform numbers in [0, 1), by the inverse distribution."""
    outside = ndtr(-bound)
    drawn = ndtri(outside + uniform * (1.0 - 2.0 * outside))
    within: Floats = np.clip(drawn, -bound, bound)  # rounding may exceed the bound; a wide bound gives infinity
    return within


class RandomActions:
    """Random actions of every member, from a random stream of their own.

    An untrained policy stays near its mean; uniform actions cover the whole range.
    """

    def __init__(self, setting: LearnerSetting) -> None:
        self.stream = setting.stream("warm-up")
        self._uniform = np.full((len(setting.members), setting.task.action_size), 0.5)

    @property
    def action(self) -> Floats32:
        """Each member's latest action, float32 `[M, A]`, uniform in [−1, 1]."""
        return (2.0 * self._uniform - 1.0).astype(np.float32)

    def draw(self, active: Bools) -> None:
        """Draw a new action for each `active` `[M]` member."""
        draw_uniform(self.stream.state, active, self._uniform)

    def explored(self, greedy: Any) -> Explored:
        """Return the latest actions, and their distances from the `greedy` ones `[M, A]`."""
        return Explored(self.action, np.abs(self.action - greedy).sum(axis=1).astype(np.float32))
