"""An exact order over buffer slots: which slot has rank r, and which rank has slot s, after any single change.

Rank-based replay draws the slot at a rank, retention takes victims from the other end; ranks are always current,
nothing is re-sorted now and then. This file knows slots and float32 keys, nothing of what they stand for.

**Structure**: one B+-tree per member over 64-bit entries `image(key) << 32 | slot`, all distinct; ascending entries
are descending keys, ties by lower slot. A leaf is a row of 48 entries. An inner node holds for each of up to 32
children a lower bound of its entries, the number of entries before it, and its number. Rows begin on cache lines and
are padded with the largest value, so that work inside a node is a few vector instructions of fixed length without
branches (`order_rows`). The padding also tells whether a node is full. Nodes are split or merged on the way down, so
that one pass suffices (`order_tree`). A batch goes down together and remembers its way (`order_batch`). Every node
but the root stays at least 14/32 or 23/48 full whatever happens, which bounds memory by 22.4 bytes per experience,
key included. Random updates take 18; as a full node first shares with its neighbour, a fill in sorted order (all keys
+inf) takes 14.

**Why**, in ns per update, medians of interleaved calls on one core of an AMD EPYC (Zen 5), 32 members of 1e5, out of
cache, batches of 256: 250 with loops over rows of 64 and four ways down the tree, two to ask for rows and two to change
them; 102 with vectors of fixed length, images asked for in advance and the way down remembered; 86 with stages that
overlap; 75 with rows of 48 and 32. Leaves of 64 and 32 took 10 and 16 more, at 1e6 43 and 15 more; leaves of 16 are
split too often. Of 1e4 in cache an update takes 46, and took 148. Drawing takes 13 (59 one by one). Proportional
priorities (`sums`) take 52 to draw and 23 to update. `benchmarks/bench_order.py` measures growth, victims and memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.data.kernel import kernel
from replaybench.data.records.lazy_column import Computed
from replaybench.replay.orders.node_vectors import INNER, LEAF, borrow, count_before, count_leaf
from replaybench.replay.orders.rank_batch import order_select_many as order_select_many
from replaybench.replay.orders.rank_batch import order_update as order_update
from replaybench.replay.orders.rank_batch import order_update_all as order_update_all
from replaybench.replay.orders.rank_tree import (
    HEIGHT,
    LEAST_INNER,
    LEAST_LEAF,
    NOTHING,
    ROOT,
    SIZE,
    USED,
    OrderState,
    column_of,
    entry_of,
    image_of,
    inner_row,
    leaf_row,
    new_node,
    place,
    rows,
)


@kernel
def order_size(state: OrderState, m: int) -> int:
    """Return how many slots of member m are in the order."""
    return int(state.head[m, SIZE])


@kernel
def order_remove(state: OrderState, m: int, slot: int) -> None:
    """Take a slot out of the order; nothing happens if it is absent."""
    place(borrow(state), m, slot, np.uint32(0))


@kernel
def order_set(state: OrderState, m: int, slot: int, key: float) -> None:
    """Insert a slot, or move it to its new key; NaN counts as +inf."""
    place(borrow(state), m, slot, image_of(key))


@kernel
def order_select(state: OrderState, m: int, rank: int) -> int:
    """Return the slot at a rank in [0, size): rank 0 is the largest key, ties go by lower slot."""
    borrowed = borrow(state)
    node, within = int(borrowed.head[m, ROOT]), np.int32(rank)
    for _ in range(borrowed.head[m, HEIGHT]):
        i = int(count_before(borrowed.before, inner_row(borrowed, m, node), within)) - 1
        within = np.int32(within - borrowed.before[m, node, i])
        node = int(borrowed.child[m, node, i])
    return int(borrowed.leaf[m, node, within] & np.uint64(0xFFFF_FFFF))


@kernel
def order_rank(state: OrderState, m: int, slot: int) -> int:
    """Return the rank of a slot, -1 if it is absent."""
    borrowed = borrow(state)
    image = borrowed.image[m, slot]
    entry, node, rank = entry_of(image, slot), int(borrowed.head[m, ROOT]), 0
    for _ in range(borrowed.head[m, HEIGHT]):
        i = column_of(borrowed, inner_row(borrowed, m, node), entry)
        rank += borrowed.before[m, node, i]
        node = int(borrowed.child[m, node, i])
    rank += int(count_leaf(borrowed.leaf, leaf_row(borrowed, m, node), entry)) - 1
    return rank if image else -1


@kernel
def _load_level(
    state: OrderState, m: int, entry: NDArray[np.uint64], before: NDArray[np.int32], child: NDArray[np.int32]
) -> int:
    """Build the next level over these columns, replace them by one for each of its nodes, and return how many."""
    leaf, count = state.head[m, HEIGHT] < 0, entry.size
    width = LEAF if leaf else INNER
    nodes = max(1, -(-count // width), count // (width * 11 // 16))  # about as wide as random updates leave them
    for g in range(nodes):
        start, stop = g * count // nodes, (g + 1) * count // nodes
        node = new_node(state, m, leaf)
        for j in range(stop - start):
            if leaf:
                state.leaf[m, node, j] = entry[start + j]
            else:
                state.bound[m, node, j], state.child[m, node, j] = entry[start + j], child[start + j]
                state.before[m, node, j] = before[start + j] - before[start]
        if count:
            entry[g], before[g] = entry[start], before[start]
        child[g] = node
    state.head[m, HEIGHT] += 1
    return nodes


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
    before, child = np.arange(count).astype(np.int32), np.empty(max(count, 1), np.int32)
    state.head[m] = (-1, -1, count, 0, 0, -1, -1, 0, 0)
    while state.head[m, HEIGHT] < 0 or count > 1:
        count = _load_level(state, m, entry[:count], before, child)
        entry[0] = 0
    state.head[m, ROOT] = child[0]


class Order:
    """An order over the slots `[0, capacity)` of each member, all absent until set.

    Kernels take `state` and call the `order_` functions for one member at a time. Nothing is checked there: slots
    and ranks must be in range. Memory is reserved for the worst case, and touched only as nodes come into use.
    """

    def __init__(self, members: int, capacity: int) -> None:
        leaves = level = max(1, capacity // LEAST_LEAF)
        inner = 1
        while (level := level // LEAST_INNER) > 1:
            inner += level
        self.state: Final = OrderState(
            image=np.zeros((members, capacity), np.uint32),
            leaf=rows(members, leaves, LEAF, np.uint64),
            bound=rows(members, inner, INNER, np.uint64),
            before=rows(members, inner, INNER, np.int32),
            child=rows(members, inner, INNER, np.int32),
            head=np.empty((members, 9), np.int64),
        )
        self.state.head[:] = 0, 0, 0, 0, 0, -1, -1, 0, 1
        self.state.leaf[:, 0] = NOTHING

    @property
    def used_bytes(self) -> int:
        """Bytes of the keys and of all nodes ever used."""
        inner, leaves = self.state.head[:, USED : USED + 2].sum(0)
        return int(self.state.image.nbytes + inner * INNER * (8 + 4 + 4) + leaves * LEAF * 8)

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
