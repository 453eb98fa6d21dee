"""The order of age where slots are not overwritten in turn: which slot holds the r-th newest experience.

Under FIFO and FULL a slot's age is its place in the ring. Under reservoir or ranked retention any slot may be
renewed, so each member keeps a log: every new occupant takes the next place, its predecessor's place falls empty,
and when the log is full the empty places are squeezed out. New experiences only come in at one end, so a count of the
places in use suffices (`replaybench.replay.orders.priority_sums`). A quarter of the places is spare. A slot costs
15 bytes, 21 with priorities in order of age.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.orders.priority_sums import SumState, make_sums, sum_find, sum_rebuild, sum_set


class AgeState(NamedTuple):
    """The logs of M members with C slots and P places each, as kernels take them.

    Attributes:
        slot_at: int32 `[M, P]`, the slot that took each place.
        place_of: int32 `[M, C]`, each slot's place, −1 where the slot is empty.
        end: int64 `[M]`, the next place.
        used: a tree over places, 1 where a slot is still at its place.
        priority: a tree over places, the priorities of what is there; a single node of zeros if not `weighted`.
        weighted: whether priorities are kept.
    """

    slot_at: NDArray[np.int32]
    place_of: NDArray[np.int32]
    end: NDArray[np.int64]
    used: SumState
    priority: SumState
    weighted: bool


@kernel
def _squeeze(ages: AgeState, m: int) -> None:
    """Move the places in use to the front, oldest first."""
    kept = 0
    for place in range(ages.end[m]):
        slot = ages.slot_at[m, place]
        if ages.place_of[m, slot] == place:
            ages.slot_at[m, kept], ages.place_of[m, slot] = slot, kept
            if ages.weighted:
                ages.priority.leaf[m, kept] = ages.priority.leaf[m, place]
            kept += 1
    ages.used.leaf[m, :kept] = 1
    ages.used.leaf[m, kept:] = 0
    sum_rebuild(ages.used, m)
    if ages.weighted:
        ages.priority.leaf[m, kept:] = 0
        sum_rebuild(ages.priority, m)
    ages.end[m] = kept


@kernel
def age_renew(ages: AgeState, m: int, slot: int) -> None:
    """Note that a slot has a new occupant, the newest of all; its predecessor's priority is dropped."""
    if ages.end[m] == ages.slot_at.shape[1]:
        _squeeze(ages, m)
    place = ages.place_of[m, slot]
    if place >= 0:
        sum_set(ages.used, m, place, 0.0)
        if ages.weighted:
            sum_set(ages.priority, m, place, 0.0)
    end = ages.end[m]
    ages.slot_at[m, end], ages.place_of[m, slot] = slot, end
    sum_set(ages.used, m, end, 1.0)
    ages.end[m] += 1


@kernel
def age_place(ages: AgeState, m: int, count: int, r: int) -> int:
    """Return the place of the r-th newest of `count` occupants; r = 0 is the newest."""
    return int(sum_find(ages.used, m, count - 1 - r + 0.5))


@kernel
def _rebuild(ages: AgeState, m: int) -> None:
    """Recount from `place_of`."""
    ages.used.leaf[m] = 0
    for slot in range(ages.place_of.shape[1]):
        place = ages.place_of[m, slot]
        if place >= 0:
            ages.slot_at[m, place] = slot
            ages.used.leaf[m, place] = 1
    sum_rebuild(ages.used, m)
    sum_rebuild(ages.priority, m)


class AgeLog:
    """The order of age of each member's slots, all empty until renewed.

    Args:
        members, capacity: M and C.
        weighted: whether to keep priorities in order of age.
    """

    def __init__(self, members: int, capacity: int, weighted: bool = False) -> None:
        places = -(-(capacity + capacity // 4 + 1) // 16) * 16
        self.state: Final = AgeState(
            slot_at=np.zeros((members, places), np.int32),
            place_of=np.full((members, capacity), -1, np.int32),
            end=np.zeros(members, np.int64),
            used=make_sums(members, places),
            priority=make_sums(members, places if weighted else 0),
            weighted=weighted,
        )

    def state_dict(self, stored: int) -> dict[str, NDArray[Any]]:
        """Return the places of the first `stored` slots, from which all else follows but the priorities."""
        return {"age_place": self.state.place_of[:, :stored], "age_end": self.state.end}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`; priorities are added up from the leaves as they are.

        Raises:
            ValueError: a place lies outside the log.
        """
        place, end = state["age_place"], state["age_end"]
        if (end < 0).any() or (end > self.state.slot_at.shape[1]).any():
            raise ValueError("its log of ages ends where there is no place")
        if place.size and ((place < -1) | (place >= end[:, None])).any():
            raise ValueError("a slot's place is outside its log of ages")
        self.state.place_of[:] = -1
        self.state.place_of[:, : place.shape[1]] = place
        self.state.end[:] = end
        for m in range(len(self.state.end)):
            _rebuild(self.state, m)
