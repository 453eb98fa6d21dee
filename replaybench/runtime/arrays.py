"""Array types by dtype, for annotations, and arrays that start on a cache line."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Integers32 = NDArray[np.int32]

_LINE_BYTES = 64


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> AnyFloats:
    """Return zeros that start on a cache line, so that vectors of padded rows do not cross one.

    NumPy aligns to 16 bytes; matrix products on such rows take up to a quarter longer.
    """
    item, count = np.dtype(dtype).itemsize, math.prod(shape)
    room = np.zeros(count + _LINE_BYTES // item, dtype)
    start = -room.ctypes.data % _LINE_BYTES // item
    return room[start : start + count].reshape(shape)
