"""Work inside one row of a node of `replaybench.replay.orders.rank_tree`, in a few vector instructions.

A row begins on a cache line and is named by the flat position of its first element. The functions here load it as one
vector of fixed length. Of loops over so few elements the compiler makes slower scalar code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LEAF: Final = 48
"""Entries of a full leaf."""
INNER: Final = 32
"""Children of a full inner node, a power of two."""


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


def _permuted(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))


def _everywhere(builder: Any, value: Any, lanes: int) -> Any:
    nowhere = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    return _permuted(builder, builder.insert_element(nowhere, value, ir.IntType(32)(0)), nowhere, [0] * lanes)


def _on_row(lanes: int, scalars: int, body: Callable[..., Any], returns: Any = types.void) -> Any:
    """Return a kernel function of an array, the position of a row in it, and scalars of the array's type.

    `body` gets the builder, and the row and every scalar as vectors. It returns the new row, or what is to be returned.
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
        builder.store(result, place, align=64)  # LLVM leaves lines alone whose elements all stay
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
