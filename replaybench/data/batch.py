"""Types that buffers and learners share: batches, and rules for traces, which are numbers along stored episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.arrays import Bools, Floats, Floats32, Integers, Integers32


class Window(NamedTuple):
    """The successive steps that end with each sample, at most W, the oldest first.

    Attributes:
        observation: float32 `[M, B, W, S]`, zero after the sample's own step.
        length: steps of each window int64 `[M, B]`, at least 1.
        memory: the field `memory` of the first step of each window, float32 `[M, B, H]`; H = 0 if it is not stored.
    """

    observation: Floats32
    length: Integers
    memory: Floats32


@dataclass(frozen=True)
class ReplayBatch:
    """A sampled batch: named columns `[M, B, width]`, and numbers of the strategy for each sample.

    If each sample is a segment of several steps, columns are `[M, B, steps, width]`, and only the first
    `length` `[M, B]` steps of each segment are not zero. The next `sample` overwrites all arrays.

    A batch for a chunk of U successive updates has M·U rows in place of M: row m·U + u is for update u of member m.

    Attributes:
        idx, serial: sampled slots, and the serial numbers of the experiences in them, `[M, B]`.
        probability: probability of each draw, float64 `[M, B]`; NaN where it is unknown.
        weight, actor_weight: weights of each sample in the critic's and in the actor's loss, float32 `[M, B]`.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
        traces: the stored traces of each sample, float32 `[M, B, K]`; None if the learner has none.
        window: the steps that end with each sample; None if the learner needs single steps only.
        update, updates_in_phase: index of the batch's first update in the update phase, and number of updates in it.
    """

    columns: Mapping[str, Floats32]
    idx: Integers
    serial: NDArray[np.uint32]
    probability: Floats
    weight: Floats32
    actor_weight: Floats32
    rate_factor: Floats32
    length: NDArray[np.uint16] | None = None
    traces: Floats32 | None = None
    window: Window | None = None
    update: int = 0
    updates_in_phase: int = 1

    @property
    def observation(self) -> Floats32:
        """Observation, `[M, B, S]`."""
        return self.columns["observation"]

    @property
    def action(self) -> Floats32:
        """Commanded action, `[M, B, A]`."""
        return self.columns["action"]

    @property
    def reward(self) -> Floats32:
        """Unscaled reward, `[M, B, 1]`."""
        return self.columns["reward"]

    @property
    def next_observation(self) -> Floats32:
        """Observation after the step, also at the end of an episode, `[M, B, S]`."""
        return self.columns["next_observation"]

    @property
    def terminated(self) -> Floats32:
        """1 where the next state is terminal, `[M, B, 1]`."""
        return self.columns["terminated"]


Links = Integers32
Slots = Integers


class TraceRule:
    """Callbacks with which a learner computes the traces of stored steps; those of this base class do nothing.

    Throughout, `values` is `[M, N, K]`, in the order of `names`; `previous` and `next` `[M, N]` are the slots of the
    neighbours in the same episode, −1 where there is none. Rules write to `values` only.
    """

    names: tuple[str, ...] = ()
    """Names of the K traces."""

    def followed(self, values: Floats32, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None:
        """Called when `experience` follows the step in slot `last[m]` (−1: none), before it is stored or discarded.

        If it is discarded (slot −1 in `stored`), `last[m]` remains the last of its linked steps. A rule may keep `last`
        until `stored` is called.
        """

    def evicting(self, values: Floats32, previous: Links, next: Links, slots: Slots) -> None:
        """Called before the occupants of `slots` `[M]` (−1: none) are overwritten; their links are still valid."""

    def stored(self, values: Floats32, previous: Links, next: Links, slots: Slots, ended: Bools) -> None:
        """Called after a step was stored in `slots[m]` (−1: none) and linked; traces that `experience` lacked are 0.

        `ended` `[M]`: members whose episode ends with this step, stored or not.
        """

    def annotated(
        self, values: Floats32, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, NDArray[Any]]
    ) -> None:
        """Use the learner's annotations of the steps in slots `idx` `[M, B]`; −1 where a step was replaced."""

    def loaded(self, values: Floats32, count: Slots) -> None:
        """Called after a stored buffer was loaded; the first `count` `[M]` slots are in use."""
