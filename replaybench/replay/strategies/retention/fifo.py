"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass

from replaybench.data.kernel import kernel
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
        _oldest(offers, capacity, slots)


@kernel
def _oldest(offers: Indices, capacity: int, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] == -2:
            slots[m] = (offers[m] - 1) % capacity
