"""An exact order of buffer slots by key: returns the slot of a rank, updated in O(log N).

Rank-based sampling draws the slot at a rank; retention evicts from the other end. Ranks are always current. This
file handles slots and float32 keys only. Ties are ordered by lower slot, or by age, the newest first.

**Structure**: one B+-tree per member over 64-bit entries `image(key) << 32 | position`, all distinct; ascending entries
are descending keys, ties by lower position. A leaf is a row of 48 entries. An inner node holds for each of up to 32
children a lower bound of its entries, the number of entries before it, and its number. Rows begin on cache lines and
are padded with the largest value, so that work inside a node is a few vector instructions of fixed length without
branches (`node_vectors`). The padding also shows whether a node is full. Nodes are split or merged on the way down, so
that one pass suffices (`rank_tree`). A batch descends together and stores its paths. Every node
except the root stays at least 14/32 or 23/48 full, which bounds memory by 22.4 bytes per experience,
key included. Random updates need 18 bytes. Because a full node first shares with its neighbour, a fill in sorted order
(all keys +inf) needs 14.

**Why**: an update takes 75 ns out of cache (AMD EPYC, Zen 5, 32 members of 1e5); plain loops over rows of 64 take 250.
`benchmarks/speed/bench_order.py` measures growth, victims and memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.replay.orders.rank_tree import (
    CHANGES,
    HEIGHT,
    LEAST_INNER,
    LEAST_LEAF,
    NOTHING,
    ROOT,
    SIZE,
    TAKEN,
    USED,
    OrderState,
    build,
    column_of,
    entry_of,
    image_of,
    inner_row,
    leaf_row,
    place,
    rows,
)
from replaybench.replay.storage.columns import (
    INNER,
    LEAF,
    LazyColumn,
    add_after,
    borrow,
    count_before,
    insert_leaf,
    remove_leaf,
    request,
)
from replaybench.runtime.kernel import kernel


@kernel
def order_size(state: OrderState, m: int) -> int:
    """Return how many slots of member m are in the order."""
    return int(state.head[m, SIZE])


@kernel
def order_remove(state: OrderState, m: int, slot: int) -> None:
    """Remove a slot from the order; do nothing if it is absent."""
    position = position_of(state, m, slot)
    if position >= 0:
        place(borrow(state), m, position, np.uint32(0))
    if state.position_of.shape[1]:
        state.position_of[m, slot] = -1


@kernel
def order_set(state: OrderState, m: int, slot: int, key: float) -> None:
    """Insert a slot, or move it to its new key; NaN counts as +inf."""
    borrowed, position = borrow(state), position_of(state, m, slot)
    place(borrowed, m, take_position(borrowed, m, slot) if position < 0 else position, image_of(key))


@kernel
def order_select(state: OrderState, m: int, rank: int) -> int:
    """Return the slot at a rank in [0, size): rank 0 is the largest key."""
    borrowed = borrow(state)
    node, within = int(borrowed.head[m, ROOT]), np.int32(rank)
    for _ in range(borrowed.head[m, HEIGHT]):
        i = int(count_before(borrowed.before, inner_row(borrowed, m, node), within)) - 1
        within = np.int32(within - borrowed.before[m, node, i])
        node = int(borrowed.child[m, node, i])
    return slot_at(borrowed, m, int(np.int64(borrowed.leaf[m, node, within] & np.uint64(0xFFFF_FFFF))))


@kernel
def _load(state: OrderState, m: int, keys: NDArray[np.float32]) -> None:
    """Rebuild a member's tree from the keys at its positions `[P]`, NaN where a position is empty."""
    for position in range(keys.size):
        state.image[m, position] = 0 if np.isnan(keys[position]) else image_of(keys[position])
    build(state, m)


