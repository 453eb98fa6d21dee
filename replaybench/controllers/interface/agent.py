"""The task, members and settings of a learner, and the normalisation of observations and rewards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.networks.adam import AdamSettings
from replaybench.controllers.networks.network import MemoryConfig
from replaybench.data.batch import ReplayBatch as Batch
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Integers
from replaybench.runtime.configuration import Betas, Discount, Number, Positive, Settings, Within
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream

__all__ = ["Batch", "LearnerConfig", "LearnerSetting", "NormaliseConfig", "Schedule", "Task"]

LEAST_DEVIATION: Final = 1e-2
"""Smallest standard deviation by which observations are divided, for observations that have not varied yet."""

LEAST_REWARD: Final = 1e-6
"""Smallest root mean square by which rewards are divided."""

Counts = Integers
Statistics = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class NormaliseConfig(Settings):
    """Settings of the normalisation of observations and rewards.

    With `observations`, observations are standardised by their running mean and standard deviation. If `clip` is given,
    the results are bounded to ±`clip`. With `rewards`, rewards are divided by their running root mean square √E[r²],
    without subtracting the mean. This division replaces the factor `reward_scale` of the task.
    """

    observations: bool = False
    clip: Positive | None = None
    rewards: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None and not self.observations:
            raise UserError("normalise: clip bounds normalised observations; set observations = true, or leave it out")


class Schedule(NamedTuple):
    """The number and time of a learner's updates, and the experiences that an update needs.

    Attributes:
        batch_size: Number of samples in a batch of each member.
        replays_per_experience: Mean number of replays of an experience.
        segment: Number of successive steps that are stored and sampled as a whole.
        n_step: Largest number of steps over which rewards are summed in the target of a value.
        window: Largest number of successive steps that are replayed with each sample, including the sample.
        warmup_episodes: Number of episodes (iterations, if updates follow a fixed number of steps) before the first
            update.
        on_policy: Whether each update phase begins with an update on the newest experiences.
        target_rate: Fraction by which targets of values approach the present values in an update, such as the τ of
            target networks. None if it is unknown. Offline replay then does not check for extrapolated values.
    """

    batch_size: int
    replays_per_experience: float
    segment: int = 1
    n_step: int = 1
    window: int = 1
    warmup_episodes: int = 0
    on_policy: bool = False
    target_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class LearnerConfig(Settings):
    """The settings that every learner has. The settings of a learner derive from this class."""

    batch_size: Number = 64
    replays_per_experience: Positive = 32.0
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)

    @property
    def schedule(self) -> Schedule:
        """The number and time of updates. Subclasses replace the values that their settings determine."""
        return Schedule(self.batch_size, self.replays_per_experience)

    @property
    def adam(self) -> AdamSettings:
        """Settings of the optimisers of all networks."""
        return AdamSettings()


@dataclass(frozen=True, kw_only=True)
class AdamConfig(LearnerConfig):
    """Settings of learners whose settings include those of Adam."""

    betas: Betas = (0.9, 0.999)
    epsilon: Positive = 1e-8

    @property
    def adam(self) -> AdamSettings:
        return AdamSettings(self.betas, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class DiscreteConfig(LearnerConfig):
    """Settings of learners that choose from a finite set of actions.

    Each action dimension has `levels` evenly spaced values in [−1, 1]. None means the plant's own choices, or 15 levels
    if actions are continuous.
    """

    levels: int | None = None


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(LearnerConfig):
    """Settings of learners whose networks can begin with LSTM layers."""

    memory: MemoryConfig | None = None

    @property
    def schedule(self) -> Schedule:
        """The number and time of updates, with the windows of steps that recurrent networks need."""
        return super().schedule._replace(window=1 if self.memory is None else self.memory.steps)


class ObservationNormaliser:
    """A standardisation of observations, with running statistics of each member.

    Normalised observations are (s − mean) / deviation. The statistics are those of all observations that the member has
    collected. The standard deviation is computed with division by the number of observations. It is at least
    `LEAST_DEVIATION`, and 1 before the second observation. If the settings do not ask for normalisation, observations
    stay unchanged.

    Attributes:
        count: Number of collected observations; int64, shape `[M]`.
        mean: Mean of each observed variable; float64, shape `[M, S]`.
        variance: Variance of each observed variable; float64, shape `[M, S]`.
        scale: 1 / deviation; float64, shape `[M, S]`.
        bound: Bound on the absolute value of normalised observations; float64, shape `[M]`. Infinite without clipping.
    """

    def __init__(self, config: NormaliseConfig, members: int, size: int, dtype: DTypeLike = np.float32) -> None:
        self.on, self.dtype = config.observations, np.dtype(dtype)
        self.count = np.zeros(members, np.int64)
        self.mean, self.variance = np.zeros((members, size)), np.zeros((members, size))
        self.scale = np.ones((members, size))
        self.bound = np.full(members, np.inf if config.clip is None else config.clip)

    def update(self, observation: np.ndarray, active: Bools) -> None:
        """Update the statistics with new observations `[M, …, S]`, for members that are `active` `[M]` only."""
        if self.on:
            rows = np.ascontiguousarray(observation).reshape(len(self.mean), -1, self.mean.shape[1])
            _update_moments(rows, active, self.count, self.mean, self.variance, self.scale)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Return the normalised observations `[M, …, S]` of each member."""
        if not self.on:
            return observation
        rows = np.ascontiguousarray(observation).reshape(len(self.mean), -1, self.mean.shape[1])
        bound = self.bound[:, None, None]
        normalised = np.clip((rows - self.mean[:, None]) * self.scale[:, None], -bound, bound)
        return normalised.astype(self.dtype).reshape(observation.shape)

    def state_dict(self) -> Statistics:
        """Return the statistics by name, without copying, or an empty dictionary if nothing is normalised."""
        kept = {"count": self.count, "mean": self.mean, "variance": self.variance}
        kept |= {"scale": self.scale, "bound": self.bound}
        return {f"observation.{name}": array for name, array in kept.items()} if self.on else {}


