"""The tree under `replaybench.replay.order`: nodes of 64 sorted entries, split and merged on the way down.

The module docstring there says what the structure is and why. This file knows entries and nodes; slots, keys and ranks
are the order's business.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

WIDTH: Final = 64
"""Entries of a full leaf, children of a full inner node."""
LEAST: Final = 30
"""Fewest entries or children of any node but the root; two such nodes fit into one with room to spare."""

_SHARES: Final = 50  # a full node shares with a neighbour up to this wide; beside a wider one it splits
NOTHING: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # pads `entry`; no key has this image
_FAR: Final = np.int32(0x7FFF_FFFF)  # pads `before`

ROOT, HEIGHT, SIZE, FREE, USED = 0, 1, 2, 3, 5  # columns of `head`; the last two for inner nodes, then leaves


class OrderState(NamedTuple):
    """The arrays of M members with C slots each, as kernels take them. Nodes `[0, I)` are inner, `[I, I + L)` leaves.

    Attributes:
        image: uint32 `[M, C]`, each slot's key as `image_of` writes it, 0 where the slot is absent.
        entry: uint64 `[M, I + L, WIDTH]`, the entries of a leaf, the children's lower bounds of an inner node.
        before: int32 `[M, I, WIDTH]`, how many entries lie under earlier children of the same node.
        child: int32 `[M, I, WIDTH]`, node numbers.
        head: int64 `[M, 7]`, root, height, size, first free node and number of nodes ever used (each: inner, leaf).
    """

    image: NDArray[np.uint32]
    entry: NDArray[np.uint64]
    before: NDArray[np.int32]
    child: NDArray[np.int32]
    head: NDArray[np.int64]


def _uncount(typing_context: Any, state: Any) -> Any:
    """Return the state without owners, so that Numba counts no references: the caller's arguments keep it alive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        borrowed = args[0]
        for i, kind in enumerate(state.types):
            view = context.make_array(kind)(context, builder, builder.extract_value(args[0], i))
            view.meminfo, view.parent = view.meminfo.type(None), view.parent.type(None)
            borrowed = builder.insert_value(borrowed, view._getvalue(), i)
        return borrowed

    return state(state), codegen


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of the element at a flat position; results do not depend on it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        address = builder.bitcast(element, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(function, [address, number(1), number(3), number(1)])  # to write, keep close, data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


borrow: Any = intrinsic(_uncount)
request: Any = intrinsic(_prefetch)


@kernel
def image_of(key: float) -> np.uint32:
    """Map a float32 key to 32 bits that ascend as keys descend; NaN counts as +inf.

    On bits the map is its own inverse. Only a NaN would have the image 0, which therefore marks absent slots.
    """
    value = np.float32(key) + np.float32(0.0)  # turns -0.0 into 0.0
    bits = np.float32(np.inf if np.isnan(value) else value).view(np.uint32)
    return bits if bits >> np.uint32(31) else np.uint32(bits ^ np.uint32(0x7FFF_FFFF))


@kernel
def entry_of(image: np.uint32, slot: int) -> np.uint64:
    return (np.uint64(image) << np.uint64(32)) | np.uint64(slot)


@kernel
def _width(state: OrderState, m: int, node: int) -> int:
    width = 0
    for j in range(WIDTH):
        width += state.entry[m, node, j] != NOTHING
    return width


@kernel
def column_of(state: OrderState, m: int, node: int, entry: np.uint64) -> int:
    """Return which child of an inner node holds this entry, or would."""
    count = 0
    for j in range(WIDTH):
        count += state.entry[m, node, j] <= entry
    return count - 1


@kernel
def column_at(state: OrderState, m: int, node: int, rank: np.int32) -> int:
    """Return which child of an inner node holds the entry of this rank within the node."""
    count = 0
    for j in range(WIDTH):
        count += state.before[m, node, j] <= rank
    return count - 1


@kernel
def _count_after(state: OrderState, m: int, node: int, column: int, change: int) -> None:
    """Note that the child in this column gains or loses one entry."""
    for j in range(WIDTH):
        before = state.before[m, node, j]
        follows = (j > column) & (before != _FAR)
        state.before[m, node, j] = before + np.int32(change) if follows else before


@kernel
def new_node(state: OrderState, m: int, leaf: bool) -> int:
    """Take a node from the free list, else the next untouched one, and empty it."""
    node = state.head[m, FREE + leaf]
    if node >= 0:
        state.head[m, FREE + leaf] = np.int64(state.entry[m, node, 0]) - 1
    else:
        node = state.head[m, USED + leaf] + (state.before.shape[1] if leaf else 0)
        state.head[m, USED + leaf] += 1
    state.entry[m, node] = NOTHING
    return int(node)


@kernel
def _discard(state: OrderState, m: int, node: int) -> None:
    leaf = node >= state.before.shape[1]
    state.entry[m, node, 0] = np.uint64(state.head[m, FREE + leaf] + 1)
    state.head[m, FREE + leaf] = node


@kernel
def write_node(
    state: OrderState,
    m: int,
    node: int,
    entry: NDArray[np.uint64],
    before: NDArray[np.int32],
    child: NDArray[np.int32],
) -> None:
    """Fill a node with these columns, counted from its first; a leaf has only entries."""
    state.entry[m, node, : entry.size] = entry
    state.entry[m, node, entry.size :] = NOTHING
    if node < state.before.shape[1]:
        for j in range(entry.size):
            state.before[m, node, j] = before[j] - before[0]
        state.before[m, node, entry.size :] = _FAR
        state.child[m, node, : entry.size] = child


@kernel
def _move_column(state: OrderState, m: int, node: int, source: int, target: int) -> None:
    state.entry[m, node, target] = state.entry[m, node, source]
    state.before[m, node, target] = state.before[m, node, source]
    state.child[m, node, target] = state.child[m, node, source]


@kernel
def _balance(state: OrderState, m: int, parent: int, i: int) -> None:
    """Merge children i and i + 1 if one node holds them with room to spare, else make them equally wide."""
    left, right = int(state.child[m, parent, i]), int(state.child[m, parent, i + 1])
    a, b = _width(state, m, left), _width(state, m, right)
    entry = np.concatenate((state.entry[m, left, :a], state.entry[m, right, :b]))
    before, child = np.arange(a + b).astype(np.int32), np.empty(a + b, np.int32)
    if left < state.before.shape[1]:
        before[:a], child[:a] = state.before[m, left, :a], state.child[m, left, :a]
        child[a:] = state.child[m, right, :b]
        size = state.before[m, parent, i + 1] - state.before[m, parent, i]
        for j in range(b):
            before[a + j] = size + state.before[m, right, j]
    half = (a + b) // 2
    if half > LEAST:
        write_node(state, m, left, entry[:half], before[:half], child[:half])
        write_node(state, m, right, entry[half:], before[half:], child[half:])
        state.entry[m, parent, i + 1] = entry[half]
        state.before[m, parent, i + 1] = state.before[m, parent, i] + before[half]
    else:
        write_node(state, m, left, entry, before, child)
        _discard(state, m, right)
        for j in range(i + 1, WIDTH - 1):
            _move_column(state, m, parent, j + 1, j)
        state.entry[m, parent, WIDTH - 1], state.before[m, parent, WIDTH - 1] = NOTHING, _FAR


@kernel
def _relieve(state: OrderState, m: int, parent: int, i: int) -> None:
    """Let the full child i share with a neighbour that has room, else with a new node; the parent is not full."""
    beside = i - 1 if i else i + 1
    if beside < _width(state, m, parent) and _width(state, m, int(state.child[m, parent, beside])) <= _SHARES:
        _balance(state, m, parent, min(i, beside))
    else:
        for j in range(WIDTH - 1, i, -1):
            _move_column(state, m, parent, j - 1, j)
        state.child[m, parent, i + 1] = new_node(state, m, state.child[m, parent, i] >= state.before.shape[1])
        _balance(state, m, parent, i)


@kernel
def _grow(state: OrderState, m: int) -> None:
    """Put a new root above the full one."""
    root = new_node(state, m, False)
    state.before[m, root] = _FAR
    state.entry[m, root, 0] = state.before[m, root, 0] = 0
    state.child[m, root, 0] = state.head[m, ROOT]
    state.head[m, ROOT] = root
    state.head[m, HEIGHT] += 1


@kernel
def insert(state: OrderState, m: int, entry: np.uint64) -> None:
    if state.entry[m, state.head[m, ROOT], WIDTH - 1] != NOTHING:
        _grow(state, m)
    node = int(state.head[m, ROOT])
    for _ in range(state.head[m, HEIGHT]):
        i = column_of(state, m, node, entry)
        if state.entry[m, int(state.child[m, node, i]), WIDTH - 1] != NOTHING:
            _relieve(state, m, node, i)
            i = column_of(state, m, node, entry)
        _count_after(state, m, node, i, 1)
        node = int(state.child[m, node, i])
    for j in range(WIDTH - 1, 0, -1):
        state.entry[m, node, j] = min(state.entry[m, node, j], max(state.entry[m, node, j - 1], entry))
    state.entry[m, node, 0] = min(state.entry[m, node, 0], entry)
    state.head[m, SIZE] += 1


@kernel
def delete(state: OrderState, m: int, entry: np.uint64) -> None:
    root = node = int(state.head[m, ROOT])
    for _ in range(state.head[m, HEIGHT]):
        i = column_of(state, m, node, entry)
        if state.entry[m, int(state.child[m, node, i]), LEAST] == NOTHING:
            _balance(state, m, node, max(i - 1, 0))
            i = column_of(state, m, node, entry)
        _count_after(state, m, node, i, -1)
        node = int(state.child[m, node, i])
    for j in range(WIDTH - 1):
        here, following = state.entry[m, node, j], state.entry[m, node, j + 1]
        state.entry[m, node, j] = following if here >= entry else here
    state.entry[m, node, WIDTH - 1] = NOTHING
    state.head[m, SIZE] -= 1
    if state.head[m, HEIGHT] > 0 and state.entry[m, root, 1] == NOTHING:
        state.head[m, ROOT] = state.child[m, root, 0]
        state.head[m, HEIGHT] -= 1
        _discard(state, m, root)


def rows(members: int, nodes: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return `[members, nodes, WIDTH]`, untouched memory that begins on a cache line."""
    size = members * nodes * WIDTH * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(members, nodes, WIDTH)
