"""Stored experiences of a population: `[M, N]` slots, one contiguous float32 row each.

A row holds all fields of an experience, so that storing or fetching one touches few cache lines; named columns are
views. Where the unit of replay is several steps, a row holds the steps one after the other. Each slot has the serial
number of its occupant (1 = the member's first experience, 0 = empty), by which stale annotations are recognised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.runtime.kernel import kernel


@dataclass(frozen=True)
class LazyColumn:
    """An array `shape` of `dtype` whose parts `[member, start:stop]` come from `part`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    part: Callable[[tuple[int, slice]], NDArray[Any]]

    def __getitem__(self, where: Any) -> Any:
        """Return one part."""
        return self.part(where)


State = dict[str, NDArray[np.generic]]
"""What a resumed run needs, by name; every array begins with M."""
Indices = NDArray[np.int64]


LEAF: Final = 48
"""Entries of a full leaf."""
INNER: Final = 32
"""Children of a full inner node, a power of two."""


def _uncount(typing_context: Any, state: Any) -> Any:
    """Return the state without owners, so that Numba counts no references; the caller's arguments keep it alive."""

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


def _permuted(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))


def _everywhere(builder: Any, value: Any, lanes: int) -> Any:
    nowhere = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    return _permuted(builder, builder.insert_element(nowhere, value, ir.IntType(32)(0)), nowhere, [0] * lanes)


