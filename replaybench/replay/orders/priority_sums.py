"""Trees of priority sums, for draws in proportion to priority from all or from the newest experiences.

**Structure**: a tree of fixed shape per member. Leaves are float32 priorities, sixteen to a node and a cache line;
above them are levels of float64 sums, sixteen to a node. A change recomputes the sum of the sixteen numbers of each
node on the path to the root. Sums thus depend on the leaves alone: rounding does not accumulate, and a tree
rebuilt from saved leaves draws like the saved one. A tree needs 4.6 bytes per position. Positions are buffer slots, or
places in an age log.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.arrays import Floats, Floats32, Integers, Integers32, aligned_zeros
from replaybench.runtime.kernel import kernel

FAN: Final = 16


class SumState(NamedTuple):
    """The arrays of M members with P positions, as kernels receive them.

    Attributes:
        leaf: float32 `[M, P']`, priorities; P' is P rounded up to whole nodes.
        sums: float64 `[M, Q]`, the sums of all levels, each level padded to whole nodes, the lowest first.
        level: int64 `[L]`, where each level begins in `sums`; the last one is a single node.
    """

    leaf: Floats32
    sums: Floats
    level: Integers


def make_sums(members: int, positions: int) -> SumState:
    """Return a tree of zeros; the system allocates its memory on first use."""
    count = -(-max(1, positions) // FAN)
    padded, level, begin = count * FAN, [], 0
    while True:
        level.append(begin)
        width = -(-count // FAN) * FAN
        begin += width
        if width == FAN:
            break
        count = width // FAN
    return SumState(
        aligned_zeros((members, padded), np.float32), aligned_zeros((members, begin), np.float64), np.array(level)
    )


@kernel
def _add_up(values: Any, m: int, start: int) -> float:
    """Add sixteen numbers in four chains, always in the same order."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(start, start + 16, 4):
        a += values[m, j]
        b += values[m, j + 1]
        c += values[m, j + 2]
        d += values[m, j + 3]
    return (a + b) + (c + d)


@kernel
def sum_total(state: SumState, m: int) -> float:
    """Return the sum of all priorities of member m."""
    return float(_add_up(state.sums, m, state.level[-1]))


@kernel
def sum_set(state: SumState, m: int, position: int, priority: float) -> None:
    """Give a position a priority ≥ 0."""
    state.leaf[m, position] = priority
    node = position // 16
    state.sums[m, node] = _add_up(state.leaf, m, node * 16)
    for i in range(1, state.level.size):
        node //= 16
        state.sums[m, state.level[i] + node] = _add_up(state.sums, m, state.level[i - 1] + node * 16)


@kernel
def _pass(values: Any, m: int, start: int, target: float) -> tuple[int, float]:
    """Return how many cumulative sums of sixteen numbers are at most `target`, and the remainder.

    If rounding has put `target` beyond their sum, return the place of the last positive number, and infinity.
    """
    passed, before, total = 0, 0.0, 0.0
    for j in range(16):
        total += values[m, start + j]
        before = total if total <= target else before
        passed += total <= target
    if passed < 16:
        return passed, target - before
    last = 0
    for j in range(16):
        last = j if values[m, start + j] > 0 else last
    return last, np.inf


@kernel
def find_below(state: SumState, m: int, level: int, node: int, target: float) -> int:
    """Return the first position below a node of a level whose cumulative priority exceeds `target`.

    Nodes of level 0 are positions. A target that rounding has put beyond the end gives the last position
    whose priority is positive.
    """
    for i in range(level - 2, -1, -1):
        passed, target = _pass(state.sums, m, state.level[i] + node * 16, target)
        node = node * 16 + passed
    if level > 0:
        passed, target = _pass(state.leaf, m, node * 16, target)
        node = node * 16 + passed
    return int(node)


@kernel
def sum_find(state: SumState, m: int, target: float) -> int:
    """Return the first position whose cumulative priority exceeds `target`; see `find_below`."""
    return find_below(state, m, state.level.size + 1, 0, target)


