"""Small arrays on the stack, which a kernel's inner loop can hold in registers.

`np.empty` asks an allocator for memory that the compiler must then take for real, and counts references to it. These
are seen through: where all places that are read and written are known, there is no array left.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def scratch(typing_context: Any, size: Any) -> Any:
    """An uninitialised float64 array of a constant size, which must not outlive the function that asks for it."""
    return _on_stack(types.float64, size)


@intrinsic
def scratch_bits(typing_context: Any, size: Any) -> Any:
    """The same of int64."""
    return _on_stack(types.int64, size)


def _on_stack(dtype: Any, size: Any) -> Any:
    if not isinstance(size, types.IntegerLiteral):
        return None  # Numba says that there is no such function for this
    count, row = size.literal_value, types.Array(dtype, 1, "C")

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, context.get_value_type(dtype), size=count)
        made = context.make_array(row)(context, builder)
        context.populate_array(
            made,
            data=place,
            shape=[context.get_constant(types.intp, count)],
            strides=[context.get_constant(types.intp, 8)],
            itemsize=context.get_constant(types.intp, 8),
            meminfo=None,  # nothing counts references to it
        )
        return made._getvalue()

    return row(types.literal(count)), generate
