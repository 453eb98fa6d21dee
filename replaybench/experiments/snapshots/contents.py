"""Contents of the replay buffers along a run: how much, how exploratory, and from which tenth of the run.

Counts are of single steps, whatever the unit of replay is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.snapshots.times import TENTHS, snapshot_rounds, tenth_ends
from replaybench.replay.buffer import Replay


class Contents:
    """The history of a population's buffers; K snapshots.

    Attributes:
        collected: int64 `[M, 10]`, experiences collected by the end of each tenth of the run.
        origin: int64 `[M, K, 10]`, how many of those stored at a snapshot come from each tenth.
        exploration: float64 `[M, K]`, mean stored exploration (see `Explored.deviation`); NaN if nothing is stored.
    """

    def __init__(self, members: int, rounds: int) -> None:
        self._rounds, self._ends = snapshot_rounds(rounds), tenth_ends(rounds)
        self.collected = np.zeros((members, TENTHS), np.int64)
        self.origin = np.zeros((members, len(self._rounds), TENTHS), np.int64)
        self.exploration = np.full((members, len(self._rounds)), np.nan)

    def look(self, done: int, replay: Replay) -> None:
        """Record the contents after `done` rounds, if a snapshot is due."""
        for tenth, end in enumerate(self._ends):
            if end >= done:
                self.collected[:, tenth] = replay.collected
        if done not in self._rounds:
            return
        place, exploration = self._rounds.index(done), replay.columns.column("exploration")
        for m, count in enumerate(replay.count):
            serial = replay.columns.serial[m, :count]
            weight = np.ones(count, np.int64) if replay.assembly is None else replay.assembly.length[m, :count]
            tenths = np.searchsorted(self.collected[m], serial, side="left")
            self.origin[m, place] = np.bincount(tenths, weights=weight, minlength=TENTHS)[:TENTHS]
            if steps := int(weight.sum()):  # padding of units is 0
                self.exploration[m, place] = exploration[m, :count].sum(dtype=np.float64) / steps

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays by name; each begins with M."""
        return {"collected": self.collected, "origin": self.origin, "exploration": self.exploration}
