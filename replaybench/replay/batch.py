"""Batches that a learner receives, and the arrays that they reuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices
from replaybench.replay.storage.traces import Window
from replaybench.runtime.arrays import Floats32


@dataclass(frozen=True)
class ReplayBatch:
    """One drawn batch: named columns `[M, B, width]`, and the strategy's numbers for each sample.

    If the unit of replay is several steps, columns are `[M, B, steps, width]`, and only the first
    `length` `[M, B]` steps of each unit are not zero. The next `sample` overwrites all arrays.

    Drawn for U successive updates at once, it has M·U rows in the place of M: row m·U + u is for update u of member m.

    Attributes:
        idx, serial: slots and the serial numbers of what they hold, `[M, B]`.
        probability: chance of each draw float64 `[M, B]`, NaN where it is not known.
        weight, actor_weight: importance weights on the critic's and on the actor's loss, float32 `[M, B]`.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
        traces: the stored traces of each sample, float32 `[M, B, K]`; None if the learner has none.
        window: the steps that end with each sample; None if the learner needs single steps only.
        update, updates_in_phase: index of this batch, or of the first of several, in its phase, and their number.
    """

    columns: Mapping[str, Floats32]
    idx: Indices
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
