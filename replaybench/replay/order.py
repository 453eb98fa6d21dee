from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

LEAF: Final = 64
FANOUT: Final = 64
LEAST: Final = 30

_NO_ENTRY: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_NO_CHILD: Final = np.int32(0x7FFF_FFFF)
_ROOT, _HEIGHT, _SIZE = 0, 1, 2
_FREE, _USED = 3, 5


class OrderState(NamedTuple):
    image: NDArray[np.uint32]
    leaf: NDArray[np.uint64]
    lower: NDArray[np.uint64]
    before: NDArray[np.int32]
    child: NDArray[np.int32]
    head: NDArray[np.int64]


@njit(cache=True)
def _image(key):
    value = np.float32(key) + np.float32(0.0)
    if np.isnan(value):
        value = np.float32(np.inf)
    bits = np.float32(value).view(np.uint32)
    return bits if bits >> np.uint32(31) else np.uint32(bits ^ np.uint32(0x7FFF_FFFF))


@njit(cache=True)
def _entry(image, slot):
    return (np.uint64(image) << np.uint64(32)) | np.uint64(slot)


# ---- node primitives; level 0 = leaf
@njit(cache=True)
def _first(state, m, level, node, column):
    return state.lower[m, node, column] if level else state.leaf[m, node, column]


@njit(cache=True)
def _width(state, m, level, node):
    width = 0
    if level:
        for j in range(FANOUT):
            width += state.lower[m, node, j] != _NO_ENTRY
    else:
        for j in range(LEAF):
            width += state.leaf[m, node, j] != _NO_ENTRY
    return width


@njit(cache=True)
def _clear(state, m, level, node, start):
    if level:
        for j in range(start, FANOUT):
            state.lower[m, node, j] = _NO_ENTRY
            state.before[m, node, j] = _NO_CHILD
    else:
        for j in range(start, LEAF):
            state.leaf[m, node, j] = _NO_ENTRY


@njit(cache=True)
def _copy(state, m, level, source, start, target, to, count, offset):
    backwards = source == target and to > start
    for k in range(count):
        j = count - 1 - k if backwards else k
        if level:
            state.lower[m, target, to + j] = state.lower[m, source, start + j]
            state.before[m, target, to + j] = state.before[m, source, start + j] + offset
            state.child[m, target, to + j] = state.child[m, source, start + j]
        else:
            state.leaf[m, target, to + j] = state.leaf[m, source, start + j]


@njit(cache=True)
def _new(state, m, level):
    kind = min(level, 1)
    node = state.head[m, _FREE + kind]
    if node < 0:
        node = state.head[m, _USED + kind]
        state.head[m, _USED + kind] += 1
    elif level:
        state.head[m, _FREE + kind] = state.child[m, node, 0]
    else:
        state.head[m, _FREE + kind] = np.int64(state.leaf[m, node, 0]) - 1
    _clear(state, m, level, node, 0)
    return node


@njit(cache=True)
def _discard(state, m, level, node):
    kind = min(level, 1)
    if level:
        state.child[m, node, 0] = state.head[m, _FREE + kind]
    else:
        state.leaf[m, node, 0] = np.uint64(state.head[m, _FREE + kind] + 1)
    state.head[m, _FREE + kind] = node


@njit(cache=True)
def _insert_column(state, m, node, i, lower, before, child):
    width = _width(state, m, 1, node)
    _copy(state, m, 1, node, i, node, i + 1, width - i, 0)
    state.lower[m, node, i] = lower
    state.before[m, node, i] = before
    state.child[m, node, i] = child


@njit(cache=True)
def _remove_column(state, m, node, i):
    width = _width(state, m, 1, node)
    _copy(state, m, 1, node, i + 1, node, i, width - i - 1, 0)
    _clear(state, m, 1, node, width - 1)


@njit(cache=True)
def _entries_before(state, m, level, node, column):
    return np.int64(state.before[m, node, column]) if level else column


@njit(cache=True)
def _split(state, m, level, parent, i):
    left = state.child[m, parent, i]
    right = _new(state, m, level)
    width = _width(state, m, level, left)
    half = width // 2
    moved = _entries_before(state, m, level, left, half)
    _copy(state, m, level, left, half, right, 0, width - half, -moved)
    _clear(state, m, level, left, half)
    _insert_column(
        state, m, parent, i + 1, _first(state, m, level, right, 0), state.before[m, parent, i] + moved, right
    )


@njit(cache=True)
def _refill(state, m, level, parent, i):
    """children i, i+1 of parent: merge or share evenly."""
    left = state.child[m, parent, i]
    right = state.child[m, parent, i + 1]
    a = _width(state, m, level, left)
    b = _width(state, m, level, right)
    size = np.int64(state.before[m, parent, i + 1] - state.before[m, parent, i])
    if a + b < 2 * LEAST + 2:
        _copy(state, m, level, right, 0, left, a, b, size)
        _discard(state, m, level, right)
        _remove_column(state, m, parent, i + 1)
        return
    half = (a + b) // 2
    if half > a:
        n = half - a
        moved = _entries_before(state, m, level, right, n)
        _copy(state, m, level, right, 0, left, a, n, size)
        _copy(state, m, level, right, n, right, 0, b - n, -moved)
        _clear(state, m, level, right, b - n)
    else:
        n = a - half
        kept = _entries_before(state, m, level, left, half)
        moved = kept - size
        _copy(state, m, level, right, 0, right, n, b, size - kept)
        _copy(state, m, level, left, half, right, 0, n, -kept)
        _clear(state, m, level, left, half)
    state.before[m, parent, i + 1] += moved
    state.lower[m, parent, i + 1] = _first(state, m, level, right, 0)


