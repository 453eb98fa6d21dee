"""An exact order over buffer slots: which slot has rank r, which rank has slot s, after any single change.

Rank-based replay draws the slot at a rank, and retention takes its victims from the other end. Ranks are exact
and always current: nothing is sorted "now and then". The file knows slots and float32 keys, nothing of what
they stand for.

**Structure**: one B+-tree per member over 64-bit entries `image(key) << 32 | slot`. All entries are distinct and
ascending entries are descending keys, ties by lower slot, so rank 0 is the largest key. A leaf is a row of 64
entries; an inner node holds, per child, a lower bound of its entries, the number of entries before it and its
place. Rows begin on cache lines and are padded with a largest value, so all work inside a node is a counting or
shifting loop of fixed length without branches, which compiles to a few vector instructions: a linear count finds
the child, and the padding tells whether a node is full. Nodes are split or merged on the way down, so one pass
suffices and no path is kept. An update reads about 20 cache lines per level that is not cached, independent
of the history; every node but the root is at least 30/64 full, whatever happens, which bounds memory at 22.3
bytes per experience with the key (18 after an ordinary fill, because a full node first fills up its neighbour).

**Measured** (benchmarks/bench_order.py; AMD EPYC, one thread): with everything in cache an update takes 0.12 µs, of
which a third would be reference counts, hence `_uncounted`. Rows that straddle cache lines cost a factor of two.
Beyond the cache an update waits for memory, so `order_update` asks for the rows of a whole batch before
it changes any: 1.7 times faster at 32 members of 1e5. Leaves of 32 gained nothing and cost memory.

A sum over priorities can be added as one float64 per child beside `before`, kept at the same places.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

WIDTH: Final = 64
"""Entries of a full leaf and children of a full inner node."""
LEAST: Final = 30
"""Fewest entries or children of any node but the root; two such nodes merge with room to spare."""

_TYPICAL: Final = 44  # a bulk load leaves nodes about as full as random updates do
_SHARES: Final = 50  # a full node shares with a neighbour up to this wide; it splits beside a wider one
_AHEAD: Final = 16  # updates whose rows are requested together: they fit the first-level cache
_IN_CACHE: Final = 500_000  # experiences of all members (about 10 MB) below which requests only cost time
_NOTHING: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # pads rows; no key has this image
_FAR: Final = np.int32(0x7FFF_FFFF)  # pads `before`

_ROOT, _HEIGHT, _SIZE, _FREE, _USED = 0, 1, 2, 3, 5  # columns of `head`; the last two: inner nodes, then leaves


class OrderState(NamedTuple):
    """The arrays of an `Order` of M members and C slots, as kernels take them; nodes `[0, I)` are the inner ones.

    Attributes:
        image: uint32 `[M, C]`, the key of each slot as `_image` writes it, 0 where the slot is absent.
        entry: uint64 `[M, I + L, WIDTH]`, a leaf's entries, an inner node's lower bounds; ascending.
        before: int32 `[M, I, WIDTH]`, how many entries of the same node lie under earlier children.
        child: int32 `[M, I, WIDTH]`, node numbers.
        head: int64 `[M, 7]`, root, height, size, then free list and count of nodes ever used, per kind.
    """

    image: NDArray[np.uint32]
    entry: NDArray[np.uint64]
    before: NDArray[np.int32]
    child: NDArray[np.int32]
    head: NDArray[np.int64]


@intrinsic  # type: ignore[untyped-decorator]
def _uncounted(typing_context: Any, array: Any) -> Any:
    """Return the array as a view that Numba does not reference-count: the caller's arguments keep it alive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(array)(context, builder, args[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _request(typing_context: Any, array: Any, position: Any) -> Any:
    """Ask the processor to fetch the cache line of the element at this flat position; no effect on results."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        address = builder.bitcast(element, ir.IntType(8).as_pointer())
        int32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, int32, int32, int32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(fetch, [address, int32(1), int32(3), int32(1)])  # to write, keep close, data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@njit(cache=True)
def _borrow(state: OrderState) -> OrderState:
    return OrderState(
        _uncounted(state.image),
        _uncounted(state.entry),
        _uncounted(state.before),
        _uncounted(state.child),
        _uncounted(state.head),
    )


@njit(cache=True)
def _image(key: float) -> np.uint32:
    """Map a float32 key to 32 bits whose ascending order is the descending order of keys; NaN counts as +inf.

    The map is its own inverse on the bits, and 0 is the image of a NaN only: it marks absent slots.
    """
    value = np.float32(key) + np.float32(0.0)  # -0.0 becomes 0.0
    if np.isnan(value):
        value = np.float32(np.inf)
    bits = np.float32(value).view(np.uint32)
    return bits if bits >> np.uint32(31) else np.uint32(bits ^ np.uint32(0x7FFF_FFFF))


@njit(cache=True)
def _entry(image: np.uint32, slot: int) -> np.uint64:
    return (np.uint64(image) << np.uint64(32)) | np.uint64(slot)


@njit(cache=True)
def _full(state: OrderState, m: int, node: int) -> bool:
    return state.entry[m, node, WIDTH - 1] != _NOTHING


@njit(cache=True)
def _width(state: OrderState, m: int, node: int) -> int:
    width = 0
    for j in range(WIDTH):
        width += state.entry[m, node, j] != _NOTHING
    return width


@njit(cache=True)
def _column_of(state: OrderState, m: int, node: int, entry: np.uint64) -> int:
    """Return which child of an inner node holds the entry, or would."""
    count = 0
    for j in range(WIDTH):
        count += state.entry[m, node, j] <= entry
    return count - 1


@njit(cache=True)
def _column_at(state: OrderState, m: int, node: int, rank: np.int32) -> int:
    """Return which child of an inner node holds the entry of this rank within the node."""
    count = 0
    for j in range(WIDTH):
        count += state.before[m, node, j] <= rank
    return count - 1


@njit(cache=True)
def _count_after(state: OrderState, m: int, node: int, column: int, change: int) -> None:
    """Note that the child in this column gains or loses one entry."""
    for j in range(WIDTH):
        before = state.before[m, node, j]
        moves = (j > column) & (before != _FAR)
        state.before[m, node, j] = before + np.int32(change) if moves else before


@njit(cache=True)
def _new(state: OrderState, m: int, leaf: bool) -> int:
    """Take a node from the free list, else the next untouched one, and empty it."""
    node = state.head[m, _FREE + leaf]
    if node < 0:
        node = state.head[m, _USED + leaf]
        state.head[m, _USED + leaf] += 1
        node += state.before.shape[1] if leaf else 0
    else:
        state.head[m, _FREE + leaf] = int(state.entry[m, node, 0]) - 1
    state.entry[m, node] = _NOTHING
    return node


@njit(cache=True)
def _discard(state: OrderState, m: int, node: int) -> None:
    leaf = node >= state.before.shape[1]
    state.entry[m, node, 0] = np.uint64(state.head[m, _FREE + leaf] + 1)
    state.head[m, _FREE + leaf] = node


@njit(cache=True)
def _write(
    state: OrderState,
    m: int,
    node: int,
    entry: NDArray[np.uint64],
    before: NDArray[np.int32],
    child: NDArray[np.int32],
) -> None:
    """Fill a node with these columns, of which a leaf has the entries only."""
    state.entry[m, node, : entry.size] = entry
    state.entry[m, node, entry.size :] = _NOTHING
    if node < state.before.shape[1]:
        for j in range(entry.size):
            state.before[m, node, j] = before[j] - before[0]
        state.before[m, node, entry.size :] = _FAR
        state.child[m, node, : entry.size] = child


@njit(cache=True)
def _copy_column(state: OrderState, m: int, node: int, source: int, target: int) -> None:
    state.entry[m, node, target] = state.entry[m, node, source]
    state.before[m, node, target] = state.before[m, node, source]
    state.child[m, node, target] = state.child[m, node, source]


@njit(cache=True)
def _balance(state: OrderState, m: int, parent: int, i: int) -> None:
    """Merge children i and i + 1 if one node holds them with room to spare, else make them equally wide."""
    left, right = int(state.child[m, parent, i]), int(state.child[m, parent, i + 1])
    a, b = _width(state, m, left), _width(state, m, right)
    entry = np.concatenate((state.entry[m, left, :a], state.entry[m, right, :b]))
    before = np.arange(a + b).astype(np.int32)
    child = np.empty(a + b, np.int32)
    if left < state.before.shape[1]:
        before[:a], child[:a] = state.before[m, left, :a], state.child[m, left, :a]
        child[a:] = state.child[m, right, :b]
        size = state.before[m, parent, i + 1] - state.before[m, parent, i]
        for j in range(b):
            before[a + j] = state.before[m, right, j] + size
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
            _copy_column(state, m, parent, j + 1, j)
        state.entry[m, parent, WIDTH - 1], state.before[m, parent, WIDTH - 1] = _NOTHING, _FAR


@njit(cache=True)
def _relieve(state: OrderState, m: int, parent: int, i: int) -> None:
    """Let the full child i share with a neighbour that has room, else with a new node; the parent is not full."""
    neighbour = i - 1 if i else i + 1
    if (
        neighbour < _width(state, m, parent)
        and _width(state, m, int(state.child[m, parent, neighbour])) <= _SHARES
    ):
        _balance(state, m, parent, min(i, neighbour))
        return
    for j in range(WIDTH - 1, i, -1):
        _copy_column(state, m, parent, j - 1, j)
    state.child[m, parent, i + 1] = _new(state, m, state.child[m, parent, i] >= state.before.shape[1])
    _balance(state, m, parent, i)


@njit(cache=True)
def _grow(state: OrderState, m: int) -> None:
    """Put a new root above the full one."""
    root = _new(state, m, False)
    state.before[m, root] = _FAR
    state.entry[m, root, 0] = state.before[m, root, 0] = 0
    state.child[m, root, 0] = state.head[m, _ROOT]
    state.head[m, _ROOT] = root
    state.head[m, _HEIGHT] += 1


@njit(cache=True)
def _insert(state: OrderState, m: int, entry: np.uint64) -> None:
    if _full(state, m, state.head[m, _ROOT]):
        _grow(state, m)
    node = state.head[m, _ROOT]
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_of(state, m, node, entry)
        if _full(state, m, int(state.child[m, node, i])):
            _relieve(state, m, node, i)
            i = _column_of(state, m, node, entry)
        _count_after(state, m, node, i, 1)
        node = int(state.child[m, node, i])
    for j in range(WIDTH - 1, 0, -1):
        state.entry[m, node, j] = min(state.entry[m, node, j], max(state.entry[m, node, j - 1], entry))
    state.entry[m, node, 0] = min(state.entry[m, node, 0], entry)
    state.head[m, _SIZE] += 1


@njit(cache=True)
def _delete(state: OrderState, m: int, entry: np.uint64) -> None:
    root = node = state.head[m, _ROOT]
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


@njit(cache=True)
def _set(state: OrderState, m: int, slot: int, key: float) -> None:
    old, new = state.image[m, slot], _image(key)
    if old != new:
        if old:
            _delete(state, m, _entry(old, slot))
        state.image[m, slot] = new
        _insert(state, m, _entry(new, slot))


@njit(cache=True)
def _request_leaf(state: OrderState, m: int, entry: np.uint64) -> None:
    node = state.head[m, _ROOT]
    for _ in range(state.head[m, _HEIGHT]):
        node = int(state.child[m, node, _column_of(state, m, node, entry)])
    row = (m * state.entry.shape[1] + node) * WIDTH
    for j in range(0, WIDTH, 8):
        _request(state.entry, row + j)


@njit(cache=True)
def order_size(state: OrderState, m: int) -> int:
    """Return how many slots of member m are in the order."""
    return state.head[m, _SIZE]


@njit(cache=True)
def order_set(state: OrderState, m: int, slot: int, key: float) -> None:
    """Insert a slot in [0, C), or move it to its new key; NaN counts as +inf."""
    _set(_borrow(state), m, slot, key)


@njit(cache=True)
def order_update(state: OrderState, m: int, slots: NDArray[np.int64], keys: NDArray[np.float32]) -> None:
    """Do `order_set` for each of `slots[B]` and `keys[B]` in turn, faster when memory is the limit."""
    borrowed = _borrow(state)
    for start in range(0, slots.size, _AHEAD):
        stop = min(start + _AHEAD, slots.size)
        if borrowed.image.size > _IN_CACHE:
            for b in range(start, stop):
                _request_leaf(borrowed, m, _entry(borrowed.image[m, slots[b]], slots[b]))
                _request_leaf(borrowed, m, _entry(_image(keys[b]), slots[b]))
        for b in range(start, stop):
            _set(borrowed, m, slots[b], keys[b])


@njit(cache=True)
def order_remove(state: OrderState, m: int, slot: int) -> None:
    """Take a slot out of the order; nothing happens if it is absent."""
    borrowed = _borrow(state)
    old = borrowed.image[m, slot]
    if old:
        _delete(borrowed, m, _entry(old, slot))
        borrowed.image[m, slot] = 0


@njit(cache=True)
def order_select(state: OrderState, m: int, rank: int) -> int:
    """Return the slot at a rank in [0, size): 0 is the largest key, ties by lower slot."""
    node = state.head[m, _ROOT]
    within = np.int32(rank)
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_at(state, m, node, within)
        within = np.int32(within - state.before[m, node, i])
        node = int(state.child[m, node, i])
    return int(state.entry[m, node, within] & np.uint64(0xFFFF_FFFF))


@njit(cache=True)
def order_rank(state: OrderState, m: int, slot: int) -> int:
    """Return the rank of a slot, -1 if it is absent."""
    image = state.image[m, slot]
    entry = _entry(image, slot)
    node = state.head[m, _ROOT]
    rank = 0
    for _ in range(state.head[m, _HEIGHT]):
        i = _column_of(state, m, node, entry)
        rank += state.before[m, node, i]
        node = int(state.child[m, node, i])
    for j in range(WIDTH):
        rank += state.entry[m, node, j] < entry
    return rank if image else -1


@njit(cache=True)
def _load(state: OrderState, m: int, keys: NDArray[np.float32]) -> None:
    """Rebuild member m from its keys `[C]`, NaN for absent slots: sort, then build level upon level."""
    entry = np.empty(keys.size + 1, np.uint64)
    count = 0
    for slot in range(keys.size):
        state.image[m, slot] = 0 if np.isnan(keys[slot]) else _image(keys[slot])
        if state.image[m, slot]:
            entry[count] = _entry(state.image[m, slot], slot)
            count += 1
    entry[:count].sort()
    before = np.arange(count + 1).astype(np.int32)
    child = np.empty(count + 1, np.int32)
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
    """An order over the slots `[0, capacity)` of each of `members` members; slots are absent until set.

    Kernels take `state` and call `order_size`, `order_set`, `order_update`, `order_remove`, `order_select` and
    `order_rank` for one member at a time. They check nothing: slots and ranks must be in range.
    Memory is reserved for the worst case, and used as nodes are.
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
        """Rebuild from keys `[M, C]`, NaN for absent slots; every rank is then what it was when they were taken.

        Raises:
            ValueError: the shape is not `[M, C]`.
        """
        array = np.asarray(keys, np.float32)
        if array.shape != self.state.image.shape:
            raise ValueError(f"keys have shape {array.shape}, the order {self.state.image.shape}")
        for m, row in enumerate(array):
            _load(self.state, m, row)
