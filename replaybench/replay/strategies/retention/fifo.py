"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass

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
        full = slots == -2
        slots[full] = (offers[full] - 1) % capacity