@njit(cache=True)
def _column_of(state, m, node, entry):
    below = 0
    for j in range(FANOUT):
        below += state.lower[m, node, j] <= entry
    return below - 1


@njit(cache=True)
def _column_at(state, m, node, rank):
    below = 0
    for j in range(FANOUT):
        below += state.before[m, node, j] <= rank
    return below - 1


@njit(cache=True)
def _count_after(state, m, node, i, change):
    for j in range(FANOUT):
        before = state.before[m, node, j]
        if (j > i) & (before != _NO_CHILD):
            before += change
        state.before[m, node, j] = before


@njit(cache=True)
def _full(state, m, level, node):
    return state.lower[m, node, FANOUT - 1] != _NO_ENTRY if level else state.leaf[m, node, LEAF - 1] != _NO_ENTRY


@njit(cache=True)
def _least(state, m, level, node):
    return state.lower[m, node, LEAST] == _NO_ENTRY if level else state.leaf[m, node, LEAST] == _NO_ENTRY


@njit(cache=True)
def _grow(state, m):
    root = _new(state, m, state.head[m, _HEIGHT] + 1)
    _insert_column(state, m, root, 0, np.uint64(0), 0, state.head[m, _ROOT])
    state.head[m, _ROOT] = root
    state.head[m, _HEIGHT] += 1


@njit(cache=True)
def _shrink(state, m):
    root = state.head[m, _ROOT]
    state.head[m, _ROOT] = state.child[m, root, 0]
    _discard(state, m, state.head[m, _HEIGHT], root)
    state.head[m, _HEIGHT] -= 1


@njit(cache=True)
def _insert(state, m, entry):
    if _full(state, m, state.head[m, _HEIGHT], state.head[m, _ROOT]):
        _grow(state, m)
    node = state.head[m, _ROOT]
    for level in range(state.head[m, _HEIGHT] - 1, -1, -1):
        i = _column_of(state, m, node, entry)
        if _full(state, m, level, state.child[m, node, i]):
            _split(state, m, level, node, i)
            i = _column_of(state, m, node, entry)
        _count_after(state, m, node, i, 1)
        node = np.int64(state.child[m, node, i])
    for j in range(LEAF - 1, 0, -1):
        state.leaf[m, node, j] = min(state.leaf[m, node, j], max(state.leaf[m, node, j - 1], entry))
    state.leaf[m, node, 0] = min(state.leaf[m, node, 0], entry)
    state.head[m, _SIZE] += 1


@njit(cache=True)
def _remove(state, m, entry):
    node = state.head[m, _ROOT]
    for level in range(state.head[m, _HEIGHT] - 1, -1, -1):
        i = _column_of(state, m, node, entry)
        if _least(state, m, level, state.child[m, node, i]):
            _refill(state, m, level, node, max(i - 1, 0))
            i = _column_of(state, m, node, entry)
        _count_after(state, m, node, i, -1)
        node = np.int64(state.child[m, node, i])
    for j in range(LEAF - 1):
        x = state.leaf[m, node, j]
        state.leaf[m, node, j] = state.leaf[m, node, j + 1] if x >= entry else x
    state.leaf[m, node, LEAF - 1] = _NO_ENTRY
    state.head[m, _SIZE] -= 1
    root = state.head[m, _ROOT]
    if state.head[m, _HEIGHT] > 0 and state.lower[m, root, 1] == _NO_ENTRY:
        _shrink(state, m)


@njit(cache=True)
def order_size(state, m):
    return state.head[m, _SIZE]


@njit(cache=True)
def order_set(state, m, slot, key):
    image = _image(key)
    old = state.image[m, slot]
    if image == old:
        return
    if old:
        _remove(state, m, _entry(old, slot))
    state.image[m, slot] = image
    _insert(state, m, _entry(image, slot))


@njit(cache=True)
def order_remove(state, m, slot):
    old = state.image[m, slot]
    if old:
        _remove(state, m, _entry(old, slot))
        state.image[m, slot] = 0


@njit(cache=True)
def order_select(state, m, rank):
    node = state.head[m, _ROOT]
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_at(state, m, node, rank)
        rank -= state.before[m, node, i]
        node = np.int64(state.child[m, node, i])
    return np.int64(state.leaf[m, node, rank] & np.uint64(0xFFFF_FFFF))


@njit(cache=True)
def order_rank(state, m, slot):
    entry = _entry(state.image[m, slot], slot)
    node = state.head[m, _ROOT]
    rank = 0
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_of(state, m, node, entry)
        rank += state.before[m, node, i]
        node = np.int64(state.child[m, node, i])
    for j in range(LEAF):
        rank += state.leaf[m, node, j] < entry
    return rank


def pool(capacity):
    leaves = 1 if capacity <= LEAF else capacity // LEAST
    nodes, level = 0, leaves
    while level > 1:
        level = 1 if level <= FANOUT else level // LEAST
        nodes += level
    return leaves, max(nodes, 1)


class Order:
    def __init__(self, members, capacity):
        leaves, nodes = pool(capacity)
        self.state = OrderState(
            np.zeros((members, capacity), np.uint32),
            np.empty((members, leaves, LEAF), np.uint64),
            np.empty((members, nodes, FANOUT), np.uint64),
            np.empty((members, nodes, FANOUT), np.int32),
            np.empty((members, nodes, FANOUT), np.int32),
            np.zeros((members, 7), np.int64),
        )
        self.state.head[:, _FREE : _FREE + 2] = -1
        self.state.head[:, _USED] = 1
        self.state.leaf[:, 0] = _NO_ENTRY
