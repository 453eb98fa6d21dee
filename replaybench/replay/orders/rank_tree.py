"""The B+-tree of `replaybench.replay.orders.rank_order`: search, insertion, splits and merges of nodes.

In all functions `leaf` is true for leaves and false for inner nodes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import INNER, LEAF, add_after, count_inner, count_leaf, insert_leaf, remove_leaf
from replaybench.runtime.kernel import kernel

LEAST_LEAF: Final = 23
LEAST_INNER: Final = 14
"""Fewest entries or children of any node but the root; two such nodes fit into one with room to spare."""

_SHARES_LEAF: Final = 37  # a full node shares with a neighbour up to this wide; next to a wider one it splits
_SHARES_INNER: Final = 25
NOTHING: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # pads `leaf` and `bound`; no key has this image
_FAR: Final = np.int32(0x7FFF_FFFF)  # pads `before`

# Columns of `head`; CHANGES, FREE and USED are two, for inner nodes and leaves.
ROOT, HEIGHT, SIZE, CHANGES, FREE, USED, TAKEN = 0, 1, 2, 3, 5, 7, 9


class OrderState(NamedTuple):
    """The arrays of M members with C slots, P positions, L leaves and I inner nodes each, as kernels receive them.

    Positions are slots, unless ties go by age (`replaybench.replay.orders.rank_order`).

    Attributes:
        image: uint32 `[M, P]`, the key at each position as `image_of` writes it, 0 where there is none.
        leaf: uint64 `[M, L, LEAF]`, ascending entries.
        bound: uint64 `[M, I, INNER]`, lower bounds of the children's entries.
        before: int32 `[M, I, INNER]`, how many entries lie under earlier children of the same node.
        child: int32 `[M, I, INNER]`, node numbers: leaves below the lowest inner nodes, else inner nodes.
        head: int64 `[M, 10]`, root, height, size, and for inner nodes and leaves each: how often one was split, merged
            or evened out, the first free one, and the number ever used; last, the position taken last.
        slot_at: int32 `[M, P]`, the slot that took each position; empty if ties do not go by age.
        position_of: int32 `[M, C]`, each slot's position, −1 where the slot is absent; empty likewise.
    """

    image: NDArray[np.uint32]
    leaf: NDArray[np.uint64]
    bound: NDArray[np.uint64]
    before: NDArray[np.int32]
    child: NDArray[np.int32]
    head: NDArray[np.int64]
    slot_at: NDArray[np.int32]
    position_of: NDArray[np.int32]


@kernel
def image_of(key: float) -> np.uint32:
    """Map a float32 key to 32 bits that ascend as keys descend; NaN counts as +inf.

    On bits the map is its own inverse. Only a NaN could have the image 0, so 0 marks absent keys.
    """
    value = np.float32(key) + np.float32(0.0)  # turns -0.0 into 0.0
    bits = np.float32(np.inf if np.isnan(value) else value).view(np.uint32)
    return bits if bits >> np.uint32(31) else np.uint32(bits ^ np.uint32(0x7FFF_FFFF))


@kernel
def entry_of(image: np.uint32, position: int) -> np.uint64:
    """Return the entry that the tree sorts: the image of a key, then the position."""
    return (np.uint64(image) << np.uint64(32)) | np.uint64(position)


@kernel
def leaf_row(state: OrderState, m: int, node: int) -> int:
    """Return the flat position of a leaf's first entry."""
    return int(m * state.leaf.shape[1] + node) * LEAF


@kernel
def inner_row(state: OrderState, m: int, node: int) -> int:
    """Return the flat position of an inner node's first child."""
    return int(m * state.child.shape[1] + node) * INNER


@kernel
def column_of(state: OrderState, row: int, entry: np.uint64) -> int:
    """Return which child of the inner node at a position contains this entry, or would contain it."""
    return int(count_inner(state.bound, row, entry)) - 1


@kernel
def _width(state: OrderState, m: int, node: int, leaf: bool) -> int:
    last = np.uint64(NOTHING - np.uint64(1))
    if leaf:
        return int(count_leaf(state.leaf, leaf_row(state, m, node), last))
    return int(count_inner(state.bound, inner_row(state, m, node), last))


@kernel
def _full(state: OrderState, m: int, node: int, leaf: bool) -> bool:
    return bool((state.leaf[m, node, LEAF - 1] if leaf else state.bound[m, node, INNER - 1]) != NOTHING)


