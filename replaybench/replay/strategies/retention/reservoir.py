"""Reservoir sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import next_below
from replaybench.replay.arrays import Indices
from replaybench.replay.strategies.retention.interface import Retention, RunningRetention
from replaybench.replay.strategies.running import Drawing
from replaybench.replay.strategies.view import BufferView


@dataclass(frozen=True)
class Resv(Retention):
    """Reservoir sampling (Vitter 1985): every experience offered so far is kept with equal probability.

    Experience number i enters a full buffer with probability C/i and overwrites a uniformly drawn victim.
    """

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningResv(view, "retention")


class _RunningResv(Drawing, RunningRetention):
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        _reservoir(self.stream.state, offers, capacity, slots)


@kernel
def _reservoir(state: NDArray[np.uint64], offers: Indices, capacity: int, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] == -2:
            place = next_below(state[m], offers[m])
            slots[m] = place if place < capacity else -1
