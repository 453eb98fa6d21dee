"""An exact order over buffer slots: which slot has rank r, and which rank has slot s, after any single change.

Rank-based replay draws the slot at a rank, retention takes victims from the other end; ranks are always current,
nothing is re-sorted now and then. This file knows slots and float32 keys, nothing of what they stand for.

**Structure**: one B+-tree per member over 64-bit entries `image(key) << 32 | slot`, all distinct; ascending entries
are descending keys, ties by lower slot. A leaf is a row of 64 entries. An inner node holds for each child a lower
bound of its entries, the number of entries before it, and its number. Rows begin on cache lines and are padded
with the largest value, so that work inside a node is a count or a shift of fixed length without branches: a few
vector instructions. The padding also tells whether a node is full. Nodes are split or merged on the way down,
so that one pass suffices. Every node but the root stays at least 30/64 full whatever happens, which bounds
memory by 22.3 bytes per experience, key included; as a full node first shares with its neighbour, filling in
sorted order (all keys +inf) takes 18.

**Why**, in million items drawn and re-keyed per second on one core of an AMD EPYC, variants interleaved: in cache 7.0;
2.8 with Numba's reference counts on the arrays (hence `borrow`), 5.6 with rows across cache lines, 1.8 with rows
of 32 (too short for the compiler's vectors), 4.6 with rows of 128. At 32 members of 1e5, out of cache, an update waits
for its rows: 2.1, but 1.0 if `order_update` did not ask for the rows of a whole batch before it changes any.
`benchmarks/bench_order.py` compares with cpprb.

Exact sums of priorities fit in as one float64 per child beside `before`, written at the same places.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.computed import Computed
from replaybench.replay.order_tree import (
    HEIGHT,
    LEAST,
    NOTHING,
    ROOT,
    SIZE,
    WIDTH,
    OrderState,
    borrow,
    column_at,
    column_of,
    delete,
    entry_of,
    image_of,
    insert,
    new_node,
    request,
    rows,
    write_node,
)

_TYPICAL: Final = 44  # width after a bulk load, about that of random updates
_AHEAD: Final = 16  # updates whose rows are requested together; more would not fit the first-level cache


@kernel
def order_size(state: OrderState, m: int) -> int:
    """Return how many slots of member m are in the order."""
    return int(state.head[m, SIZE])


@kernel
def order_remove(state: OrderState, m: int, slot: int) -> None:
    """Take a slot out of the order; nothing happens if it is absent."""
    borrowed = borrow(state)
    image = borrowed.image[m, slot]
    if image:
        delete(borrowed, m, entry_of(image, slot))
        borrowed.image[m, slot] = 0


@kernel
def order_set(state: OrderState, m: int, slot: int, key: float) -> None:
    """Insert a slot, or move it to its new key; NaN counts as +inf."""
    borrowed = borrow(state)
    image = image_of(key)
    if borrowed.image[m, slot] != image:
        order_remove(borrowed, m, slot)
        insert(borrowed, m, entry_of(image, slot))
        borrowed.image[m, slot] = image


@kernel
def _request_leaf(state: OrderState, m: int, entry: np.uint64) -> None:
    node = int(state.head[m, ROOT])
    for _ in range(state.head[m, HEIGHT]):
        node = int(state.child[m, node, column_of(state, m, node, entry)])
    row = (m * state.entry.shape[1] + node) * WIDTH
    for j in range(0, WIDTH, 8):
        request(state.entry, row + j)


@kernel
def order_update(state: OrderState, m: int, slots: NDArray[np.int64], keys: NDArray[np.float32]) -> None:
    """Do `order_set` for each of `slots[B]` and `keys[B]` in turn, skipping slots below 0; faster out of cache."""
    borrowed = borrow(state)
    for start in range(0, slots.size, _AHEAD):
        stop = min(start + _AHEAD, slots.size)
        for b in range(start, stop):
            if slots[b] >= 0:
                _request_leaf(borrowed, m, entry_of(borrowed.image[m, slots[b]], slots[b]))
                _request_leaf(borrowed, m, entry_of(image_of(keys[b]), slots[b]))
        for b in range(start, stop):
            if slots[b] >= 0:
                order_set(borrowed, m, slots[b], keys[b])


@kernel
def order_select(state: OrderState, m: int, rank: int) -> int:
    """Return the slot at a rank in [0, size): rank 0 is the largest key, ties go by lower slot."""
    node = int(state.head[m, ROOT])
    within = np.int32(rank)
    for _ in range(state.head[m, HEIGHT]):
        i = column_at(state, m, node, within)
        within = np.int32(within - state.before[m, node, i])
        node = int(state.child[m, node, i])
    return int(state.entry[m, node, within] & np.uint64(0xFFFF_FFFF))


@kernel
def order_rank(state: OrderState, m: int, slot: int) -> int:
    """Return the rank of a slot, -1 if it is absent."""
    image = state.image[m, slot]
    entry = entry_of(image, slot)
    node = int(state.head[m, ROOT])
    rank = 0
    for _ in range(state.head[m, HEIGHT]):
        i = column_of(state, m, node, entry)
        rank += state.before[m, node, i]
        node = int(state.child[m, node, i])
    for j in range(WIDTH):
        rank += state.entry[m, node, j] < entry
    return rank if image else -1


@kernel
def _load(state: OrderState, m: int, keys: NDArray[np.float32]) -> None:
    """Rebuild a member from its keys `[C]`, NaN for absent slots: sort, then build level upon level."""
    entry = np.empty(keys.size + 1, np.uint64)
    count = 0
    for slot in range(keys.size):
        state.image[m, slot] = 0 if np.isnan(keys[slot]) else image_of(keys[slot])
        if state.image[m, slot]:
            entry[count] = entry_of(state.image[m, slot], slot)
            count += 1
    entry[:count].sort()
    before, child = np.arange(count + 1).astype(np.int32), np.empty(count + 1, np.int32)
    state.head[m] = (-1, -1, count, -1, -1, 0, 0)
    while state.head[m, HEIGHT] < 0 or count > 1:
        nodes = max(1, -(-count // WIDTH), count // _TYPICAL)
        for g in range(nodes):
            start, stop = g * count // nodes, (g + 1) * count // nodes
            node = new_node(state, m, state.head[m, HEIGHT] < 0)
            write_node(state, m, node, entry[start:stop], before[start:stop], child[start:stop])
            entry[g], before[g], child[g] = entry[start], before[start], node
        entry[0] = 0
        count = nodes
        state.head[m, HEIGHT] += 1
    state.head[m, ROOT] = child[0]


class Order:
    """An order over the slots `[0, capacity)` of each member, all absent until set.

    Kernels take `state` and call the `order_` functions for one member at a time. Nothing is checked there: slots
    and ranks must be in range. Memory is reserved for the worst case, and touched only as nodes come into use.
    """

    def __init__(self, members: int, capacity: int) -> None:
        leaves = level = max(1, capacity // LEAST)
        inner = 1
        while (level := level // LEAST) > 1:
            inner += level
        self.state: Final = OrderState(
            image=np.zeros((members, capacity), np.uint32),
            entry=rows(members, inner + leaves, np.uint64),
            before=rows(members, inner, np.int32),
            child=rows(members, inner, np.int32),
            head=np.empty((members, 7), np.int64),
        )
        self.state.head[:] = inner, 0, 0, -1, -1, 0, 1
        self.state.entry[:, inner] = NOTHING

    def keys(self, slots: int | None = None) -> NDArray[np.float32]:
        """Return the keys `[M, C]` of the first `slots` slots (all), NaN for absent ones: the whole logical state."""
        return self._keys_at((slice(None), slice(slots)))

    def column(self, slots: int) -> Computed:
        """Return the same keys as a column `[M, slots]` that computes its parts when asked."""
        return Computed((len(self.state.image), slots), np.dtype(np.float32), self._keys_at)

    def _keys_at(self, where: Any) -> NDArray[np.float32]:
        image = self.state.image[where]
        keys: NDArray[np.float32] = np.where(image >> 31, image, image ^ 0x7FFF_FFFF).view(np.float32)
        return keys

    def load_keys(self, keys: ArrayLike) -> None:
        """Rebuild from keys `[M, n ≤ C]`, NaN for absent slots; all ranks are then as when these were taken.

        Raises:
            ValueError: the shape does not fit.
        """
        array = np.asarray(keys, np.float32)
        if array.ndim != 2 or len(array) != len(self.state.image) or array.shape[1] > self.state.image.shape[1]:
            raise ValueError(f"keys have shape {array.shape}, this order {self.state.image.shape}")
        self.state.image[:, array.shape[1] :] = 0
        for m, row in enumerate(array):
            _load(self.state, m, row)
