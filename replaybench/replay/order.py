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
2.8 with Numba's reference counts on the arrays (hence `_borrow`), 5.6 with rows across cache lines, 1.8 with rows
of 32 (too short for the compiler's vectors), 4.6 with rows of 128. At 32 members of 1e5, out of cache, an update waits
for its rows: 2.1, but 1.0 if `order_update` did not ask for the rows of a whole batch before it changes any.
`benchmarks/bench_order.py` compares with cpprb.

Exact sums of priorities fit in as one float64 per child beside `before`, written at the same places.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from replaybench.data.kernel import kernel

WIDTH: Final = 64
"""Entries of a full leaf, children of a full inner node."""
LEAST: Final = 30
"""Fewest entries or children of any node but the root; two such nodes fit into one with room to spare."""

_SHARES: Final = 50  # a full node shares with a neighbour up to this wide; beside a wider one it splits
_TYPICAL: Final = 44  # width after a bulk load, about that of random updates
_AHEAD: Final = 16  # updates whose rows are requested together; more would not fit the first-level cache
_NOTHING: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # pads `entry`; no key has this image
_FAR: Final = np.int32(0x7FFF_FFFF)  # pads `before`

_ROOT, _HEIGHT, _SIZE, _FREE, _USED = 0, 1, 2, 3, 5  # columns of `head`; the last two for inner nodes, then leaves


class OrderState(NamedTuple):
    """The arrays of M members with C slots each, as kernels take them. Nodes `[0, I)` are inner, `[I, I + L)` leaves.

    Attributes:
        image: uint32 `[M, C]`, each slot's key as `_image` writes it, 0 where the slot is absent.
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


_borrow: Any = intrinsic(_uncount)
_request: Any = intrinsic(_prefetch)


@kernel
def _image(key: float) -> np.uint32:
    """Map a float32 key to 32 bits that ascend as keys descend; NaN counts as +inf.

    On bits the map is its own inverse. Only a NaN would have the image 0, which therefore marks absent slots.
    """
    value = np.float32(key) + np.float32(0.0)  # turns -0.0 into 0.0
    bits = np.float32(np.inf if np.isnan(value) else value).view(np.uint32)
    return bits if bits >> np.uint32(31) else np.uint32(bits ^ np.uint32(0x7FFF_FFFF))


@kernel
def _entry(image: np.uint32, slot: int) -> np.uint64:
    return (np.uint64(image) << np.uint64(32)) | np.uint64(slot)


@kernel
def _width(state: OrderState, m: int, node: int) -> int:
    width = 0
    for j in range(WIDTH):
        width += state.entry[m, node, j] != _NOTHING
    return width


@kernel
def _column_of(state: OrderState, m: int, node: int, entry: np.uint64) -> int:
    """Return which child of an inner node holds this entry, or would."""
    count = 0
    for j in range(WIDTH):
        count += state.entry[m, node, j] <= entry
    return count - 1


@kernel
def _column_at(state: OrderState, m: int, node: int, rank: np.int32) -> int:
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
def _new(state: OrderState, m: int, leaf: bool) -> int:
    """Take a node from the free list, else the next untouched one, and empty it."""
    node = state.head[m, _FREE + leaf]
    if node >= 0:
        state.head[m, _FREE + leaf] = np.int64(state.entry[m, node, 0]) - 1
    else:
        node = state.head[m, _USED + leaf] + (state.before.shape[1] if leaf else 0)
        state.head[m, _USED + leaf] += 1
    state.entry[m, node] = _NOTHING
    return int(node)


@kernel
def _discard(state: OrderState, m: int, node: int) -> None:
    leaf = node >= state.before.shape[1]
    state.entry[m, node, 0] = np.uint64(state.head[m, _FREE + leaf] + 1)
    state.head[m, _FREE + leaf] = node


@kernel
def _write(
    state: OrderState,
    m: int,
    node: int,
    entry: NDArray[np.uint64],
    before: NDArray[np.int32],
    child: NDArray[np.int32],
) -> None:
    """Fill a node with these columns, counted from its first; a leaf has only entries."""
    state.entry[m, node, : entry.size] = entry
    state.entry[m, node, entry.size :] = _NOTHING
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
        _write(state, m, left, entry[:half], before[:half], child[:half])
        _write(state, m, right, entry[half:], before[half:], child[half:])
        state.entry[m, parent, i + 1] = entry[half]
        state.before[m, parent, i + 1] = state.before[m, parent, i] + before[half]
    else:
        _write(state, m, left, entry, before, child)
        _discard(state, m, right)
        for j in range(i + 1, WIDTH - 1):
            _move_column(state, m, parent, j + 1, j)
        state.entry[m, parent, WIDTH - 1], state.before[m, parent, WIDTH - 1] = _NOTHING, _FAR


@kernel
def _relieve(state: OrderState, m: int, parent: int, i: int) -> None:
    """Let the full child i share with a neighbour that has room, else with a new node; the parent is not full."""
    beside = i - 1 if i else i + 1
    if beside < _width(state, m, parent) and _width(state, m, int(state.child[m, parent, beside])) <= _SHARES:
        _balance(state, m, parent, min(i, beside))
    else:
        for j in range(WIDTH - 1, i, -1):
            _move_column(state, m, parent, j - 1, j)
        state.child[m, parent, i + 1] = _new(state, m, state.child[m, parent, i] >= state.before.shape[1])
        _balance(state, m, parent, i)


@kernel
def _grow(state: OrderState, m: int) -> None:
    """Put a new root above the full one."""
    root = _new(state, m, False)
    state.before[m, root] = _FAR
    state.entry[m, root, 0] = state.before[m, root, 0] = 0
    state.child[m, root, 0] = state.head[m, _ROOT]
    state.head[m, _ROOT] = root
    state.head[m, _HEIGHT] += 1


@kernel
def _insert(state: OrderState, m: int, entry: np.uint64) -> None:
    if state.entry[m, state.head[m, _ROOT], WIDTH - 1] != _NOTHING:
        _grow(state, m)
    node = int(state.head[m, _ROOT])
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_of(state, m, node, entry)
        if state.entry[m, int(state.child[m, node, i]), WIDTH - 1] != _NOTHING:
            _relieve(state, m, node, i)
            i = _column_of(state, m, node, entry)
        _count_after(state, m, node, i, 1)
        node = int(state.child[m, node, i])
    for j in range(WIDTH - 1, 0, -1):
        state.entry[m, node, j] = min(state.entry[m, node, j], max(state.entry[m, node, j - 1], entry))
    state.entry[m, node, 0] = min(state.entry[m, node, 0], entry)
    state.head[m, _SIZE] += 1


@kernel
def _delete(state: OrderState, m: int, entry: np.uint64) -> None:
    root = node = int(state.head[m, _ROOT])
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_of(state, m, node, entry)
        if state.entry[m, int(state.child[m, node, i]), LEAST] == _NOTHING:
            _balance(state, m, node, max(i - 1, 0))
            i = _column_of(state, m, node, entry)
        _count_after(state, m, node, i, -1)
        node = int(state.child[m, node, i])
    for j in range(WIDTH - 1):
        here, following = state.entry[m, node, j], state.entry[m, node, j + 1]
        state.entry[m, node, j] = following if here >= entry else here
    state.entry[m, node, WIDTH - 1] = _NOTHING
    state.head[m, _SIZE] -= 1
    if state.head[m, _HEIGHT] > 0 and state.entry[m, root, 1] == _NOTHING:
        state.head[m, _ROOT] = state.child[m, root, 0]
        state.head[m, _HEIGHT] -= 1
        _discard(state, m, root)


@kernel
def order_size(state: OrderState, m: int) -> int:
    """Return how many slots of member m are in the order."""
    return int(state.head[m, _SIZE])


@kernel
def order_remove(state: OrderState, m: int, slot: int) -> None:
    """Take a slot out of the order; nothing happens if it is absent."""
    borrowed = _borrow(state)
    image = borrowed.image[m, slot]
    if image:
        _delete(borrowed, m, _entry(image, slot))
        borrowed.image[m, slot] = 0


@kernel
def order_set(state: OrderState, m: int, slot: int, key: float) -> None:
    """Insert a slot, or move it to its new key; NaN counts as +inf."""
    borrowed = _borrow(state)
    image = _image(key)
    if borrowed.image[m, slot] != image:
        order_remove(borrowed, m, slot)
        _insert(borrowed, m, _entry(image, slot))
        borrowed.image[m, slot] = image


@kernel
def _request_leaf(state: OrderState, m: int, entry: np.uint64) -> None:
    node = int(state.head[m, _ROOT])
    for _ in range(state.head[m, _HEIGHT]):
        node = int(state.child[m, node, _column_of(state, m, node, entry)])
    row = (m * state.entry.shape[1] + node) * WIDTH
    for j in range(0, WIDTH, 8):
        _request(state.entry, row + j)


@kernel
def order_update(state: OrderState, m: int, slots: NDArray[np.int64], keys: NDArray[np.float32]) -> None:
    """Do `order_set` for each of `slots[B]` and `keys[B]` in turn, skipping slots below 0; faster out of cache."""
    borrowed = _borrow(state)
    for start in range(0, slots.size, _AHEAD):
        stop = min(start + _AHEAD, slots.size)
        for b in range(start, stop):
            if slots[b] >= 0:
                _request_leaf(borrowed, m, _entry(borrowed.image[m, slots[b]], slots[b]))
                _request_leaf(borrowed, m, _entry(_image(keys[b]), slots[b]))
        for b in range(start, stop):
            if slots[b] >= 0:
                order_set(borrowed, m, slots[b], keys[b])


@kernel
def order_select(state: OrderState, m: int, rank: int) -> int:
    """Return the slot at a rank in [0, size): rank 0 is the largest key, ties go by lower slot."""
    node = int(state.head[m, _ROOT])
    within = np.int32(rank)
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_at(state, m, node, within)
        within = np.int32(within - state.before[m, node, i])
        node = int(state.child[m, node, i])
    return int(state.entry[m, node, within] & np.uint64(0xFFFF_FFFF))


@kernel
def order_rank(state: OrderState, m: int, slot: int) -> int:
    """Return the rank of a slot, -1 if it is absent."""
    image = state.image[m, slot]
    entry = _entry(image, slot)
    node = int(state.head[m, _ROOT])
    rank = 0
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_of(state, m, node, entry)
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
        state.image[m, slot] = 0 if np.isnan(keys[slot]) else _image(keys[slot])
        if state.image[m, slot]:
            entry[count] = _entry(state.image[m, slot], slot)
            count += 1
    entry[:count].sort()
    before, child = np.arange(count + 1).astype(np.int32), np.empty(count + 1, np.int32)
    state.head[m] = (-1, -1, count, -1, -1, 0, 0)
    while state.head[m, _HEIGHT] < 0 or count > 1:
        nodes = max(1, -(-count // WIDTH), count // _TYPICAL)
        for g in range(nodes):
            start, stop = g * count // nodes, (g + 1) * count // nodes
            node = _new(state, m, state.head[m, _HEIGHT] < 0)
            _write(state, m, node, entry[start:stop], before[start:stop], child[start:stop])
            entry[g], before[g], child[g] = entry[start], before[start], node
        entry[0] = 0
        count = nodes
        state.head[m, _HEIGHT] += 1
    state.head[m, _ROOT] = child[0]


def _rows(members: int, nodes: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return `[members, nodes, WIDTH]`, untouched memory that begins on a cache line."""
    size = members * nodes * WIDTH * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(members, nodes, WIDTH)


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
            entry=_rows(members, inner + leaves, np.uint64),
            before=_rows(members, inner, np.int32),
            child=_rows(members, inner, np.int32),
            head=np.empty((members, 7), np.int64),
        )
        self.state.head[:] = inner, 0, 0, -1, -1, 0, 1
        self.state.entry[:, inner] = _NOTHING

    def keys(self) -> NDArray[np.float32]:
        """Return the keys `[M, C]`, NaN for absent slots: the whole logical state."""
        image = self.state.image
        return np.where(image >> 31, image, image ^ 0x7FFF_FFFF).view(np.float32)

    def load_keys(self, keys: ArrayLike) -> None:
        """Rebuild from keys `[M, C]`, NaN for absent slots; all ranks are then as they were when these were taken.

        Raises:
            ValueError: the shape is not `[M, C]`.
        """
        array = np.asarray(keys, np.float32)
        if array.shape != self.state.image.shape:
            raise ValueError(f"keys have shape {array.shape}, this order {self.state.image.shape}")
        for m, row in enumerate(array):
            _load(self.state, m, row)
