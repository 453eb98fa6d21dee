"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replaybench.replay.arrays import Indices
from replaybench.replay.strategies.retention.interface import Retention, RunningRetention
from replaybench.replay.strategies.view import BufferView


@dataclass(frozen=True)
class FIFO(Retention):
    """First in, first out: the oldest experience is overwritten."""

    in_turn = True

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningFIFO()


class _RunningFIFO(RunningRetention):
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        np.copyto(slots, (offers - 1) % capacity, where=slots == -2)