class RewardScale:
    """A factor on the rewards of each member, which normalises their root mean square to 1.

    The factor is 1 / √E[r²], where the mean is over all rewards that the member has collected. The root is at least
    `LEAST_REWARD`. If the settings do not ask for normalisation, the factor is always `fixed`.

    Attributes:
        count: Number of collected rewards; int64, shape `[M]`.
        mean_square: Mean of squared rewards; float64, shape `[M]`.
        factor: Factor by which rewards are multiplied; float64, shape `[M]`.
    """

    def __init__(self, config: NormaliseConfig, members: int, fixed: float) -> None:
        self.on, self.fixed = config.rewards, fixed
        self.count, self.mean_square = np.zeros(members, np.int64), np.zeros(members)
        self.factor = np.full(members, float(fixed))

    def update(self, reward: np.ndarray, active: Bools) -> None:
        """Update the factors with new rewards `[M, …]`, for members that are `active` `[M]` only."""
        if self.on:
            rows = reward.reshape(len(self.count), -1)
            _update_mean_square(rows, active, self.count, self.mean_square, self.factor)

    def restored(self, value: np.ndarray) -> np.ndarray:
        """Convert values `[M, N]` of normalised rewards to values of rewards times the constant factor `fixed`."""
        if not self.on:
            return value
        restored: np.ndarray = value * (self.fixed / self.factor).astype(value.dtype)[:, None]
        return restored

    def state_dict(self) -> Statistics:
        """Return the statistics by name, without copying, or an empty dictionary if nothing is normalised."""
        kept = {"count": self.count, "mean_square": self.mean_square, "factor": self.factor}
        return {f"reward.{name}": array for name, array in kept.items()} if self.on else {}


class Normaliser:
    """The normalisation of observations and rewards. Unless rewards are normalised, their factor is `reward_scale`."""

    def __init__(
        self, config: NormaliseConfig, members: int, size: int, reward_scale: float, dtype: DTypeLike = np.float32
    ) -> None:
        self.on = config.observations or config.rewards
        self.observations = ObservationNormaliser(config, members, size, dtype)
        self.rewards = RewardScale(config, members, reward_scale)

    def state_dict(self) -> Statistics:
        """Return the statistics of observations and rewards by name, without copying."""
        return {**self.observations.state_dict(), **self.rewards.state_dict()}


