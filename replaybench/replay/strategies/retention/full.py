"""Keep everything."""

from __future__ import annotations

from dataclasses import dataclass

from replaybench.replay.arrays import Indices
from replaybench.replay.strategies.retention.interface import Retention, RunningRetention
from replaybench.replay.strategies.view import BufferView


@dataclass(frozen=True)
class FULL(Retention):
    """Keep everything (the FULL DB of de Bruin et al. 2018)."""

    bounded = False
    in_turn = True
    no_parameters = "FULL keeps everything and has no capacity; FIFO, Resv, TDE and Expl have the study's or their own"

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningFULL()


class _RunningFULL(RunningRetention):
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        raise OverflowError("a FULL buffer was offered more experiences or units than it has room for")
