"""The matrix product of all networks: small, register-blocked, the same for forward and backward.

For networks of this field (50 units, batch 16) the call of a tensor library costs more than its arithmetic. A matrix is
cut into strips of columns (`tiles`). Narrow strips for the last columns overlap columns that are already computed, as
masked stores are slow on AMD's processors. Layers with one or two outputs are dot products.
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
    """Return a padded stride for rows of `length` that lets a column of a large matrix stay in the first-level cache.

    It is an odd number of strips: rows a power of two apart fall on the same few lines of the cache.
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

    Each matrix lies in a flat array, from element `c0`, `a0`, `b0`; `ldc` and `ldb` are row strides, `a_row` and
    `a_col` the strides of A. Rows of B are read in whole vectors: `ldb` must be padded (`padded`); the padding has no
    influence. Sums run in the order of k; where C has one or two rows, as four sums of every fourth.
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
