"""The one matrix product under every network: small, register-blocked, the same for forward and backward.

The networks of this field are so small (50 units, batch 16) that a call into a tensor library costs more than
its arithmetic, and batched library kernels reach about half of what this product does. LLVM's vectoriser
keeps no accumulators in registers across the inner loop, so a tile is written in LLVM IR through Numba's
`intrinsic`: up to eight rows × one vector of accumulators, one fused multiply-add per step. LLVM lowers the
vectors to whatever the processor has (AVX-512, AVX2, NEON).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

VECTOR_BYTES = 64
_TILE_ROWS = (8, 4, 2, 1)


def padded(length: int, itemsize: int) -> int:
    """Return `length` rounded up to whole vectors; rows of scratch matrices have this stride."""
    lanes = VECTOR_BYTES // itemsize
    return -(-length // lanes) * lanes


def _tile(rows: int) -> Any:
    """Build the intrinsic for a tile of `rows` × one vector: C[r, :n] = Σ_k A[r, k] · B[k, :]."""

    @intrinsic
    def tile(
        _context: Any, c: Any, c0: Any, ldc: Any, n: Any, a: Any, a0: Any, a_row: Any, a_col: Any, b: Any,
        b0: Any, ldb: Any, depth: Any,
    ) -> Any:  # fmt: skip
        i = types.intp
        signature = types.void(c, i, i, i, a, i, i, i, b, i, i, i)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            c_array, c0, ldc, n, a_array, a0, a_row, a_col, b_array, b0, ldb, depth = args
            c_type, a_type, b_type = signature.args[0], signature.args[4], signature.args[8]

            def data(array_type: Any, value: Any) -> Any:
                return context.make_array(array_type)(context, builder, value).data

            c_data, a_data, b_data = data(c_type, c_array), data(a_type, a_array), data(b_type, b_array)
            itemsize = c_type.dtype.bitwidth // 8
            lanes = VECTOR_BYTES // itemsize
            int32 = ir.IntType(32)
            vector, int32s = ir.VectorType(context.get_data_type(c_type.dtype), lanes), ir.VectorType(int32, lanes)
            mask_type = ir.VectorType(ir.IntType(1), lanes)
            kind = f"v{lanes}f{8 * itemsize}"
            fma = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.{kind}"
            )
            masked_store = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [vector, vector.as_pointer(), int32, mask_type]),
                f"llvm.masked.store.{kind}.p0",
            )

            def splat(scalar: Any, to: Any) -> Any:
                undefined, everywhere = ir.Constant(to, ir.Undefined), ir.Constant(int32s, [0] * lanes)
                first = builder.insert_element(undefined, scalar, ir.Constant(int32, 0))
                return builder.shuffle_vector(first, undefined, everywhere)

            zero = ir.Constant(vector, [0.0] * lanes)
            sums = [cgutils.alloca_once(builder, vector) for _ in range(rows)]
            for partial in sums:
                builder.store(zero, partial)
            row_offsets = [builder.mul(a_row, ir.Constant(a_row.type, r)) for r in range(rows)]
            with cgutils.for_range(builder, depth) as loop:
                address = builder.gep(b_data, [builder.add(b0, builder.mul(loop.index, ldb))])
                b_vector = builder.load(builder.bitcast(address, vector.as_pointer()), align=itemsize)
                column = builder.add(a0, builder.mul(loop.index, a_col))
                for offset, partial in zip(row_offsets, sums, strict=True):
                    scalar = builder.load(builder.gep(a_data, [builder.add(column, offset)]))
                    total = builder.call(fma, [splat(scalar, vector), b_vector, builder.load(partial)])
                    builder.store(total, partial)

            starts = [builder.add(c0, builder.mul(ldc, ir.Constant(ldc.type, r))) for r in range(rows)]
            targets = [builder.bitcast(builder.gep(c_data, [start]), vector.as_pointer()) for start in starts]
            totals = [builder.load(partial) for partial in sums]
            with builder.if_else(builder.icmp_signed(">=", n, ir.Constant(n.type, lanes))) as (whole, part):
                with whole:
                    for total, target in zip(totals, targets, strict=True):
                        builder.store(total, target, align=itemsize)
                with part:
                    lane = ir.Constant(int32s, list(range(lanes)))
                    mask = builder.icmp_signed("<", lane, splat(builder.trunc(n, int32), int32s))
                    for total, target in zip(totals, targets, strict=True):
                        builder.call(masked_store, [total, target, ir.Constant(int32, itemsize), mask])
            return context.get_dummy_value()

        return signature, codegen

    return tile


_tile8, _tile4, _tile2, _tile1 = (_tile(rows) for rows in _TILE_ROWS)


@kernel
def matmul(
    c: NDArray[np.floating], c0: int, ldc: int, rows: int, columns: int,
    a: NDArray[np.floating], a0: int, a_row: int, a_col: int,
    b: NDArray[np.floating], b0: int, ldb: int, depth: int,
) -> None:  # fmt: skip
    """Write C = A · B, with C `[rows, columns]`, A `[rows, depth]`, B `[depth, columns]`.

    Each matrix lies in a flat array, from element `c0`, `a0`, `b0`; `ldc` and `ldb` are row strides, `a_row`
    and `a_col` the strides of A, so A may be read transposed. Rows of B are read in whole vectors: `ldb` must
    be padded (`padded`), what lies in the padding does not matter. C is written exactly. Sums run in the order
    of k, whatever the shapes: results do not depend on what else is computed.

    Write strides of 1 out in calls: Numba then compiles a product in which they are constants, 1.2 times as fast.
    """
    lanes = VECTOR_BYTES // c.itemsize
    for j in range(0, columns, lanes):
        n = columns - j
        r = 0
        while rows - r >= 8:
            _tile8(c, c0 + r * ldc + j, ldc, n, a, a0 + r * a_row, a_row, a_col, b, b0 + j, ldb, depth)
            r += 8
        if rows - r >= 4:
            _tile4(c, c0 + r * ldc + j, ldc, n, a, a0 + r * a_row, a_row, a_col, b, b0 + j, ldb, depth)
            r += 4
        if rows - r >= 2:
            _tile2(c, c0 + r * ldc + j, ldc, n, a, a0 + r * a_row, a_row, a_col, b, b0 + j, ldb, depth)
            r += 2
        if rows - r >= 1:
            _tile1(c, c0 + r * ldc + j, ldc, n, a, a0 + r * a_row, a_row, a_col, b, b0 + j, ldb, depth)
