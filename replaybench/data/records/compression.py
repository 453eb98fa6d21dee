"""Packed arrays: HDF5's own shuffle and deflate filters, computed here so that every chunk is checked first.

An array `[M, N, …]` is cut into chunks `[1, rows, …]`, so that reading a few rows of one member unpacks only those.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES: Final = 1 << 18
LEVEL: Final = 1
"""Noisy floats gain less than 2 % from level 6, which takes three times as long."""
DEFLATE_LIMIT: Final = 1032
"""No deflate stream unpacks to more than this times its own size."""
_WORTH_BYTES: Final = 4096


def chunk_rows(shape: tuple[int, ...], itemsize: int) -> int:
    """Return the rows in a chunk of an array of this shape; 0 if its members hold too little to be packed."""
    row_bytes = math.prod(shape[2:]) * itemsize
    if len(shape) < 2 or not shape[0] or shape[1] * row_bytes < _WORTH_BYTES:
        return 0
    return min(shape[1], max(1, CHUNK_BYTES // row_bytes))


def pack(rows: NDArray[Any], due: int) -> bytes:
    """Pack rows `[r, …]`, filled up with zeros to a chunk of `due` rows."""
    if len(rows) < due:
        rows = np.concatenate([rows, np.zeros((due - len(rows), *rows.shape[1:]), rows.dtype)])
    numbers = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, rows.itemsize)
    return zlib.compress(np.ascontiguousarray(numbers.T).data, LEVEL)


def unpack(stored: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Unpack a chunk of this shape.

    Raises:
        ValueError: `stored` is no deflate stream, or does not hold exactly that many bytes.
    """
    size = math.prod(shape) * dtype.itemsize
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(stored, size + 1)
    except zlib.error as error:
        raise ValueError(f"a packed chunk cannot be unpacked ({error})") from None
    if len(content) != size or not stream.eof or stream.unused_data:
        raise ValueError("a packed chunk does not hold what its shape says")
    planes = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(shape)