@kernel
def _least(state: OrderState, m: int, node: int, leaf: bool) -> bool:
    return bool((state.leaf[m, node, LEAST_LEAF] if leaf else state.bound[m, node, LEAST_INNER]) == NOTHING)


@kernel
def new_node(state: OrderState, m: int, leaf: bool) -> int:
    """Take a node from the free list, else the next untouched one, and empty it."""
    node = int(state.head[m, FREE + leaf])
    if node >= 0:
        state.head[m, FREE + leaf] = np.int64(state.leaf[m, node, 0] if leaf else state.bound[m, node, 0]) - 1
    else:
        node = int(state.head[m, USED + leaf])
        state.head[m, USED + leaf] += 1
    _blank(state, m, leaf, node, 0, LEAF if leaf else INNER)
    return node


@kernel
def _discard(state: OrderState, m: int, node: int, leaf: bool) -> None:
    entry = state.leaf if leaf else state.bound
    entry[m, node, 0] = np.uint64(state.head[m, FREE + leaf] + 1)
    state.head[m, FREE + leaf] = node


@kernel
def _blank(state: OrderState, m: int, leaf: bool, node: int, start: int, count: int) -> None:
    for j in range(start, start + count):
        if leaf:
            state.leaf[m, node, j] = NOTHING
        else:
            state.bound[m, node, j], state.before[m, node, j] = NOTHING, _FAR


@kernel
def _move(
    state: OrderState, m: int, leaf: bool, source: int, start: int, target: int, to: int, count: int, lift: int
) -> None:
    """Copy columns within a node or to another one, and increase their counts of earlier entries."""
    for n in range(count):
        j = count - 1 - n if to > start else n
        if leaf:
            state.leaf[m, target, to + j] = state.leaf[m, source, start + j]
        else:
            state.bound[m, target, to + j] = state.bound[m, source, start + j]
            state.before[m, target, to + j] = state.before[m, source, start + j] + np.int32(lift)
            state.child[m, target, to + j] = state.child[m, source, start + j]


@kernel
def _widen(state: OrderState, m: int, leaf: bool, left: int, right: int, size: int, gain: int) -> int:
    """Move the first `gain` columns of `right` to `left`, which has `size` entries; return its new size."""
    a, b = _width(state, m, left, leaf), _width(state, m, right, leaf)
    cut = gain if leaf else int(state.before[m, right, gain]) if gain < b else 0
    _move(state, m, leaf, right, 0, left, a, gain, size)
    _move(state, m, leaf, right, gain, right, 0, b - gain, -cut)
    _blank(state, m, leaf, right, b - gain, gain)
    return size + cut


@kernel
def _narrow(state: OrderState, m: int, leaf: bool, left: int, right: int, size: int, keep: int) -> int:
    """Move all but the first `keep` of the `size` columns of `left` to `right`; return the number that stays."""
    a, b = _width(state, m, left, leaf), _width(state, m, right, leaf)
    cut = keep if leaf else int(state.before[m, left, keep])
    _move(state, m, leaf, right, 0, right, a - keep, b, size - cut)
    _move(state, m, leaf, left, keep, right, 0, a - keep, -cut)
    _blank(state, m, leaf, left, keep, a - keep)
    return cut


@kernel
def _balance(state: OrderState, m: int, parent: int, i: int, leaf: bool) -> None:
    """Merge children i and i + 1 if one node can hold both with free columns, else make them equally wide."""
    state.head[m, CHANGES + leaf] += 1
    left, right = int(state.child[m, parent, i]), int(state.child[m, parent, i + 1])
    a, b = _width(state, m, left, leaf), _width(state, m, right, leaf)
    size = a if leaf else int(state.before[m, parent, i + 1] - state.before[m, parent, i])
    half = (a + b) // 2
    if half > (LEAST_LEAF if leaf else LEAST_INNER):
        if half > a:
            size = _widen(state, m, leaf, left, right, size, half - a)
        elif half < a:
            size = _narrow(state, m, leaf, left, right, size, half)
        state.bound[m, parent, i + 1] = state.leaf[m, right, 0] if leaf else state.bound[m, right, 0]
        state.before[m, parent, i + 1] = state.before[m, parent, i] + size
    else:
        _widen(state, m, leaf, left, right, size, b)
        _discard(state, m, right, leaf)
        width = _width(state, m, parent, False)
        _move(state, m, False, parent, i + 2, parent, i + 1, width - i - 2, 0)
        _blank(state, m, False, parent, width - 1, 1)


