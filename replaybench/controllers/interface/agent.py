"""The task and setting of a learner, and normalisation of observations and rewards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.data.batch import ReplayBatch as Batch
from replaybench.runtime.arrays import Bools, Floats, Integers
from replaybench.runtime.configuration import Discount, Positive, Settings, Within
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream

__all__ = ["Actions", "Batch", "LearnerSetting", "NormaliseConfig", "Task"]

LEAST_DEVIATION: Final = 1e-2
"""Smallest standard deviation by which observations are divided, because some have not varied yet."""

LEAST_REWARD: Final = 1e-6
"""Smallest root mean square by which rewards are divided."""

Counts = Integers
Statistics = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class NormaliseConfig(Settings):
    """Settings: whether to standardise `observations`, bounded to ±`clip` if given, and to scale `rewards`.

    Scaled rewards are r / √E[r²], without subtracting the mean; they replace the task's own reward scale.
    """

    observations: bool = False
    clip: Positive | None = None
    rewards: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None and not self.observations:
            raise UserError("normalise: clip bounds normalised observations; set observations = true, or leave it out")


class ObservationNormaliser:
    """(s − mean) / deviation over all observations that a member has collected; the identity if it is off.

    The deviation is computed with division by n, at least `LEAST_DEVIATION`, and 1 before the second observation.

    Attributes:
        count: int64 `[M]`.
        mean, variance, scale: float64 `[M, S]`; the scale is 1 / deviation.
        bound: float64 `[M]`, infinite without clipping.
    """

    def __init__(self, config: NormaliseConfig, members: int, size: int, dtype: DTypeLike = np.float32) -> None:
        self.on, self.dtype = config.observations, np.dtype(dtype)
        self.count = np.zeros(members, np.int64)
        self.mean, self.variance = np.zeros((members, size)), np.zeros((members, size))
        self.scale = np.ones((members, size))
        self.bound = np.full(members, np.inf if config.clip is None else config.clip)

    def update(self, observation: NDArray[Any], active: Bools) -> None:
        """Update the statistics with collected observations `[M, …, S]` of the `active` `[M]` members."""
        if self.on:
            rows = np.ascontiguousarray(observation).reshape(len(self.mean), -1, self.mean.shape[1])
            _update_moments(rows, active, self.count, self.mean, self.variance, self.scale)

    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return observations `[M, …, S]` normalised."""
        if not self.on:
            return observation
        rows = np.ascontiguousarray(observation).reshape(len(self.mean), -1, self.mean.shape[1])
        bound = self.bound[:, None, None]
        normalised = np.clip((rows - self.mean[:, None]) * self.scale[:, None], -bound, bound)
        return normalised.astype(self.dtype).reshape(observation.shape)

    def state_dict(self) -> Statistics:
        """Return the statistics by name, as views; empty if it is off."""
        kept = {"count": self.count, "mean": self.mean, "variance": self.variance}
        kept |= {"scale": self.scale, "bound": self.bound}
        return {f"observation.{name}": array for name, array in kept.items()} if self.on else {}


class RewardScale:
    """r / √E[r²] over all rewards that a member has collected; the factor `fixed` if it is off.

    Attributes:
        count: int64 `[M]`.
        mean_square, factor: float64 `[M]`; rewards are multiplied by the factor.
    """

    def __init__(self, config: NormaliseConfig, members: int, fixed: float) -> None:
        self.on, self.fixed = config.rewards, fixed
        self.count, self.mean_square = np.zeros(members, np.int64), np.zeros(members)
        self.factor = np.full(members, float(fixed))

    def update(self, reward: NDArray[Any], active: Bools) -> None:
        """Update the factor with collected rewards `[M, …]` of the `active` `[M]` members."""
        if self.on:
            rows = reward.reshape(len(self.count), -1)
            _update_mean_square(rows, active, self.count, self.mean_square, self.factor)

    def restored(self, value: NDArray[Any]) -> NDArray[Any]:
        """Convert values `[M, N]` from the unit of scaled rewards to that of rewards times the fixed factor."""
        if not self.on:
            return value
        restored: NDArray[Any] = value * (self.fixed / self.factor).astype(value.dtype)[:, None]
        return restored

    def state_dict(self) -> Statistics:
        """Return the statistics by name, as views; empty if it is off."""
        kept = {"count": self.count, "mean_square": self.mean_square, "factor": self.factor}
        return {f"reward.{name}": array for name, array in kept.items()} if self.on else {}


