"""Batches of replayed experiences, which learners receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.arrays import Floats32


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

    Drawn for U successive updates at once, it has M·U rows in the place of M: row m·U + u is for update u of member m.

    Attributes:
        idx, serial: slots and the serial numbers of what they hold, `[M, B]`.
        probability: chance of each draw float64 `[M, B]`, NaN where it is not known.
        weight, actor_weight: weights of each sample in the critic's and in the actor's loss, float32 `[M, B]`.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
        traces: the stored traces of each sample, float32 `[M, B, K]`; None if the learner has none.
        window: the steps that end with each sample; None if the learner needs single steps only.
        update, updates_in_phase: index of this batch, or of the first of several, in its phase, and their number.
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