@kernel
def _update_moments(
    rows: np.ndarray, active: Bools, count: Counts, mean: Floats, variance: Floats, scale: Floats
) -> None:
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
def _update_mean_square(reward: np.ndarray, active: Bools, count: Counts, mean_square: Floats, factor: Floats) -> None:
    for m in range(count.size):
        if active[m]:
            for b in range(reward.shape[1]):
                count[m] += 1
                mean_square[m] += (np.float64(reward[m, b]) ** 2 - mean_square[m]) / count[m]
            size = np.sqrt(mean_square[m])
            factor[m] = 1.0 / (LEAST_REWARD if size < LEAST_REWARD else size)


Size = Annotated[int, Within(1, 100_000, "numbers")]


class Task(NamedTuple):
    """The properties of a plant that a learner needs.

    Attributes:
        observation_size: Number of observed variables S.
        action_size: Number of action dimensions A.
        discount: Discount factor γ of one control step.
        reward_scale: Factor by which the learner multiplies rewards.
        action_choices: Number of evenly spaced values in [−1, 1] of each action. Empty if actions are continuous.
    """

    observation_size: Size
    action_size: Size
    discount: Discount
    reward_scale: Annotated[float, Within(-math.inf, math.inf)]
    action_choices: tuple[Annotated[int, Within(2, 100_000)], ...] = ()


MOST = 1000
"""Largest number of discrete actions. Each action is an output of a network, and some learners store its
probability."""

USUAL = 15
"""Default number of values of each action dimension if a continuous action is discretised.

De Bruin et al. (2018, section 6.3) use this number.
"""


class ActionLevels:
    """A finite set of actions, with evenly spaced levels from −1 to 1 in each dimension.

    Args:
        levels: Number of levels in each dimension. By default, it is that of `choices` or, if actions are continuous,
            `USUAL`.
        actions: Number of action dimensions A.
        choices: Number of values that the plant accepts in each dimension. It is empty if actions are continuous.

    Attributes:
        counts: Number of levels in each dimension; int64, shape `[A]`.
        table: All n combinations of levels; float32, shape `[n, A]`. The last dimension changes fastest.

    Raises:
        UserError: There are fewer than 2 levels or more than `MOST` combinations, or `levels` contradicts `choices`.
    """

    def __init__(self, levels: int | None, actions: int, choices: Sequence[int] = ()) -> None:
        counts = tuple(choices) or (USUAL if levels is None else levels,) * actions
        product = " × ".join(map(str, counts))
        if levels is not None and set(counts) != {levels}:
            raise UserError(f"levels = {levels}, but the plant takes {product} choices; leave levels out")
        if min(counts) < 2:
            raise UserError(f"levels must be at least 2, not {min(counts)}")
        if (combinations := math.prod(counts)) > MOST and choices:
            what = f"the plant's {product} choices are {combinations} actions"
            raise UserError(f"{what}; no learner takes more than {MOST}")
        if combinations > MOST:
            fitting = int(np.floor(MOST ** (1 / actions) + 1e-9))
            remedy = f"set levels to at most {fitting}" if fitting > 1 else "take a learner with continuous actions"
            raise UserError(f"levels = {counts[0]} in {actions} dimensions are {combinations} actions; {remedy}")
        self.counts = np.array(counts, np.int64)
        grid = np.meshgrid(*[np.linspace(-1.0, 1.0, count, dtype=np.float32) for count in counts], indexing="ij")
        self.table: AnyFloats = np.stack(grid, axis=-1).reshape(-1, actions)


@dataclass(frozen=True)
class LearnerSetting:
    """The task and the members of a learner.

    Members are independent learners, trained together. Their random numbers depend on `root` and their own numbers.

    Attributes:
        task: Sizes of observations and actions, discount factor and scale of rewards.
        root: Seed of the study.
        members: Numbers of the M members.
        frequency: Control rate in Hz. Exploration depends on it if its setting `per_second` is on.
        dtype: Data type of the networks, float32 or, for comparisons in tests, float64.
        refer: Settings of ReF-ER (Novati & Koumoutsakos 2019) in the replay strategy, or None without ReF-ER.
    """

    task: Task
    root: int
    members: Sequence[int]
    frequency: float = 50.0
    dtype: DTypeLike = np.float32
    refer: Any = None

    def stream(self, name: str) -> Stream:
        """Return a new random stream of each member for the purpose `name`, such as "exploration"."""
        return Stream(self.root, self.members, name)
