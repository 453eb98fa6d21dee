"""Sum trees for sampling in proportion to priority, from all experiences or from the newest ones.

Each of M members has a tree of fixed shape over P positions. A position is a buffer slot or an
entry of an age log. Leaves are float32 priorities. Sixteen leaves form a node, which is one cache line. The levels
above the leaves contain float64 sums, also in nodes of sixteen. A change recomputes each sum on the path to the root
from its sixteen numbers. Sums therefore depend on the leaves alone, and rounding errors do not accumulate. A tree that
is rebuilt from saved leaves draws the same samples as the saved one. A tree needs 4.6 bytes per position.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from replaybench.runtime.arrays import AnyFloats, Floats, Floats32, Integers, Integers32, aligned_zeros
from replaybench.runtime.kernel import kernel

FAN: Final = 16


class SumState(NamedTuple):
    """The arrays of M sum trees with P positions each, as compiled functions receive them.

    A position is a buffer slot or an entry of an age log.

    Attributes:
        leaf: Priority of each position; float32, shape `[M, P']`, where P' is P rounded up to a multiple of 16.
        sums: Sums of the Q nodes of all levels, the lowest level first; float64, shape `[M, Q]`. Each level is padded
            to a multiple of 16.
        level: Index in `sums` at which each of the L levels begins; int64, shape `[L]`. The last level is a single
            node.
    """

    leaf: Floats32
    sums: Floats
    level: Integers


def make_sums(members: int, positions: int) -> SumState:
    """Return the sum trees of `members` buffers with all priorities 0. Memory is allocated on first use."""
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
def _add_up(values: AnyFloats, m: int, start: int) -> float:
    """Return the sum of sixteen numbers, which are always added in the same order."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(start, start + 16, 4):
        a += values[m, j]
        b += values[m, j + 1]
        c += values[m, j + 2]
        d += values[m, j + 3]
    return (a + b) + (c + d)


@kernel
def sum_total(state: SumState, m: int) -> float:
    """Return the sum of all priorities in the m-th tree."""
    return float(_add_up(state.sums, m, state.level[-1]))


@kernel
def sum_set(state: SumState, m: int, position: int, priority: float) -> None:
    """Set the priority (≥ 0) of a position in the m-th tree, and update the sums that include this position."""
    state.leaf[m, position] = priority
    sum_renew(state, m, position)


@kernel
def sum_lowest(state: SumState, m: int, node: int) -> None:
    """Update the sum of the sixteen leaves of a node of the m-th tree, but not the sums above it."""
    state.sums[m, node] = _add_up(state.leaf, m, node * 16)


@kernel
def sum_renew(state: SumState, m: int, position: int) -> None:
    """Update the sums of the m-th tree that include a position whose priority was written to `leaf`."""
    node = position // 16
    sum_lowest(state, m, node)
    for i in range(1, state.level.size):
        node //= 16
        state.sums[m, state.level[i] + node] = _add_up(state.sums, m, state.level[i - 1] + node * 16)


@kernel
def _pass(values: AnyFloats, m: int, start: int, target: float) -> tuple[int, float]:
    """Return how many cumulative sums of sixteen numbers are at most `target`, and the remainder of `target`.

    If `target` exceeds the sum of all numbers because of rounding, return the index of the last positive number, and
    infinity as the remainder.
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
    """Return the first position in a subtree at which the sum of priorities so far exceeds `target`.

    The subtree is that of node `node` on level `level` of the m-th tree. Nodes of level 0 are positions. If `target`
    exceeds the sum of the subtree because of rounding, the result is the last position with a positive priority.
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
    """Return the first position in the m-th tree at which the sum of priorities so far exceeds `target`.

    If `target` exceeds the total because of rounding, the result is the last position with a positive priority.
    """
    return find_below(state, m, state.level.size + 1, 0, target)


