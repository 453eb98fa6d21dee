"""Room for the batches of a few successive updates, which are then fetched and learned from in one call each.

Every array begins with a row for each update of each member, those of a member one behind the other: row m·U + u is
for the u-th of U updates of member m. With one update rows are members.
"""

from __future__ import annotations

import numpy as np

from replaybench.replay.storage.columns import Columns, gather
from replaybench.replay.strategies.sampling.draws import Draws


class BatchRoom:
    """Arrays of a batch, to be filled.

    Args:
        columns: what is stored.
        batch, updates: B and U.

    Attributes:
        draws, serial, weight, ones: of all rows, `[M·U, B]`, the rate factor `[M·U]`.
        columns: named views `[M·U, B, …]` of what was gathered.
        each: draws and weights of one update `[M, B]`, for what decides them update by update.
        joint: draws of all updates `[M, U·B]`, for what can draw them as one batch.
    """

    def __init__(self, columns: Columns, batch: int, updates: int = 1) -> None:
        members, rows = len(columns.serial), len(columns.serial) * updates
        self.updates = updates
        self.draws = _draws(rows, batch)
        self.serial = np.zeros((rows, batch), np.uint32)
        self.weight, self.ones = np.ones((rows, batch), np.float32), np.ones((rows, batch), np.float32)
        self._gathered = np.zeros((rows, batch, columns.rows.shape[2]), np.float32)
        self.columns = columns.views(self._gathered)
        self.each, self.each_weight = self.draws, self.weight
        if updates > 1:
            self.each, self.each_weight = _draws(members, batch), np.ones((members, batch), np.float32)
        wide = (members, updates * batch)
        self._wide_serial, self._wide_gathered = self.serial.reshape(wide), self._gathered.reshape(*wide, -1)
        self.joint = Draws(self.draws.idx.reshape(wide), self.draws.probability.reshape(wide), self.each.rate_factor)

    def take(self, update: int) -> None:
        """Keep what stands in `each` as the batch of an update, counted from 0."""
        if self.updates > 1:
            self.draws.idx[update :: self.updates] = self.each.idx
            self.draws.probability[update :: self.updates] = self.each.probability
            self.draws.rate_factor[update :: self.updates] = self.each.rate_factor
            self.weight[update :: self.updates] = self.each_weight

    def fetch(self, columns: Columns) -> None:
        """Gather what was drawn."""
        gather(columns.rows, columns.serial, self.joint.idx, self._wide_gathered, self._wide_serial)


def _draws(rows: int, batch: int) -> Draws:
    return Draws(np.zeros((rows, batch), np.int64), np.ones((rows, batch)), np.ones(rows, np.float32))