def _on_row(lanes: int, scalars: int, body: Callable[..., Any], returns: Any = types.void) -> Any:
    """Return a kernel function of an array, the position of a row in it, and scalars of the array's type.

    `body` gets the builder, and the row and every scalar as vectors. It returns the new row, or the function's result.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = signature.args[0]
        element = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        vector = ir.VectorType(context.get_data_type(array.dtype), lanes)
        place = builder.bitcast(element, vector.as_pointer())
        vectors = [_everywhere(builder, value, lanes) for value in args[2:]]
        result = body(builder, builder.load(place, align=64), *vectors)
        if returns is not types.void:
            return result
        builder.store(result, place, align=64)  # LLVM does not write cache lines whose elements are all masked
        return context.get_dummy_value()

    def one(typing_context: Any, array: Any, position: Any, value: Any) -> Any:
        return returns(array, types.int64, array.dtype), codegen

    def two(typing_context: Any, array: Any, position: Any, value: Any, other: Any) -> Any:
        return returns(array, types.int64, array.dtype, array.dtype), codegen

    return intrinsic(one if scalars == 1 else two)


def _hits(builder: Any, hits: Any) -> Any:
    return builder.zext(builder.ctpop(builder.bitcast(hits, ir.IntType(hits.type.count))), ir.IntType(64))


def _count_unsigned(builder: Any, row: Any, value: Any) -> Any:
    return _hits(builder, builder.icmp_unsigned("<=", row, value))


def _count_signed(builder: Any, row: Any, value: Any) -> Any:
    return _hits(builder, builder.icmp_signed("<=", row, value))


def _insert(builder: Any, row: Any, value: Any) -> Any:
    before = _permuted(builder, value, row, [0, *range(row.type.count, 2 * row.type.count - 1)])
    shifted = builder.select(builder.icmp_unsigned(">", before, value), before, value)
    return builder.select(builder.icmp_unsigned("<", row, value), row, shifted)


def _remove(builder: Any, row: Any, value: Any) -> Any:
    nothing = ir.Constant(row.type, [-1] * row.type.count)
    after = _permuted(builder, row, nothing, list(range(1, row.type.count + 1)))
    return builder.select(builder.icmp_unsigned("<", row, value), row, after)


def _add_after(builder: Any, row: Any, column: Any, change: Any) -> Any:
    places = ir.Constant(row.type, list(range(row.type.count)))
    padding = ir.Constant(row.type, [2**31 - 1] * row.type.count)
    follows = builder.and_(builder.icmp_signed(">", places, column), builder.icmp_signed("!=", row, padding))
    return builder.select(follows, builder.add(row, change), row)


borrow: Any = intrinsic(_uncount)
request: Any = intrinsic(_prefetch)
count_leaf: Any = _on_row(LEAF, 1, _count_unsigned, types.int64)
"""How many uint64 of the row are at most the value."""
count_inner: Any = _on_row(INNER, 1, _count_unsigned, types.int64)
count_before: Any = _on_row(INNER, 1, _count_signed, types.int64)
insert_leaf: Any = _on_row(LEAF, 1, _insert)
"""Insert the value into the ascending row, whose last element falls out."""
remove_leaf: Any = _on_row(LEAF, 1, _remove)
"""Take the value out of the ascending row; the last element becomes all ones."""
add_after: Any = _on_row(INNER, 2, _add_after)
"""Add the second value to all elements beyond the column that is the first, but not to padding."""


_AHEAD: Final = 8  # rows prefetched in advance


class Columns:
    """Arrays for `capacity` experiences of each member.

    Args:
        members, capacity: M and N.
        fields: width of each field, in storage order.
        steps: steps in a row.

    Attributes:
        rows: float32 `[M, N, steps · W]`; memory is reserved at once but only touched when written.
        serial: uint32 `[M, N]`.
        spans: where each field lies in the W numbers of a step.
    """

    def __init__(self, members: int, capacity: int, fields: Mapping[str, int], steps: int = 1) -> None:
        self.fields, self.steps = dict(fields), steps
        ends = np.cumsum(list(self.fields.values())).tolist()
        self.width = int(ends[-1])
        self.spans = {
            name: slice(end - width, end) for (name, width), end in zip(self.fields.items(), ends, strict=True)
        }
        self.rows = aligned_zeros((members, capacity, steps * self.width), np.float32)
        self.serial = aligned_zeros((members, capacity), np.uint32)

    def column(self, name: str) -> NDArray[np.float32]:
        """Return the view `[M, N, width]` of one field; `[M, N, steps, width]` where a row holds several steps."""
        return self.views(self.rows)[name]

    def views(self, rows: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Split rows `[M, B, steps · W]` into named views `[M, B, (steps,) width]`."""
        if self.steps > 1:
            rows = rows.reshape(*rows.shape[:2], self.steps, self.width)
        return {name: rows[..., span] for name, span in self.spans.items()}


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """Return zeros that begin on a cache line; untouched memory is not used."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


@kernel
def write(
    rows: NDArray[np.float32],
    serial: NDArray[np.uint32],
    slots: NDArray[np.int64],
    serials: NDArray[np.int64],
    new: NDArray[np.float32],
    count: NDArray[np.int64],
) -> None:
    """Store row `new[m]` as experience number `serials[m]` of each member whose slot is not −1.

    A slot after the `count[m]` slots in use increases the count.
    """
    for m in range(slots.size):
        if slots[m] >= 0:
            count[m] += slots[m] == count[m]
            for w in range(new.shape[1]):  # assigning a row takes four times as long to compile
                rows[m, slots[m], w] = new[m, w]
            serial[m, slots[m]] = serials[m]


@kernel
def gather(
    rows: NDArray[np.float32],
    serial: NDArray[np.uint32],
    idx: NDArray[np.int64],
    out: NDArray[np.float32],
    out_serial: NDArray[np.uint32],
) -> None:
    """Fetch slots idx `[M, B]` into out `[M, B, steps · W]` with their serial numbers `[M, B]`."""
    members, batch = idx.shape
    capacity, width = rows.shape[1], rows.shape[2]
    for m in range(members):
        for b in range(min(_AHEAD, batch)):
            request(rows, (m * capacity + idx[m, b]) * width)
            request(serial, m * capacity + idx[m, b])
        for b in range(batch):
            if b + _AHEAD < batch:
                request(rows, (m * capacity + idx[m, b + _AHEAD]) * width)
                request(serial, m * capacity + idx[m, b + _AHEAD])
            slot = idx[m, b]
            out_serial[m, b] = serial[m, slot]
            for w in range(width):
                out[m, b, w] = rows[m, slot, w]
