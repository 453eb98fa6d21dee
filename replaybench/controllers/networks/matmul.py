"""The one matrix product under every network: small, register-blocked, the same for forward and backward.

The networks of this field are so small (50 units, batch 16) that a call into a tensor library costs more than
its arithmetic, and batched library kernels reach about half of what this product does. `tiles` has what is done to a
strip of columns; here a matrix is cut into strips.

What paid, on a core with AVX2: tiles of six rows × two vectors, where eight rows spilled sums into memory; rows cut
into tiles of almost one size, so that none is left with a sum or two that wait for each other; narrow strips for the
rest of the columns, laid over columns that were computed before rather than masked, as AMD's masked stores are slow;
dot products where a layer has an output or two; transposition in registers. What did not: Adam by reciprocal square
roots with Newton steps, slower there than one square root and one division.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from replaybench.controllers.networks.tiles import BLOCK_BYTES, STRIP_BYTES, narrow_strip, wide_strip
from replaybench.data.kernel import kernel

_CLOSE = 8
"""Up to so many strips a row, a column of as many rows as networks have there fits the cache in any case."""


@register_jitable
def padded(length: int, itemsize: int) -> int:
    """Return `length` rounded up to whole strips; rows of scratch matrices have this stride, or `spread`."""
    lanes = STRIP_BYTES // itemsize
    return -(-length // lanes) * lanes


def spread(length: int, itemsize: int) -> int:
    """Return a stride for rows of `length`, padded, that lets a column of a large matrix stay in the first-level cache.

    There, rows a power of two apart fall on the same few lines, so that the stride is an odd number of strips.
    """
    strips = padded(length, itemsize) * itemsize // STRIP_BYTES
    apart = strips > _CLOSE and strips % 2 == 0
    return (strips + apart) * STRIP_BYTES // itemsize


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
    of k; where C has one or two rows, as four sums of every fourth. Results do not depend on what else is computed.
    """
    wide, narrow = STRIP_BYTES // c.itemsize, BLOCK_BYTES // c.itemsize
    j = 0
    while j < columns:
        if columns - j >= wide:
            wide_strip(c, c0 + j, ldc, rows, wide, a, a0, a_row, a_col, b, b0 + j, ldb, depth)
            j += wide
        else:
            n = min(narrow, columns)
            j = min(j, columns - n)
            narrow_strip(c, c0 + j, ldc, rows, n, a, a0, a_row, a_col, b, b0 + j, ldb, depth)
            j += n
