"""The interface of replay and learners: batches, and rules for numbers along stored episodes (traces)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.arrays import Bools, Floats32


class Window(NamedTuple):
    """The successive steps that end with each sample, the oldest first, at most W.

    Attributes:
        observation: float32 `[M, B, W, S]`, zero after the sample's own.
        length: steps of each window int64 `[M, B]`, at least 1.
        memory: the field `memory` of the first step of each window, float32 `[M, B, H]`; H = 0 if it is not stored.
    """

    observation: Floats32
    length: NDArray[np.int64]
    memory: Floats32


@dataclass(frozen=True)
class ReplayBatch:
    """One drawn batch: named columns `[M, B, width]`, and the strategy's numbers for each sample.

    If the unit of replay is several steps, columns are `[M, B, steps, width]`, and only the first
    `length` `[M, B]` steps of each unit are not zero. The next `sample` overwrites all arrays.

    A batch for a chunk of U successive updates has M·U rows in the place of M: row m·U + u is for update u of member m.

    Attributes:
        idx, serial: slots that were drawn, and the serial numbers of the experiences in them, `[M, B]`.
        probability: chance of each draw float64 `[M, B]`, NaN where it is not known.
        weight, actor_weight: weights of each sample in the critic's and in the actor's loss, float32 `[M, B]`.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
        traces: the stored traces of each sample, float32 `[M, B, K]`; None if the learner has none.
        window: the steps that end with each sample; None if the learner needs single steps only.
        update, updates_in_phase: index of the batch's first update in the update phase, and number of updates in it.
    """

    columns: Mapping[str, Floats32]
    idx: NDArray[np.int64]
    serial: NDArray[np.uint32]
    probability: NDArray[np.float64]
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
        """True successor, `[M, B, S]`."""
        return self.columns["next_observation"]

    @property
    def terminated(self) -> Floats32:
        """1 where the successor is terminal, `[M, B, 1]`."""
        return self.columns["terminated"]


Links = NDArray[np.int32]
Slots = NDArray[np.int64]


class TraceRule:
    """The callbacks in which a learner computes the traces of stored steps; this one only needs the links.

    Throughout, `values` is `[M, N, K]`, in the order of `names`; `previous` and `next` `[M, N]` are the slots of the
    neighbours in the same episode, −1 where there is none. Rules write to `values` only.
    """

    names: tuple[str, ...] = ()
    """Names of the K numbers."""

    def followed(self, values: Floats32, last: Slots, experience: Mapping[str, NDArray[Any]]) -> None:
        """Called when `experience` follows the step in slot `last[m]` (−1: none), whether it is stored or not.

        If `experience` is then discarded (slot −1 in `stored`), `last[m]` remains the end of its linked steps: `last`
        may be kept until then.
        """

    def evicting(self, values: Floats32, previous: Links, next: Links, slots: Slots) -> None:
        """Called before the occupants of `slots` `[M]` (−1: none) are overwritten; their links are still valid."""

    def stored(self, values: Floats32, previous: Links, next: Links, slots: Slots, ended: Bools) -> None:
        """Called after a step was stored in `slots[m]` (−1: none) and linked; numbers that were not given are 0.

        `ended` `[M]`: members whose episode ends with this step, stored or not.
        """

    def annotated(
        self, values: Floats32, previous: Links, next: Links, idx: Slots, annotations: Mapping[str, NDArray[Any]]
    ) -> None:
        """Use the learner's annotations of the steps in slots `idx` `[M, B]`; −1 where a step was replaced."""

    def loaded(self, values: Floats32, count: Slots) -> None:
        """Called after a stored buffer was loaded; the first `count` `[M]` slots are in use."""