@kernel
def sum_rebuild(state: SumState, m: int) -> None:
    """Recompute all sums of member m from its leaves."""
    for node in range(state.leaf.shape[1] // 16):
        state.sums[m, node] = _add_up(state.leaf, m, node * 16)
    for i in range(1, state.level.size):
        below = (state.level[i] - state.level[i - 1]) // 16
        for node in range(below):
            state.sums[m, state.level[i] + node] = _add_up(state.sums, m, state.level[i - 1] + node * 16)


class AgeState(NamedTuple):
    """The age logs of M members with C slots and P places each, as kernels receive them.

    Attributes:
        slot_at: int32 `[M, P]`, the slot that took each place.
        place_of: int32 `[M, C]`, each slot's place, −1 where the slot is empty.
        end: int64 `[M]`, the next place.
        used: a tree over places, 1 where a place still belongs to its slot.
        priority: a tree over places with the priorities of their slots; a single node of zeros if not `weighted`.
        weighted: whether priorities are kept.
    """

    slot_at: Integers32
    place_of: Integers32
    end: Integers
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
    """Record that a slot has a new occupant, the newest of all; discard the priority of the previous one."""
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
    """Rebuild the log from `place_of`."""
    ages.used.leaf[m] = 0
    for slot in range(ages.place_of.shape[1]):
        place = ages.place_of[m, slot]
        if place >= 0:
            ages.slot_at[m, place] = slot
            ages.used.leaf[m, place] = 1
    sum_rebuild(ages.used, m)
    sum_rebuild(ages.priority, m)


class AgeLog:
    """The slots of each member in order of age, and their priorities if `weighted`; initially empty."""

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
        """Return the places of the first `stored` slots; everything except priorities follows from them."""
        return {"age_place": self.state.place_of[:, :stored], "age_end": self.state.end}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state_dict`; sums are recomputed from the current leaves."""
        place, end = state["age_place"], state["age_end"]
        if (end < 0).any() or (end > self.state.slot_at.shape[1]).any():
            raise ValueError("its log of ages ends beyond its last place")
        if place.size and ((place < -1) | (place >= end[:, None])).any():
            raise ValueError("a slot's place is outside its log of ages")
        self.state.place_of[:] = -1
        self.state.place_of[:, : place.shape[1]] = place
        self.state.end[:] = end
        for m in range(len(self.state.end)):
            _rebuild(self.state, m)


class Cover(NamedTuple):
    """The nodes whose leaves are exactly one or several ranges of positions, in order.

    Attributes:
        node: int64 `[K]`, a node's index in its level.
        level: int64 `[K]`, 0 for single positions, i for sums of 16^i of them.
        upto: float64 `[K + 1]`, the sum of all earlier nodes; 0 for the first.
    """

    node: Integers
    level: Integers
    upto: Floats


@kernel
def new_cover(state: SumState) -> Cover:
    """Return empty arrays for the nodes of two ranges."""
    most = 4 * FAN * (state.level.size + 1)
    return Cover(np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most + 1))


@kernel
def _add_nodes(state: SumState, m: int, level: int, start: int, stop: int, cover: Cover, count: int) -> int:
    """Append those of the nodes start … stop − 1 of a level whose sum is positive; return the new number of nodes."""
    for node in range(start, stop):
        value = np.float64(state.leaf[m, node]) if level == 0 else state.sums[m, state.level[level - 1] + node]
        if value > 0:
            cover.node[count], cover.level[count] = node, level
            cover.upto[count + 1] = cover.upto[count] + value
            count += 1
    return count


@kernel
def cover_range(state: SumState, m: int, start: int, stop: int, cover: Cover, count: int) -> int:
    """Append the nodes whose leaves make up the non-empty range [start, stop) to the first `count` nodes of a cover.

    Returns:
        The new number of nodes.
    """
    ends = np.empty(state.level.size + 1, np.int64)
    level = 0
    while start < stop and start // FAN != (stop - 1) // FAN:
        whole = -(-start // FAN)
        count = _add_nodes(state, m, level, start, whole * FAN, cover, count)
        ends[level] = stop
        start, stop = whole, stop // FAN
        level += 1
    count = _add_nodes(state, m, level, start, stop, cover, count)
    for below in range(level - 1, -1, -1):
        count = _add_nodes(state, m, below, ends[below] // FAN * FAN, ends[below], cover, count)
    return count


@kernel
def cover_search(state: SumState, m: int, cover: Cover, count: int, target: Floats, position: Integers) -> None:
    """Write to `position[B]` the first covered position whose cumulative priority exceeds each `target[B]`.

    Targets ascend. If rounding has put a target beyond the end, the result is the last position with a priority > 0.
    """
    k = 0
    for b in range(target.size):
        while k < count - 1 and target[b] >= cover.upto[k + 1]:
            k += 1
        position[b] = find_below(state, m, cover.level[k], cover.node[k], target[b] - cover.upto[k])
