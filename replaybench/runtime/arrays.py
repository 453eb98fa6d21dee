"""Array types for annotations, named by dtype, and arrays that begin on a cache line."""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
Scalar: TypeAlias = float | np.floating
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Integers32 = NDArray[np.int32]


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return a C-contiguous array of zeros whose address is a multiple of 64 bytes, the size of a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