@kernel
def sum_rebuild(state: SumState, m: int) -> None:
    """Recompute all sums of the m-th tree from the priorities."""
    for node in range(state.leaf.shape[1] // 16):
        state.sums[m, node] = _add_up(state.leaf, m, node * 16)
    for i in range(1, state.level.size):
        below = (state.level[i] - state.level[i - 1]) // 16
        for node in range(below):
            state.sums[m, state.level[i] + node] = _add_up(state.sums, m, state.level[i - 1] + node * 16)


class AgeState(NamedTuple):
    """The arrays of M age logs, which list the slots of a buffer by the age of their experiences.

    A buffer has C slots. An age log has P entries, more than C. Each new experience takes the next entry, so entries
    are in order of age. An entry becomes unused when its experience is overwritten.

    Attributes:
        slot_at: Buffer slot of each entry; int32, shape `[M, P]`.
        place_of: Entry of each buffer slot, or −1 if the slot is empty; int32, shape `[M, C]`.
        end: Index of the next entry; int64, shape `[M]`.
        used: Sum tree over entries, with 1 for each entry whose experience is still stored.
        priority: Sum tree over entries with the priorities of their experiences. If `weighted` is False, the tree is a
            single node of zeros.
        weighted: Whether priorities are stored.
    """

    slot_at: Integers32
    place_of: Integers32
    end: Integers
    used: SumState
    priority: SumState
    weighted: bool


@kernel
def _squeeze(ages: AgeState, m: int) -> None:
    """Remove the unused entries of the m-th age log, and move the other entries to the front."""
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
    """Append an entry with priority 0 to the m-th age log for a new experience in a slot.

    The entry of the experience that the slot contained before is discarded.
    """
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
    """Return the index of the r-th newest of `count` experiences in the m-th age log. The newest has r = 0."""
    return int(sum_find(ages.used, m, count - 1 - r + 0.5))


@kernel
def _rebuild(ages: AgeState, m: int) -> None:
    ages.used.leaf[m] = 0
    for slot in range(ages.place_of.shape[1]):
        place = ages.place_of[m, slot]
        if place >= 0:
            ages.slot_at[m, place] = slot
            ages.used.leaf[m, place] = 1
    sum_rebuild(ages.used, m)
    sum_rebuild(ages.priority, m)


class AgeLog:
    """A log that lists the slots of each buffer by the age of their experiences.

    Args:
        members: Number of buffers M.
        capacity: Number of slots of each buffer.
        weighted: Whether the log also stores the priority of each experience.
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

    def state_dict(self, stored: int) -> dict[str, np.ndarray]:
        """Return the log entries of the first `stored` slots, from which the log without priorities can be rebuilt."""
        return {"age_place": self.state.place_of[:, :stored], "age_end": self.state.end}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays that `state_dict` returned, and recompute the sums of the current priorities."""
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
    """A list of nodes of a sum tree that together contain exactly the positions of one or several ranges.

    Attributes:
        node: Index of each of K nodes in its level; int64, shape `[K]`.
        level: Level of each node, which is 0 for single positions and i for sums of 16^i positions; int64, shape `[K]`.
        upto: Sum of priorities in the nodes before each node, then in all nodes; float64, shape `[K + 1]`.
    """

    node: Integers
    level: Integers
    upto: Floats


@kernel
def new_cover(state: SumState) -> Cover:
    """Return an empty list of sum-tree nodes, with space for the nodes of two ranges of positions."""
    most = 4 * FAN * (state.level.size + 1)
    return Cover(np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most + 1))


@kernel
def _add_nodes(state: SumState, m: int, level: int, start: int, stop: int, cover: Cover, count: int) -> int:
    """Append nodes start … stop − 1 of a level to `cover`, except nodes with sum 0. Return the new number of nodes."""
    for node in range(start, stop):
        value = np.float64(state.leaf[m, node]) if level == 0 else state.sums[m, state.level[level - 1] + node]
        if value > 0:
            cover.node[count], cover.level[count] = node, level
            cover.upto[count + 1] = cover.upto[count] + value
            count += 1
    return count


@kernel
def cover_range(state: SumState, m: int, start: int, stop: int, cover: Cover, count: int) -> int:
    """Append the nodes of the m-th tree that contain positions `start` … `stop` − 1 to the list `cover`.

    The range must not be empty. Nodes with sum 0 are left out. `count` is the number of nodes in the list before the
    call. The new number is returned.
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
    """Find the first position in `cover` at which the sum of priorities so far exceeds each of B targets.

    `count` is the number of nodes in `cover`. Positions are written to `position` `[B]`. `target` `[B]` must ascend. If
    a target exceeds the sum of `cover` because of rounding, the result is the last position with a positive priority.
    """
    k = 0
    for b in range(target.size):
        while k < count - 1 and target[b] >= cover.upto[k + 1]:
            k += 1
        position[b] = find_below(state, m, cover.level[k], cover.node[k], target[b] - cover.upto[k])
