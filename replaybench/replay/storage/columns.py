"""Stored experiences of a population, one contiguous float32 row for each of N slots of M members.

A row contains all fields of an experience, so that storing or reading an experience touches few cache lines. Named
columns are views of the rows. If an experience is a segment of several steps, a row contains the steps one after the
other. Each slot has the serial number of its experience. The number is 1 for the member's first experience, and 0 for
an empty slot. It shows whether an experience was overwritten since it was sampled.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.runtime.arrays import Floats32, Integers, aligned_zeros
from replaybench.runtime.kernel import kernel

State = dict[str, NDArray[np.generic]]
"""The arrays that a resumed run needs, by name. The first axis of each array is that of the members."""
Indices = Integers


def _uncount(typing_context: Any, state: Any) -> Any:
    """Return arrays without reference counts. The caller must keep the original arrays alive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        borrowed = args[0]
        for i, kind in enumerate(state.types):
            view = context.make_array(kind)(context, builder, builder.extract_value(args[0], i))
            view.meminfo, view.parent = view.meminfo.type(None), view.parent.type(None)
            borrowed = builder.insert_value(borrowed, view._getvalue(), i)
        return borrowed

    return state(state), codegen


def _prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Prefetch the cache line of an array element, given by its index in the flat array."""

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
    """Storage for `capacity` experiences (or segments) of each of M independent learners (members).

    Args:
        members: Number of members M.
        capacity: Number of slots N of each member.
        fields: Number of values of each field, by name, in storage order.
        steps: Number of steps in a slot. It is above 1 if an experience is a segment of several steps.

    Attributes:
        rows: Stored values; float32, shape `[M, N, steps · W]` for W values per step. The operating system allocates
            memory when rows are first written.
        serial: Number, in order of collection, of the experience in each slot; uint32, shape `[M, N]`. It is 0 if the
            slot is empty.
        spans: Position of each field among the W values of a step, as a slice, by name.
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
        """Return a view of one field, shape `[M, N, width]`, or `[M, N, steps, width]` if slots hold several steps."""
        return self.views(self.rows)[name]

    def views(self, rows: Floats32) -> dict[str, Floats32]:
        """Split rows of B samples into a view of each field, shape `[M, B, width]` or `[M, B, steps, width]`."""
        if self.steps > 1:
            rows = rows.reshape(*rows.shape[:2], self.steps, self.width)
        return {name: rows[..., span] for name, span in self.spans.items()}


@kernel
def write(
    rows: Floats32, serial: NDArray[np.uint32], slots: Integers, serials: Integers, new: Floats32, count: Integers
) -> None:
    """Store a new experience in slot `slots[m]` of the m-th buffer, unless `slots[m]` is −1.

    The experience has the values `new[m]` and the serial number `serials[m]`. If the slot is the first free one, the
    number of filled slots, `count[m]`, increases.
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
    """Copy sampled experiences and their serial numbers from the buffer to a batch.

    `idx` contains the slots of B samples from each of M buffers, shape `[M, B]`. The values are written to `out`, shape
    `[M, B, steps · W]`. The serial numbers are written to `out_serial`, shape `[M, B]`.
    """
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
