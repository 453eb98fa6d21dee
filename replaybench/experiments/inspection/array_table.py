"""Table rows of the arrays of a record, and checks of a buffer's values; arrays are read in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.records.record import Record
from replaybench.replay.files.buffer_schema import BufferFile

_PART: Final = 1 << 24


def parts(record: Record, name: str) -> Iterator[NDArray[Any]]:
    """Yield an array in pieces of at most 16 MB, or of one row."""
    shape, size = record.header.shapes[name], np.dtype(record.header.dtypes[name]).itemsize
    if math.prod(shape) * size <= _PART or len(shape) < 2:
        yield record.read(name)
        return
    high = max(1, _PART // (math.prod(shape[2:]) * size))
    for m in range(shape[0]):
        for start in range(0, shape[1], high):
            yield record.read(name, m, slice(start, start + high))


def array_row(name: str, shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> tuple[str, ...]:
    """Return name, shape and dtype of an array, and minimum, mean and maximum of its finite values."""
    low, high, total, count, dtype = np.inf, -np.inf, 0.0, 0, ""
    for part in pieces:
        finite = part[np.isfinite(part)] if part.dtype.kind == "f" else part
        dtype, count = str(part.dtype), count + finite.size
        if finite.size:
            low, high = min(low, finite.min()), max(high, finite.max())
            total += finite.sum(dtype=np.float64)
    known = count > 0 and len(shape) > 0
    values = [f"{float(value):.6g}" for value in (low, total / count, high)] if known else ["–"] * 3
    return (name, " × ".join(map(str, shape)), dtype, *values)


def check_buffer(file: BufferFile) -> None:
    """Check that serial numbers are distinct and within the range of those collected.

    Raises:
        UserError: they are not.
    """
    for m, (stored, collected) in enumerate(zip(file.count, file.collected, strict=True)):
        serial = file.record.read("serial", m, slice(0, int(stored)))
        if len(np.unique(serial)) != stored or (stored and (serial.min() < 1 or serial.max() > collected)):
            raise UserError(f"{file.path}: member {m} has repeated or impossible serial numbers")
