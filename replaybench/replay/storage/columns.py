"""Stored experiences of a population: `[M, N]` slots, one contiguous float32 row each.

A row holds all fields of an experience, so that storing or fetching one touches few cache lines; named columns are
views. Where the unit of replay is several steps, a row holds the steps one after the other. Each slot has the serial
number of its occupant (1 = the member's first experience, 0 = empty), by which stale annotations are recognised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.runtime.arrays import Floats32, Integers, aligned_zeros
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
"""The arrays that a resumed run needs, by name; the first axis of each is M."""
Indices = Integers


def _uncount(typing_context: Any, state: Any) -> Any:
    """Return arrays without owners, so that Numba counts no references; the caller's arguments keep them alive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        borrowed = args[0]
        for i, kind in enumerate(state.types):
            view = context.make_array(kind)(context, builder, builder.extract_value(args[0], i))
            view.meminfo, view.parent = view.meminfo.type(None), view.parent.type(None)
            borrowed = builder.insert_value(borrowed, view._getvalue(), i)
        return borrowed

    return state(state), codegen


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Prefetch the cache line of the element at a flat position; results do not depend on this."""

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
_AHEAD: Final = 8  # rows prefetched in advance


class Columns:
    """Arrays for `capacity` experiences of each member.

    Args:
        members, capacity: M and N.
        fields: width of each field, in storage order.
        steps: number of steps in a row.

    Attributes:
        rows: float32 `[M, N, steps · W]`; the system allocates memory when rows are first written.
        serial: uint32 `[M, N]`.
        spans: position of each field among the W numbers of a step.
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

    def column(self, name: str) -> Floats32:
        """Return the view `[M, N, width]` of one field; `[M, N, steps, width]` where a row holds several steps."""
        return self.views(self.rows)[name]

    def views(self, rows: Floats32) -> dict[str, Floats32]:
        """Split rows `[M, B, steps · W]` into named views `[M, B, (steps,) width]`."""
        if self.steps > 1:
            rows = rows.reshape(*rows.shape[:2], self.steps, self.width)
        return {name: rows[..., span] for name, span in self.spans.items()}


@kernel
def write(
    rows: Floats32, serial: NDArray[np.uint32], slots: Integers, serials: Integers, new: Floats32, count: Integers
) -> None:
    """Store row `new[m]` as experience number `serials[m]` of each member whose slot is not −1.

    Storing in the first free slot, `count[m]`, increases the count.
    """
    for m in range(slots.size):
        if slots[m] >= 0:
            count[m] += slots[m] == count[m]
            for w in range(new.shape[1]):  # assigning a row takes four times as long to compile
                rows[m, slots[m], w] = new[m, w]
            serial[m, slots[m]] = serials[m]


@kernel
def gather(
    rows: Floats32, serial: NDArray[np.uint32], idx: Integers, out: Floats32, out_serial: NDArray[np.uint32]
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
