"""Exploration by noise on actions, and random actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Floats32
from replaybench.runtime.configuration import NonNegative, Number, Positive, Settings, Share
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_double, next_normal


class Explored(NamedTuple):
    """The exploring action of each member.

    Attributes:
        action: Actions; float32, shape `[M, A]`.
        deviation: Distance ‖a − π(s)‖₁ from the policy's action; float32, shape `[M]`.
        extras: Further fields to store with the experience, by name; float32, shape `[M, width]` each.
    """

    action: Floats32
    deviation: Floats32
    extras: Mapping[str, Floats32] = MappingProxyType({})


class Exploration:
    """Base class of exploration: noise on the actions of deterministic policies, or draws of stochastic policies."""

    stream: Stream

    def start_episode(self, episode: int, members: Bools) -> None:
        """Begin training episode number `episode` (from 0) of the members for which `members` `[M]` is true."""

    def advance(self, observation: AnyFloats, active: Bools) -> None:
        """Draw the random numbers of the next step, for members that are `active` `[M]` only.

        `observation` `[M, S]` is normalised. No numbers are drawn for other members, so that the episodes of a member
        do not depend on the lengths of other members' episodes.
        """

    def disturb(self, action: AnyFloats, observation: AnyFloats) -> Explored:
        """Return the policy's actions `[M, A]` with exploration noise, at normalised observations `[M, S]`."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays on which the next random numbers depend. A resumed run overwrites these arrays."""
        return {"stream": self.stream.state}


@kernel
def draw_normal(stream: NDArray[np.uint64], active: Bools, drawn: Floats) -> None:
    """Fill the rows of `drawn` `[M, width]` of active members with standard normal numbers from their streams."""
    for m in range(drawn.shape[0]):
        if active[m]:
            for i in range(drawn.shape[1]):
                drawn[m, i] = next_normal(stream[m])


@kernel
def draw_uniform(stream: NDArray[np.uint64], active: Bools, drawn: Floats) -> None:
    """Fill the rows of `drawn` `[M, width]` of active members with uniform numbers in [0, 1) from their streams."""
    for m in range(drawn.shape[0]):
        if active[m]:
            for i in range(drawn.shape[1]):
                drawn[m, i] = next_double(stream[m])


class PolicyDraws(Exploration):
    """The random numbers of stochastic policies, in the array `drawn` `[M, width]` for M members."""

    def __init__(
        self, setting: LearnerSetting, width: int, draw: Callable[..., None] = draw_normal, purpose: str = "exploration"
    ) -> None:
        self.stream, self._draw = setting.stream(purpose), draw
        self.drawn = np.zeros((len(setting.members), width))

    def advance(self, observation: AnyFloats, active: Bools) -> None:
        self._draw(self.stream.state, active, self.drawn)


@dataclass(frozen=True, kw_only=True)
class ProcessNoise(Settings):
    """Settings of temporally correlated noise whose amplitude decays (de Bruin et al. 2018, appendix B.2).

    The noise is clip(u, ±1) times the amplitude. The state u of the noise is 0 at the start of an episode and is never
    clipped. It changes in each step by the formula of the paper, which exchanges the usual symbols σ and θ:

        u ← u + diffusion · N(0, 1) − friction · u

    The amplitude falls linearly from `first_amplitude` to `last_amplitude` over the first `decay_episodes` episodes,
    and then stays constant. By default, diffusion and friction hold per step at every control rate. With `per_second`,
    they hold at 50 Hz and are converted to the control rate.
    """

    form: Literal["process"] = "process"
    diffusion: NonNegative = 5.14
    friction: Share = 0.3
    first_amplitude: Share = 1.0
    last_amplitude: Share = 0.1
    decay_episodes: Number = 500
    per_second: bool = False


class RunningProcess(Exploration):
    """The temporally correlated noise of every member, and its amplitude in the current episode."""

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

    def advance(self, observation: AnyFloats, active: Bools) -> None:
        _advance_process(self.u, self.stream.state, active, self.diffusion, self.friction)

    def disturb(self, action: AnyFloats, observation: AnyFloats) -> Explored:
        return disturbed(action, self.amplitude, self.u, 1.0, 1.0)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        return {**super().state_dict(), "u": self.u, "amplitude": self.amplitude}


def decayed(first: float, last: float, episodes: int, episode: int) -> float:
    """Return the value, in episode number `episode`, of a setting that changes linearly from `first` to `last`.

    The value is `first` in episode 0, and `last` from episode `episodes` − 1 on.
    """
    return first + min(1.0, episode / max(1, episodes - 1)) * (last - first)


@kernel
def _advance_process(u: Floats, stream: NDArray[np.uint64], active: Bools, diffusion: float, friction: float) -> None:
    for m in range(u.shape[0]):
        if active[m]:
            for a in range(u.shape[1]):
                u[m, a] += diffusion * next_normal(stream[m]) - friction * u[m, a]