class Normaliser:
    """The statistics of a learner's observations and rewards; `reward_scale` is the fixed factor of rewards."""

    def __init__(
        self, config: NormaliseConfig, members: int, size: int, reward_scale: float, dtype: DTypeLike = np.float32
    ) -> None:
        self.on = config.observations or config.rewards
        self.observations = ObservationNormaliser(config, members, size, dtype)
        self.rewards = RewardScale(config, members, reward_scale)

    def state_dict(self) -> Statistics:
        """Return all statistics by name, as views."""
        return {**self.observations.state_dict(), **self.rewards.state_dict()}


@kernel
def _update_moments(
    rows: NDArray[Any], active: Bools, count: Counts, mean: Floats, variance: Floats, scale: Floats
) -> None:
    """Update means and variances by Welford's recursion."""
    for m in range(count.size):
        if not active[m]:
            continue
        for b in range(rows.shape[1]):
            count[m] += 1
            for s in range(mean.shape[1]):
                before = rows[m, b, s] - mean[m, s]
                mean[m, s] += before / count[m]
                variance[m, s] += (before * (rows[m, b, s] - mean[m, s]) - variance[m, s]) / count[m]
        for s in range(mean.shape[1]):
            deviation = np.sqrt(variance[m, s]) if count[m] > 1 else 1.0
            # Written so that NaN gives NaN: a failed member must be detected.
            scale[m, s] = 1.0 / (LEAST_DEVIATION if deviation < LEAST_DEVIATION else deviation)


@kernel
def _update_mean_square(
    reward: NDArray[Any], active: Bools, count: Counts, mean_square: Floats, factor: Floats
) -> None:
    for m in range(count.size):
        if active[m]:
            for b in range(reward.shape[1]):
                count[m] += 1
                mean_square[m] += (np.float64(reward[m, b]) ** 2 - mean_square[m]) / count[m]
            size = np.sqrt(mean_square[m])
            factor[m] = 1.0 / (LEAST_REWARD if size < LEAST_REWARD else size)


Size = Annotated[int, Within(1, 100_000, "numbers")]


class Task(NamedTuple):
    """The numbers of a plant that a learner needs.

    They are the sizes of observations and actions, the discount factor, and the factor by which rewards are multiplied.

    Attributes:
        action_choices: number of values of each action, evenly spaced in [−1, 1]; empty if actions are continuous.
    """

    observation_size: Size
    action_size: Size
    discount: Discount
    reward_scale: Annotated[float, Within(-math.inf, math.inf)]
    action_choices: tuple[Annotated[int, Within(2, 100_000)], ...] = ()


class Actions(NamedTuple):
    """The actions of a plant, for checks before a run: their number `size`, and `choices` as `Task.action_choices`."""

    plant: str
    size: int
    choices: tuple[int, ...] = ()


@dataclass(frozen=True)
class LearnerSetting:
    """The task of a population of learners, and its members.

    Attributes:
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz, for exploration with `per_second`.
        dtype: of networks; float64 for comparisons in tests.
        refer: the strategy's settings of ReF-ER (Novati & Koumoutsakos 2019); None without ReF-ER.
    """

    task: Task
    root: int
    members: Sequence[int]
    frequency: float = 50.0
    dtype: DTypeLike = np.float32
    refer: Any = None

    def stream(self, name: str) -> Stream:
        """Return the random streams of the members under this name, at their beginning."""
        return Stream(self.root, self.members, name)