@kernel
def _relieve(state: OrderState, m: int, parent: int, i: int, leaf: bool) -> None:
    """Move columns of the full child i to a neighbour with free columns, else to a new node; the parent is not full."""
    sibling = i - 1 if i else i + 1
    width, shares = _width(state, m, parent, False), _SHARES_LEAF if leaf else _SHARES_INNER
    if sibling < width and _width(state, m, int(state.child[m, parent, sibling]), leaf) <= shares:
        _balance(state, m, parent, min(i, sibling), leaf)
    else:
        _move(state, m, False, parent, i, parent, i + 1, width - i, 0)
        state.child[m, parent, i + 1] = new_node(state, m, leaf)
        _balance(state, m, parent, i, leaf)


@kernel
def _grow(state: OrderState, m: int) -> None:
    """Put a new root above the full one."""
    root = new_node(state, m, False)
    state.bound[m, root, 0] = state.before[m, root, 0] = 0
    state.child[m, root, 0] = state.head[m, ROOT]
    state.head[m, ROOT] = root
    state.head[m, HEIGHT] += 1
    state.head[m, CHANGES] += 1


@kernel
def place(state: OrderState, m: int, position: int, image: np.uint32) -> None:
    """Move a position to the place of its new image; image 0 removes it."""
    old = state.image[m, position]
    if old != image:
        if old:
            _delete(state, m, entry_of(old, position))
        if image:
            _insert(state, m, entry_of(image, position))
        state.image[m, position] = image


@kernel
def _insert(state: OrderState, m: int, entry: np.uint64) -> None:
    if _full(state, m, int(state.head[m, ROOT]), state.head[m, HEIGHT] == 0):
        _grow(state, m)
    node = int(state.head[m, ROOT])
    for level in range(state.head[m, HEIGHT] - 1, -1, -1):
        row = inner_row(state, m, node)
        i = column_of(state, row, entry)
        if _full(state, m, int(state.child[m, node, i]), level == 0):
            _relieve(state, m, node, i, level == 0)
            i = column_of(state, row, entry)
        add_after(state.before, row, i, 1)
        node = int(state.child[m, node, i])
    insert_leaf(state.leaf, leaf_row(state, m, node), entry)
    state.head[m, SIZE] += 1


@kernel
def _delete(state: OrderState, m: int, entry: np.uint64) -> None:
    root = node = int(state.head[m, ROOT])
    for level in range(state.head[m, HEIGHT] - 1, -1, -1):
        row = inner_row(state, m, node)
        i = column_of(state, row, entry)
        if _least(state, m, int(state.child[m, node, i]), level == 0):
            _balance(state, m, node, max(i - 1, 0), level == 0)
            i = column_of(state, row, entry)
        add_after(state.before, row, i, -1)
        node = int(state.child[m, node, i])
    remove_leaf(state.leaf, leaf_row(state, m, node), entry)
    state.head[m, SIZE] -= 1
    if state.head[m, HEIGHT] > 0 and state.bound[m, root, 1] == NOTHING:
        state.head[m, ROOT] = state.child[m, root, 0]
        state.head[m, HEIGHT] -= 1
        state.head[m, CHANGES] += 1
        _discard(state, m, root, False)


@kernel
def _build_level(
    state: OrderState, m: int, entry: NDArray[np.uint64], before: NDArray[np.int32], child: NDArray[np.int32]
) -> int:
    """Build the next level over these columns, replace them by one column per new node, and return their number."""
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
def build(state: OrderState, m: int) -> None:
    """Rebuild a member's tree from its images: sort, then build the levels from the leaves up."""
    entry = np.empty(state.image.shape[1] + 1, np.uint64)
    count = 0
    for position in range(state.image.shape[1]):
        if state.image[m, position]:
            entry[count] = entry_of(state.image[m, position], position)
            count += 1
    entry[:count].sort()
    before, child = np.empty(count, np.int32), np.empty(max(count, 1), np.int32)
    for i in range(count):
        before[i] = i
    for i, value in enumerate((-1, -1, count, 0, 0, -1, -1, 0, 0)):
        state.head[m, i] = value
    while state.head[m, HEIGHT] < 0 or count > 1:
        count = _build_level(state, m, entry[:count], before, child)
        entry[0] = 0
    state.head[m, ROOT] = child[0]


def rows(members: int, nodes: int, width: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return an array `[members, nodes, width]` that begins on a cache line; memory is allocated on first use."""
    size = members * nodes * width * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(members, nodes, width)