def disturbed(action: np.ndarray, scale: Floats, noise: Floats, noise_bound: float, bound: float) -> Explored:
    """Return actions `[M, A]` plus `scale` `[M]` times noise `[M, A]`.

    The noise is clipped to ±`noise_bound` before the multiplication. The sum is clipped to ±`bound`.
    """
    explored = Explored(np.empty(action.shape, np.float32), np.empty(len(action), np.float32))
    _disturb(np.ascontiguousarray(action), scale, noise, noise_bound, bound, *explored[:2])
    return explored


@kernel
def _disturb(
    action: np.ndarray, scale: Floats, noise: Floats, noise_bound: float, bound: float, explored: Floats32,
    deviation: Floats32,
) -> None:  # fmt: skip
    for m in range(action.shape[0]):
        distance = np.float32(0)
        for a in range(action.shape[1]):
            tried = action[m, a] + scale[m] * min(max(noise[m, a], -noise_bound), noise_bound)
            # Written so that NaN stays NaN.
            explored[m, a] = bound if tried > bound else -bound if tried < -bound else tried
            distance += np.float32(abs(explored[m, a] - action[m, a]))
        deviation[m] = distance


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Settings):
    """Settings of Gaussian noise that is independent in every step and dimension.

    Actions are a = π(s) + σ · N(0, 1), with σ = 0.2 in Novati & Koumoutsakos (2019). σ changes linearly from `sigma` to
    `last_sigma` over the first `decay_episodes` episodes. Without `last_sigma`, it is constant.

    Actions are stored and returned without clipping, because a clipped action has no Gaussian density. The environment
    clips the actions that it applies. With `clip`, actions are clipped to ±1, for learners that use no density.

    `truncate` = c limits the noise to ±cσ. Use c = 3 with ReF-ER (Novati & Koumoutsakos 2019). If the policy's mean
    moves by Δ, the importance weight of an action at a distance of zσ changes by the factor exp(z Δ/σ). Without
    truncation, the few actions with large |z| would soon have importance weights that ReF-ER excludes. Truncation
    raises the density by a constant factor, which cancels in importance weights.
    """

    form: Literal["gaussian"] = "gaussian"
    sigma: Positive = 0.2
    last_sigma: Positive | None = None
    decay_episodes: Number = 500
    truncate: Positive | None = None
    clip: bool = False


class RunningGaussian(Exploration):
    """The Gaussian noise of M members. `sigma` `[M, 1]` is the standard deviation of the noise before truncation."""

    def __init__(self, config: GaussianNoise, root: int, members: Sequence[int], actions: int) -> None:
        self.config = config
        self.stream = Stream(root, members, "exploration")
        self.noise = np.zeros((len(members), actions))
        self.sigma = np.full((len(members), 1), config.sigma)

    def start_episode(self, episode: int, members: Bools) -> None:
        config = self.config
        last = config.sigma if config.last_sigma is None else config.last_sigma
        self.sigma[members] = decayed(config.sigma, last, config.decay_episodes, episode)

    def advance(self, observation: AnyFloats, active: Bools) -> None:
        bound = self.config.truncate
        if bound is None:
            draw_normal(self.stream.state, active, self.noise)
        else:
            uniform = np.full_like(self.noise, 0.5)
            draw_uniform(self.stream.state, active, uniform)
            self.noise[active] = truncated_normal(uniform, bound)[active]

    def disturb(self, action: AnyFloats, observation: AnyFloats) -> Explored:
        """Return actions with noise. If they are not clipped, `extras` has the mean and log σ of their density."""
        explored = disturbed(action, self.sigma[:, 0], self.noise, np.inf, 1.0 if self.config.clip else np.inf)
        if self.config.clip:
            return explored
        log_sigma = np.repeat(elementwise.log(self.sigma).astype(np.float32), action.shape[1], axis=1)
        density = {"behaviour_mean": action.astype(np.float32, copy=False), "behaviour_log_sigma": log_sigma}
        return explored._replace(extras=density)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        return {**super().state_dict(), "noise": self.noise, "sigma": self.sigma}


def truncated_normal(uniform: Floats, bound: float) -> Floats:
    """Return truncated standard normal numbers, within ±`bound`, from `uniform` numbers in [0, 1)."""
    outside = ndtr(-bound)
    drawn = ndtri(outside + uniform * (1.0 - 2.0 * outside))
    within: Floats = np.clip(drawn, -bound, bound)  # rounding may exceed the bound; a wide bound gives infinity
    return within


class RandomActions(PolicyDraws):
    """Uniformly random actions of every member, for the episodes before the first update.

    An untrained policy stays near its mean, whereas uniform actions cover the whole range.
    """

    def __init__(self, setting: LearnerSetting) -> None:
        super().__init__(setting, setting.task.action_size, draw_uniform, "warm-up")
        self.drawn[:] = 0.5

    def explored(self, greedy: AnyFloats) -> Explored:
        """Return the latest random action of each member in [−1, 1], and the distance from the `greedy` action."""
        action = (2.0 * self.drawn - 1.0).astype(np.float32)
        return Explored(action, np.abs(action - greedy).sum(axis=1).astype(np.float32))