class RankOrder:
    """An order over the slots `[0, capacity)` of each member, all absent until set.

    Kernels take `state` and call the `order_` functions for one member at a time. They do not check bounds: slots
    and ranks must be in range. Memory is reserved for the worst case and touched only as nodes are used.

    Args:
        members, capacity: M and C.
        by_age: whether equal keys are ordered by age, the newest first, instead of by slot.
    """

    def __init__(self, members: int, capacity: int, by_age: bool = False) -> None:
        leaves = level = max(1, capacity // LEAST_LEAF)
        inner = 1
        while (level := level // LEAST_INNER) > 1:
            inner += level
        positions = capacity + capacity // 4 + 1 if by_age else capacity
        self.by_age: Final = by_age
        self.state: Final = OrderState(
            image=np.zeros((members, positions), np.uint32),
            leaf=rows(members, leaves, LEAF, np.uint64),
            bound=rows(members, inner, INNER, np.uint64),
            before=rows(members, inner, INNER, np.int32),
            child=rows(members, inner, INNER, np.int32),
            head=np.empty((members, 10), np.int64),
            slot_at=np.zeros((members, positions * by_age), np.int32),
            position_of=np.full((members, capacity * by_age), -1, np.int32),
        )
        self.state.head[:] = 0, 0, 0, 0, 0, -1, -1, 0, 1, positions
        self.state.leaf[:, 0] = NOTHING

    @property
    def used_bytes(self) -> int:
        """Bytes of keys, positions and all nodes used so far."""
        inner, leaves = self.state.head[:, USED : USED + 2].sum(0)
        kept = self.state.image.nbytes + self.state.slot_at.nbytes + self.state.position_of.nbytes
        return int(kept + inner * INNER * (8 + 4 + 4) + leaves * LEAF * 8)

    def keys(self, slots: int | None = None) -> NDArray[np.float32]:
        """Return the keys of the first `slots` slots (default: all), NaN for absent ones: the logical state."""
        return self._keys_at((slice(None), slice(slots)))

    def column(self, slots: int) -> LazyColumn:
        """Return the same keys as a column `[M, slots]` that computes its parts on request."""
        return LazyColumn((len(self.state.image), slots), np.dtype(np.float32), self._keys_at)

    def _keys_at(self, where: Any) -> NDArray[np.float32]:
        image = self.state.image[where] if not self.by_age else self._images_at(where)
        keys: NDArray[np.float32] = np.where(image >> 31, image, image ^ 0x7FFF_FFFF).view(np.float32)
        return keys

    def _images_at(self, where: Any) -> NDArray[np.uint32]:
        all_positions = self.state.position_of
        members = np.broadcast_to(np.arange(len(all_positions))[:, None], all_positions.shape)[where]
        positions = all_positions[where]
        images: NDArray[np.uint32] = np.where(positions < 0, np.uint32(0), self.state.image[members, positions])
        return images

    def load_keys(self, keys: ArrayLike, serial: ArrayLike | None = None) -> None:
        """Rebuild from keys `[M, n ≤ C]`, NaN for absent slots; all ranks become those of the saved order.

        Args:
            keys: the keys.
            serial: numbers `[M, n]` that ascend in the order of the occupants' arrival, for orders with ties by age;
                slot numbers if not given.

        Raises:
            ValueError: the shape does not fit.
        """
        array = np.asarray(keys, np.float32)
        members, positions = self.state.image.shape
        capacity = self.state.position_of.shape[1] if self.by_age else positions
        if array.ndim != 2 or len(array) != members or array.shape[1] > capacity:
            raise ValueError(f"keys have shape {array.shape}, this order {(members, capacity)}")
        self.state.image[:, array.shape[1] :] = 0
        arrived = np.broadcast_to(np.arange(array.shape[1]), array.shape) if serial is None else np.asarray(serial)
        for m, row in enumerate(array):
            _load(self.state, m, self._from_the_end(m, row, arrived[m]) if self.by_age else row)

    def _from_the_end(self, m: int, keys: NDArray[np.float32], arrived: NDArray[np.integer]) -> NDArray[np.float32]:
        """Assign a member's slots the last positions, the oldest the very last; return the keys at all positions."""
        state = self.state
        present = np.flatnonzero(~np.isnan(keys))
        slots = present[np.argsort(arrived[present], kind="stable")[::-1]]
        first = state.image.shape[1] - slots.size
        state.position_of[m] = -1
        state.position_of[m, slots], state.slot_at[m, first:] = np.arange(first, first + slots.size), slots
        state.head[m, TAKEN] = first
        found = np.full(state.image.shape[1], np.nan, np.float32)
        found[first:] = keys[slots]
        return found


_CHUNK: Final = 16  # updates; the rows of two chunks must stay in the first two cache levels
_LARGE: Final = 4  # height from which the lowest inner nodes of some members lie out of cache
# A plan has one row for each removal and each insertion in turn, of these columns, and a last row for all of them.
_ENTRY, _LEAF_AT, _PATH = 0, 1, 2  # from _PATH on: flat positions in `child`, root first
_MEMBER, _COUNT, _INNER_CHANGES, _LEAF_CHANGES = 0, 1, 2, 3
_PLAN: Final = (2 * _CHUNK + 1, _PATH + 8)  # no tree of 2³¹ entries is higher than 8

Indices = NDArray[np.int64]


@kernel
def order_select_many(state: OrderState, m: int, ranks: Indices, slots: Indices) -> None:
    """Write `order_select` of each of `ranks[B]` to `slots[B]`; `ranks` is overwritten."""
    borrowed = borrow(state)
    height = borrowed.head[m, HEIGHT]
    slots[:] = borrowed.head[m, ROOT]
    for level in range(height):
        for b in range(ranks.size):
            node = slots[b]
            i = int(count_before(borrowed.before, inner_row(borrowed, m, node), np.int32(ranks[b]))) - 1
            ranks[b] -= borrowed.before[m, node, i]
            slots[b] = borrowed.child[m, node, i]
            if level == height - 1:
                request(borrowed.leaf, leaf_row(borrowed, m, slots[b]) + ranks[b])
            elif level == height - 2 and height >= _LARGE:
                row = inner_row(borrowed, m, slots[b])
                for j in range(0, INNER, 16):
                    request(borrowed.before, row + j)
                    request(borrowed.child, row + j)
    for b in range(ranks.size):
        slots[b] = slot_at(borrowed, m, int(np.int64(borrowed.leaf[m, slots[b], ranks[b]] & np.uint64(0xFFFF_FFFF))))


@kernel
def _request_node(state: OrderState, m: int, node: int, leaf: bool) -> None:
    if leaf:
        for j in range(0, LEAF, 8):
            request(state.leaf, leaf_row(state, m, node) + j)
    else:
        row = inner_row(state, m, node)
        for j in range(0, INNER, 8):
            request(state.bound, row + j)
        for j in range(0, INNER, 16):
            request(state.before, row + j)
            request(state.child, row + j)


@kernel
def _make_plan(
    state: OrderState, m: int, positions: Indices, keys: NDArray[np.float32], start: int, plan: Indices
) -> None:
    """Find the leaves of a chunk's old and new entries, and prefetch those rows."""
    count, height = 0, state.head[m, HEIGHT]
    for b in range(start, min(start + _CHUNK, positions.size)):
        if positions[b] >= 0:
            plan[count, _ENTRY] = np.int64(entry_of(state.image[m, positions[b]], positions[b]))
            plan[count + 1, _ENTRY] = np.int64(entry_of(image_of(keys[b]), positions[b]))
            count += 2
    for k in range(count):
        plan[k, _LEAF_AT] = state.head[m, ROOT]
    for level in range(height):
        for k in range(count):
            row = inner_row(state, m, plan[k, _LEAF_AT])
            i = column_of(state, row, np.uint64(plan[k, _ENTRY]))
            node = int(state.child[m, plan[k, _LEAF_AT], i])
            plan[k, _PATH + level], plan[k, _LEAF_AT] = row + i, node
            if level == height - 1 or (level == height - 2 and height >= _LARGE):
                _request_node(state, m, node, level == height - 1)
    plan[-1, _MEMBER], plan[-1, _COUNT] = m, count
    plan[-1, _INNER_CHANGES], plan[-1, _LEAF_CHANGES] = state.head[m, CHANGES], state.head[m, CHANGES + 1]


@kernel
def _find_leaf(state: OrderState, m: int, plan: Indices, k: int) -> None:
    """Find the leaf of an entry again, under the same inner node."""
    height = state.head[m, HEIGHT]
    if height:
        row = plan[k, _PATH + height - 1] & -INNER
        i = column_of(state, row, np.uint64(plan[k, _ENTRY]))
        plan[k, _PATH + height - 1] = row + i
        plan[k, _LEAF_AT] = state.child[m, row // INNER - m * state.child.shape[1], i]


@kernel
def _count_path(state: OrderState, plan: Indices, k: int, height: int, change: int) -> None:
    for level in range(height):
        column = plan[k, _PATH + level] & (INNER - 1)
        add_after(state.before, plan[k, _PATH + level] - column, column, change)


@kernel
def _can_move(state: OrderState, m: int, source: int, target: int) -> bool:
    """Return whether one leaf can lose an entry and another gain one without a split or a merge."""
    spare, room = state.leaf[m, source, LEAST_LEAF] != NOTHING, state.leaf[m, target, LEAF - 1] == NOTHING
    return bool(source == target or (spare & room))


@kernel
def _carry_out(state: OrderState, plan: Indices) -> None:
    """Carry out the planned changes; each step first checks whether the tree or the images have changed since."""
    m, count = plan[-1, _MEMBER], plan[-1, _COUNT]
    for k in range(0, count, 2):
        old, new = np.uint64(plan[k, _ENTRY]), np.uint64(plan[k + 1, _ENTRY])
        position, image = int(new & np.uint64(0xFFFF_FFFF)), np.uint32(new >> np.uint64(32))
        current = state.image[m, position]
        if current == image:
            continue
        if not current or current != old >> np.uint64(32) or plan[-1, _INNER_CHANGES] != state.head[m, CHANGES]:
            place(state, m, position, image)
            continue
        if plan[-1, _LEAF_CHANGES] != state.head[m, CHANGES + 1]:
            _find_leaf(state, m, plan, k)
            _find_leaf(state, m, plan, k + 1)
        if _can_move(state, m, plan[k, _LEAF_AT], plan[k + 1, _LEAF_AT]):
            height = state.head[m, HEIGHT]
            _count_path(state, plan, k, height, -1)
            remove_leaf(state.leaf, leaf_row(state, m, plan[k, _LEAF_AT]), old)
            _count_path(state, plan, k + 1, height, 1)
            insert_leaf(state.leaf, leaf_row(state, m, plan[k + 1, _LEAF_AT]), new)
            state.image[m, position] = image
        else:
            place(state, m, position, image)


@kernel
def _update(state: OrderState, positions: Indices, keys: NDArray[np.float32]) -> None:
    plans = np.empty((2, *_PLAN), np.int64)
    width, parts = state.image.shape[1], -(-positions.shape[1] // _CHUNK)
    chunks = positions.shape[0] * parts
    for turn in range(chunks + 2 if chunks else 0):
        row, start = turn // parts, turn % parts * _CHUNK
        if turn < chunks:
            for b in range(start, min(start + _CHUNK, positions.shape[1])):
                request(state.image, row * width + max(positions[row, b], 0))
        if 0 < turn <= chunks:
            row, start = (turn - 1) // parts, (turn - 1) % parts * _CHUNK
            _make_plan(state, row, positions[row], keys[row], start, plans[turn & 1])
        if turn > 1:
            _carry_out(state, plans[1 - (turn & 1)])


@kernel
def order_update_all(state: OrderState, slots: Indices, keys: NDArray[np.float32]) -> None:
    """Set the `keys[M, B]` of `slots[M, B]` in order, skipping slots below 0.

    If ties go by age, slots that are not in the order are skipped too.
    """
    borrowed = borrow(state)
    if state.position_of.shape[1]:
        _update(borrowed, positions_of(borrowed, slots), keys)
    else:  # positions are slots; a copy would cost as much as the update
        _update(borrowed, slots, keys)


@kernel
def order_arrive_all(state: OrderState, slots: Indices, keys: NDArray[np.float32]) -> None:
    """Insert the new, newest occupants of `slots[M]` with their `keys[M]`, skipping slots below 0."""
    borrowed = borrow(state)
    positions = slots.copy().reshape((slots.size, 1))
    if state.position_of.shape[1]:
        for m in range(slots.size):
            if slots[m] >= 0:
                positions[m, 0] = take_position(borrowed, m, slots[m])
    _update(borrowed, positions, keys.reshape((keys.size, 1)))


@kernel
def _move_up(state: OrderState, m: int) -> None:
    """Move the used positions to the end and rebuild the tree."""
    free = state.image.shape[1]
    for position in range(free - 1, -1, -1):
        if state.image[m, position]:
            free -= 1
            slot = state.slot_at[m, position]
            state.image[m, free], state.slot_at[m, free] = state.image[m, position], slot
            state.position_of[m, slot] = free
    state.image[m, :free] = 0
    state.head[m, TAKEN] = free
    build(state, m)


@kernel
def take_position(state: OrderState, m: int, slot: int) -> int:
    """Remove a slot from the order and assign it the next position, that of the newest."""
    old = state.position_of[m, slot]
    if old >= 0:
        place(state, m, old, np.uint32(0))
    if state.head[m, TAKEN] == 0:
        _move_up(state, m)
    position = state.head[m, TAKEN] - 1
    state.head[m, TAKEN] = position
    state.slot_at[m, position], state.position_of[m, slot] = slot, position
    return int(position)


@kernel
def position_of(state: OrderState, m: int, slot: int) -> int:
    """Return a slot's position, −1 if it has none."""
    return int(state.position_of[m, slot] if state.position_of.shape[1] else np.int64(slot))


@kernel
def slot_at(state: OrderState, m: int, position: int) -> int:
    """Return the slot of a position; for a position out of range, as from an empty order, the slot of the last."""
    if not state.slot_at.shape[1]:
        return position
    return int(state.slot_at[m, min(position, state.slot_at.shape[1] - 1)])


@kernel
def positions_of(state: OrderState, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of `slots` `[M, B]`, −1 for slots below 0 and absent ones."""
    positions = np.empty(slots.shape, np.int64)
    for m in range(slots.shape[0]):
        for b in range(slots.shape[1]):
            positions[m, b] = position_of(state, m, slots[m, b]) if slots[m, b] >= 0 else -1
    return positions
