"""What learners need to know of plants and replay: array shapes, and batches that do not depend on the strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.bounds import Discount, Within

Floats = NDArray[np.floating]
Size = Annotated[int, Within(1, 100_000, "numbers")]


class Window(Protocol):
    """The successive steps of an episode that end with each sample."""

    @property
    def observation(self) -> Floats:
        """`[M, B, W, S]`, the oldest first; zero after the sample's own steps."""

    @property
    def length(self) -> NDArray[np.int64]:
        """Steps of each window `[M, B]`, at least 1."""

    @property
    def memory(self) -> Floats:
        """The field `memory` of the first step of each window, `[M, B, H]`; H = 0 if it is not stored."""


class Batch(Protocol):
    """Replayed experiences of all members, float32; the next batch overwrites the arrays.

    For learners with `several_at_once` a batch may be for U successive updates. It then has M·U rows in the place of M:
    member m learns from row m·U + u in update u.
    """

    @property
    def observation(self) -> Floats:
        """`[M, B, S]`."""

    @property
    def action(self) -> Floats:
        """Commanded action, `[M, B, A]`."""

    @property
    def reward(self) -> Floats:
        """Unscaled reward, `[M, B, 1]`."""

    @property
    def next_observation(self) -> Floats:
        """True successor, `[M, B, S]`."""

    @property
    def terminated(self) -> Floats:
        """1 where the successor's value is zero, `[M, B, 1]`; a time limit does not count."""

    @property
    def columns(self) -> Mapping[str, Floats]:
        """Every stored field by name; `[M, B, steps, width]` where segments are replayed."""

    @property
    def length(self) -> NDArray[np.uint16] | None:
        """Steps of each segment `[M, B]`, the others are zero; None where single steps are replayed."""

    @property
    def traces(self) -> Floats | None:
        """Stored traces of each sample, `[M, B, K]`; None if the learner has none."""

    @property
    def window(self) -> Window | None:
        """The steps before each sample; None where learners need single steps only."""

    @property
    def weight(self) -> Floats:
        """Importance weight of each sample in the critic's loss, `[M, B]`."""

    @property
    def actor_weight(self) -> Floats:
        """Weight of each sample in the actor's loss, `[M, B]`."""

    @property
    def rate_factor(self) -> Floats:
        """Factor on the learning rate of each member, `[M]`."""


class Task(NamedTuple):
    """Sizes of a plant's observations and actions, discount, and factor on rewards.

    Attributes:
        action_choices: how many values each action takes, evenly spaced in [−1, 1]; empty where actions are continuous.
    """

    observation_size: Size
    action_size: Size
    discount: Discount
    reward_scale: Annotated[float, Within(-math.inf, math.inf)]
    action_choices: tuple[Annotated[int, Within(2, 100_000)], ...] = ()


class Actions(NamedTuple):
    """The actions of a plant, for checks before computing: their number A, and `choices` as in `Task`."""

    plant: str
    size: int
    choices: tuple[int, ...] = ()
