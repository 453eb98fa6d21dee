"""Which experience is overwritten when a buffer is full (de Bruin et al. 2018, sections 3.3 and 7.1).

A retention strategy is a frozen dataclass: its fields are what the notation writes in brackets. `start` gives the
running form for a population. A new strategy is one class here and one line in `RETENTIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_below

Slots = NDArray[np.int64]
State = dict[str, NDArray[np.generic]]


class RunningRetention(Protocol):
    """Chooses slots for a population whose buffers are full."""

    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        """Fill `slots[m]` for every member whose entry is −2 (its buffer is full): a slot, or −1 for 'discard'.

        `offers` `[M]` counts each member's offers, the present one included.
        """

    def state_dict(self) -> State:
        """Return the arrays that a resumed run needs."""


class Retention(Protocol):
    """The frozen description."""

    bounded: bool
    """False if nothing is ever discarded: the buffer then grows to the number of experiences offered."""

    metrics: tuple[str, ...]
    """Stored columns that the choice depends on, beside age."""

    def start(self, root: int, members: Sequence[int]) -> RunningRetention:
        """Return the running form for these members."""


@dataclass(frozen=True)
class FIFO:
    """First in, first out: the oldest experience is overwritten."""

    bounded = True
    metrics = ()

    def start(self, root: int, members: Sequence[int]) -> RunningRetention:
        return _RunningFIFO()


class _RunningFIFO:
    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        full = slots == -2
        slots[full] = (offers[full] - 1) % capacity

    def state_dict(self) -> State:
        return {}


@dataclass(frozen=True)
class FULL:
    """Keep everything (the paper's FULL DB)."""

    bounded = False
    metrics = ()

    def start(self, root: int, members: Sequence[int]) -> RunningRetention:
        return _RunningFULL()


class _RunningFULL:
    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        if (slots == -2).any():
            raise OverflowError(f"a FULL buffer was offered more than the {capacity} experiences it was made for")

    def state_dict(self) -> State:
        return {}


@dataclass(frozen=True)
class Resv:
    """Reservoir sampling (Vitter 1985): every experience offered so far is kept with equal probability.

    Experience number i enters a full buffer with probability C/i and overwrites a uniformly drawn victim.
    """

    bounded = True
    metrics = ()

    def start(self, root: int, members: Sequence[int]) -> RunningRetention:
        return _RunningResv(Stream(root, members, "retention"))


class _RunningResv:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        _reservoir(self.stream.state, offers, capacity, slots)

    def state_dict(self) -> State:
        return {"retention_stream": self.stream.state}


@kernel
def _reservoir(state: NDArray[np.uint64], offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
    for m in range(slots.size):
        if slots[m] == -2:
            place = next_below(state[m], offers[m])
            slots[m] = place if place < capacity else -1


RETENTIONS: Final[dict[str, type[FIFO] | type[FULL] | type[Resv]]] = {"FIFO": FIFO, "FULL": FULL, "Resv": Resv}
