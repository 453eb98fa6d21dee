"""Buffer slots in exact order of a float32 key, such as |TD error|, largest first. Updates and look-ups take O(log N).

Slots with equal keys are ordered by slot, the lower first, or by the age of their experiences, the newest first.

Each buffer has a B+-tree over distinct 64-bit entries. The upper 32 bits ascend as keys descend. The lower 32 bits are
the slot or, if ties are ordered by age, the complement of the experience's number. A leaf is a row of 48 entries. An
inner node holds up to 32 children, with a lower bound and the number of entries of each child. Rows are padded with the
largest value, so that work inside a node is a few loops of fixed length.

Full nodes are split on the way down. Nodes are never merged. If no leaf is free, the tree is rebuilt by sorting, which
happens at most once in N/5 insertions. Keys and nodes take at most 21 bytes per slot, 12 more if ties are ordered by
age.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from replaybench.data.record import LazyColumn
from replaybench.replay.storage.columns import Indices, borrow
from replaybench.runtime.arrays import Floats32, Integers, Integers32
from replaybench.runtime.kernel import kernel

LEAF: Final = 48
"""Number of entries of a full leaf node."""
INNER: Final = 32
"""Number of children of a full inner node."""
NOTHING: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # pads `leaf` and `bound`; no entry is as large
ROOT, HEIGHT, SIZE, NODES, LEAVES, NEWEST = range(6)
"""Columns of `OrderState.head`."""


class OrderState(NamedTuple):
    """The arrays of M rank orders, which sort the slots of a buffer by a key, for compiled functions.

    Each order is a B+-tree with L leaves and I inner nodes over C buffer slots.

    Attributes:
        image: Value of `image_of` for the key of each slot, or 0 if the slot has no key; uint32, shape `[M, C]`.
        number: Number of the experience in each slot, ascending in order of arrival; uint32, shape `[M, C]`. Empty if
            ties are ordered by slot.
        leaf: Ascending entries of each leaf; uint64, shape `[M, L, LEAF]`.
        slot: Slot of each entry; int32, shape `[M, L, LEAF]`. Empty if ties are ordered by slot, because entries then
            contain the slot.
        bound: Lower bound of the entries of each child; uint64, shape `[M, I, INNER]`.
        size: Number of entries under each child; int32, shape `[M, I, INNER]`.
        child: Index of each child; int32, shape `[M, I, INNER]`. The children of the lowest inner nodes are leaves.
        head: Root, height, number of entries, number of inner nodes, number of leaves, and number of the newest
            experience; int64, shape `[M, 6]`.
    """

    image: NDArray[np.uint32]
    number: NDArray[np.uint32]
    leaf: NDArray[np.uint64]
    slot: Integers32
    bound: NDArray[np.uint64]
    size: Integers32
    child: Integers32
    head: Integers


@kernel
def image_of(key: float) -> np.uint32:
    """Map a float32 key to a 32-bit integer that ascends as keys descend.

    NaN counts as +inf. Applying the map to the bits of a result gives the key's bits again. No key is mapped to 0, so 0
    marks absent keys.
    """
    value = np.float32(key) + np.float32(0.0)  # turns -0.0 into 0.0
    bits = np.float32(np.inf if np.isnan(value) else value).view(np.uint32)
    return bits if bits >> np.uint32(31) else np.uint32(bits ^ np.uint32(0x7FFF_FFFF))


@njit(inline="always")
def _entry(state: OrderState, m: int, slot: int) -> np.uint64:
    high, low = np.uint64(state.image[m, slot]) << np.uint64(32), np.uint64(slot)
    if state.number.shape[1]:
        low = np.uint64(0xFFFF_FFFF) - np.uint64(state.number[m, slot])
    return high | low


@kernel
def _up_to(numbers: NDArray[np.uint64], m: int, node: int, entry: np.uint64) -> int:
    count = 0
    for j in range(numbers.shape[2]):
        count += numbers[m, node, j] <= entry
    return count


@kernel
def _halve(left: np.ndarray, right: np.ndarray) -> None:
    """Move the upper half of row `left` to the lower half of row `right`. Pad both rows with the largest value."""
    half = left.size // 2
    for j in range(half):
        right[j] = left[half + j]
        left[half + j] = right[half + j] = left.dtype.type(-1)


@kernel
def _make_room(row: np.ndarray, place: int) -> None:
    for j in range(row.size - 1, place, -1):
        row[j] = row[j - 1]


@kernel
def _split(state: OrderState, m: int, parent: int, i: int, leaf: bool) -> None:
    """Split the full child i of a node that is not full, and move its upper half to a new node after it."""
    left, right = state.child[m, parent, i], state.head[m, LEAVES if leaf else NODES]
    state.head[m, LEAVES if leaf else NODES] += 1
    _make_room(state.bound[m, parent], i + 1)
    _make_room(state.size[m, parent], i + 1)
    _make_room(state.child[m, parent], i + 1)
    state.child[m, parent, i + 1] = right
    if leaf:
        _halve(state.leaf[m, left], state.leaf[m, right])
        if state.slot.shape[1]:
            _halve(state.slot[m, left], state.slot[m, right])
        state.bound[m, parent, i + 1], state.size[m, parent, i + 1] = state.leaf[m, right, 0], LEAF // 2
    else:
        _halve(state.bound[m, left], state.bound[m, right])
        _halve(state.size[m, left], state.size[m, right])
        _halve(state.child[m, left], state.child[m, right])
        state.bound[m, parent, i + 1] = state.bound[m, right, 0]
        state.size[m, parent, i + 1] = state.size[m, right, : INNER // 2].sum()
    state.size[m, parent, i] -= state.size[m, parent, i + 1]


@njit(inline="always")
def _insert(state: OrderState, m: int, slot: int) -> None:
    entry, node = _entry(state, m, slot), state.head[m, ROOT]
    if (state.bound[m, node, INNER - 1] if state.head[m, HEIGHT] else state.leaf[m, node, LEAF - 1]) != NOTHING:
        node, root = state.head[m, NODES], node
        state.bound[m, node, 0], state.bound[m, node, 1:] = 0, NOTHING
        state.size[m, node, 0], state.child[m, node, 0] = state.head[m, SIZE], root
        state.head[m, ROOT] = node
        state.head[m, NODES] += 1
        state.head[m, HEIGHT] += 1
    for level in range(state.head[m, HEIGHT] - 1, -1, -1):
        i = _up_to(state.bound, m, node, entry) - 1
        child = state.child[m, node, i]
        if (state.bound[m, child, INNER - 1] if level else state.leaf[m, child, LEAF - 1]) != NOTHING:
            _split(state, m, node, i, level == 0)
            i += entry >= state.bound[m, node, i + 1]
        state.size[m, node, i] += 1
        node = state.child[m, node, i]
    if state.slot.shape[1]:
        i = _up_to(state.leaf, m, node, entry)
        _make_room(state.slot[m, node], i)
        state.slot[m, node, i] = slot
    leaf = state.leaf
    for j in range(LEAF - 1, 0, -1):  # vectorised, unlike a loop that begins at the entry's place
        leaf[m, node, j] = min(leaf[m, node, j], max(leaf[m, node, j - 1], entry))
    leaf[m, node, 0] = min(leaf[m, node, 0], entry)
    state.head[m, SIZE] += 1


@njit(inline="always")
def _remove(state: OrderState, m: int, slot: int) -> None:
    entry, node = _entry(state, m, slot), state.head[m, ROOT]
    for _ in range(state.head[m, HEIGHT]):
        i = _up_to(state.bound, m, node, entry) - 1
        state.size[m, node, i] -= 1
        node = state.child[m, node, i]
    if state.slot.shape[1]:
        for j in range(_up_to(state.leaf, m, node, entry) - 1, LEAF - 1):
            state.slot[m, node, j] = state.slot[m, node, j + 1]
    leaf = state.leaf
    for j in range(LEAF - 1):
        leaf[m, node, j] = leaf[m, node, j] if leaf[m, node, j] < entry else leaf[m, node, j + 1]
    leaf[m, node, LEAF - 1] = NOTHING
    state.head[m, SIZE] -= 1


@njit(inline="always")
def _set(state: OrderState, m: int, slot: int, image: np.uint32, arrives: bool) -> None:
    """Set the key of a slot, given as `image_of(key)`. `arrives` is whether the experience in the slot is new."""
    arrives &= state.number.shape[1] > 0
    if state.image[m, slot] == image and not arrives:
        return
    if state.image[m, slot]:
        _remove(state, m, slot)
    if arrives:
        state.head[m, NEWEST] += 1
        state.number[m, slot] = state.head[m, NEWEST]
    state.image[m, slot] = image
    if state.head[m, LEAVES] < state.leaf.shape[1]:
        _insert(state, m, slot)
    else:
        _build(state, m)


@kernel
def _build(state: OrderState, m: int) -> None:
    """Build the m-th tree from its keys by sorting the entries and building the levels from the leaves upwards."""
    slots, head = np.flatnonzero(state.image[m]), state.head[m]
    entry = np.zeros(slots.size + 1, np.uint64)
    for k in range(slots.size):
        entry[k] = _entry(state, m, slots[k])
    order = np.argsort(entry[:-1])
    entry[:-1], slots = entry[order], slots[order]
    size, child, count = np.ones(slots.size + 1, np.int64), np.zeros(slots.size + 1, np.int64), slots.size
    head[HEIGHT], head[SIZE], head[NODES], head[LEAVES] = -1, count, 0, 0
    while head[HEIGHT] < 0 or count > 1:
        leaf = head[HEIGHT] < 0
        width = LEAF if leaf else INNER
        nodes = max(1, -(-count // width), count // (width * 11 // 16))  # about as wide as random updates leave them
        for g in range(nodes):
            start, stop = g * count // nodes, (g + 1) * count // nodes
            node = head[LEAVES if leaf else NODES]
            head[LEAVES if leaf else NODES] += 1
            row, held = state.leaf[m, node] if leaf else state.bound[m, node], 0
            row[stop - start :] = NOTHING
            for j in range(stop - start):
                row[j], held = entry[start + j], held + size[start + j]
                if not leaf:
                    state.size[m, node, j], state.child[m, node, j] = size[start + j], child[start + j]
                elif state.slot.shape[1]:
                    state.slot[m, node, j] = slots[start + j]
            entry[g], size[g], child[g] = entry[start], held, node
        entry[0], count = 0, nodes
        head[HEIGHT] += 1
    head[ROOT] = child[0]


@kernel
def order_select(state: OrderState, m: int, rank: int) -> int:
    """Return the buffer slot at a rank of the m-th order. Rank 0 belongs to the largest key."""
    borrowed = borrow(state)
    node = borrowed.head[m, ROOT]
    for _ in range(borrowed.head[m, HEIGHT]):
        i = 0
        while rank >= borrowed.size[m, node, i]:
            rank -= borrowed.size[m, node, i]
            i += 1
        node = borrowed.child[m, node, i]
    if state.slot.shape[1]:
        return int(borrowed.slot[m, node, rank])
    return int(np.int64(borrowed.leaf[m, node, rank] & np.uint64(0xFFFF_FFFF)))


@kernel
def order_update_all(state: OrderState, slots: Indices, keys: Floats32) -> None:
    """Set the sort keys of B slots in each of M buffers, given as `slots` `[M, B]` and `keys` `[M, B]`.

    Negative slots are skipped. NaN counts as +inf. If a slot occurs twice, its last key is used.
    """
    borrowed = borrow(state)
    for m in range(slots.shape[0]):
        for b in range(slots.shape[1]):
            if slots[m, b] >= 0:
                _set(borrowed, m, slots[m, b], image_of(keys[m, b]), False)


@kernel
def order_arrive_all(state: OrderState, slots: Indices, keys: Floats32) -> None:
    """Set the sort key of the newest experience in each buffer, which was stored in slot `slots[m]`.

    Negative slots are skipped. NaN counts as +inf.
    """
    borrowed = borrow(state)
    for m in range(slots.size):
        if slots[m] >= 0:
            _set(borrowed, m, slots[m], image_of(keys[m]), True)


@kernel
def _load(state: OrderState, m: int, keys: Floats32) -> None:
    """Rebuild the m-th tree from the keys of the first slots. NaN marks slots without a key."""
    state.image[m] = 0
    for slot in range(keys.size):
        if not np.isnan(keys[slot]):
            state.image[m, slot] = image_of(keys[slot])
    _build(state, m)


class RankOrder:
    """The slots of each of M buffers in descending order of a sort key, such as the absolute TD error.

    A slot is not part of the order until its key is set. Compiled functions take `state` and call the functions whose
    names begin with `order_`. These functions do not check bounds, so slots and ranks must be in range. Memory is
    reserved for the worst case, but the operating system allocates it on first use.

    Args:
        members: Number of members M, each with its own buffer.
        capacity: Number of slots C of each member.
        by_age: Whether equal keys are ordered by age, the newest first, instead of by slot.
    """

    def __init__(self, members: int, capacity: int, by_age: bool = False) -> None:
        leaves = capacity // 25 + 2
        inner = leaves // 15 + 2  # nodes but the root have at least 16 children
        self.state: Final = OrderState(
            image=np.zeros((members, capacity), np.uint32),
            number=np.zeros((members, capacity * by_age), np.uint32),
            leaf=np.empty((members, leaves, LEAF), np.uint64),
            slot=np.zeros((members, leaves * by_age, LEAF), np.int32),
            bound=np.empty((members, inner, INNER), np.uint64),
            size=np.zeros((members, inner, INNER), np.int32),
            child=np.zeros((members, inner, INNER), np.int32),
            head=np.zeros((members, 6), np.int64),
        )
        self.state.head[:, LEAVES] = 1
        self.state.leaf[:, 0] = NOTHING

    def keys(self, slots: int | None = None) -> Floats32:
        """Return the keys of the first `slots` slots, by default all, shape `[M, slots]`. NaN marks absent keys."""
        return self._keys_at((slice(None), slice(slots)))

    def column(self, slots: int) -> LazyColumn:
        """Return the keys of the first `slots` slots, `[M, slots]`, as an array whose parts are computed on request."""
        return LazyColumn((len(self.state.image), slots), np.dtype(np.float32), self._keys_at)

    def _keys_at(self, where: tuple[int | slice, slice]) -> Floats32:
        image = self.state.image[where]
        keys: Floats32 = np.where(image >> 31, image, image ^ 0x7FFF_FFFF).view(np.float32)
        return keys

    def load_keys(self, keys: ArrayLike, serial: ArrayLike) -> None:
        """Rebuild the order from saved keys, with the same ranks as in the saved order.

        Args:
            keys: Keys of the first n ≤ C slots of each member, shape `[M, n]`. NaN marks slots without a key.
            serial: Number of the experience in each slot, ascending in order of arrival; shape `[M, n]`. It is used if
                ties are ordered by age.

        Raises:
            ValueError: The shape of the keys does not fit the order.
        """
        array, shape = np.asarray(keys, np.float32), self.state.image.shape
        if array.ndim != 2 or len(array) != shape[0] or array.shape[1] > shape[1]:
            raise ValueError(f"keys have shape {array.shape}, this order {shape}")
        if self.state.number.size:
            self.state.number[:, : array.shape[1]] = serial
            self.state.head[:, NEWEST] = self.state.number.max(axis=1)
        for m, row in enumerate(array):
            _load(self.state, m, row)
