"""An exact order over buffer slots: which slot has rank r, after any change of a key.

Rank-based replay draws the slot at a rank, retention takes victims from the other end. Ranks are always current. This
file handles slots and float32 keys only. Ties go by lower slot, or by age, the newest first (`rank_ages`).

**Structure**: one B+-tree per member over 64-bit entries `image(key) << 32 | position`, all distinct; ascending entries
are descending keys, ties by lower position. A leaf is a row of 48 entries. An inner node holds for each of up to 32
children a lower bound of its entries, the number of entries before it, and its number. Rows begin on cache lines and
are padded with the largest value, so that work inside a node is a few vector instructions of fixed length without
branches (`node_vectors`). The padding also tells whether a node is full. Nodes are split or merged on the way down, so
that one pass suffices (`rank_tree`). A batch goes down together and remembers its way (`rank_batch`). Every node
but the root stays at least 14/32 or 23/48 full whatever happens, which bounds memory by 22.4 bytes per experience,
key included. Random updates take 18; as a full node first shares with its neighbour, a fill in sorted order (all keys
+inf) takes 14.

**Why**: an update takes 75 ns out of cache (AMD EPYC, Zen 5, 32 members of 1e5); plain loops over rows of 64 take 250.
`benchmarks/speed/bench_order.py` measures growth, victims and memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replaybench.data.kernel import kernel
from replaybench.data.records.lazy_column import LazyColumn
from replaybench.replay.orders.node_vectors import INNER, LEAF, borrow, count_before
from replaybench.replay.orders.rank_ages import position_of, positions_for, slot_at, take_position
from replaybench.replay.orders.rank_batch import order_arrive_all as order_arrive_all
from replaybench.replay.orders.rank_batch import order_select_many as order_select_many
from replaybench.replay.orders.rank_batch import order_update_all as order_update_all
from replaybench.replay.orders.rank_tree import (
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
    image_of,
    inner_row,
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
    """Rebuild a member from the keys at its positions `[P]`, NaN where there is none."""
    for position in range(keys.size):
        state.image[m, position] = 0 if np.isnan(keys[position]) else image_of(keys[position])
    build(state, m)


class RankOrder:
    """An order over the slots `[0, capacity)` of each member, all absent until set.

    Kernels take `state` and call the `order_` functions for one member at a time. Nothing is checked there: slots
    and ranks must be in range. Memory is reserved for the worst case, and touched only as nodes come into use.

    Args:
        members, capacity: M and C.
        by_age: whether of equal keys that of the newest occupant is first, instead of that in the lowest slot.
    """

    def __init__(self, members: int, capacity: int, by_age: bool = False) -> None:
        leaves = level = max(1, capacity // LEAST_LEAF)
        inner = 1
        while (level := level // LEAST_INNER) > 1:
            inner += level
        positions = positions_for(capacity) if by_age else capacity
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
        """Bytes of the keys, of their positions and of all nodes ever used."""
        inner, leaves = self.state.head[:, USED : USED + 2].sum(0)
        kept = self.state.image.nbytes + self.state.slot_at.nbytes + self.state.position_of.nbytes
        return int(kept + inner * INNER * (8 + 4 + 4) + leaves * LEAF * 8)

    def keys(self, slots: int | None = None) -> NDArray[np.float32]:
        """Return the keys `[M, C]` of the first `slots` slots (all), NaN for absent ones: the whole logical state."""
        return self._keys_at((slice(None), slice(slots)))

    def column(self, slots: int) -> LazyColumn:
        """Return the same keys as a column `[M, slots]` that computes its parts when asked."""
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
        """Rebuild from keys `[M, n ≤ C]`, NaN for absent slots; all ranks are then as when these were taken.

        Args:
            keys: the keys.
            serial: numbers `[M, n]` that ascend with the arrival of the slots' occupants, for orders with ties by age;
                the slots' own if not given.

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
        """Give a member's slots the last positions, the oldest the very last; return the keys at all positions."""
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
