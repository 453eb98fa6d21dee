"""Write large arrays to a file in pieces, also arrays that are computed part by part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.records.sealed_file import write_at

_PIECE_BYTES: Final = 1 << 21

Key = tuple[int | slice, ...]


class Column(Protocol):
    """A NumPy array or view, or an object that computes its parts when asked.

    An object that computes has the shape `[M, N, …]` and is asked for `[member, start:stop]` with whole numbers, for
    each part once, members and rows in rising order.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """As of a NumPy array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of a NumPy array."""

    def __getitem__(self, key: Any, /) -> Any: ...


def fill(path: Path, extents: list[tuple[int, Column]]) -> None:
    """Write each array, in C order, at its byte address of an existing file."""
    with path.open("r+b", buffering=0) as raw:
        for address, array in extents:
            for key in _keys(array.shape, array.dtype.itemsize, together=isinstance(array, np.ndarray)):
                piece = piece_of(array, key)
                write_at(raw.fileno(), _contiguous(piece).reshape(-1).view(np.uint8).data, address)
                address += piece.nbytes


def piece_of(array: Column, key: Key) -> NDArray[Any]:
    """Return one part of an array.

    Raises:
        ValueError: a computed part has not the shape or type that the array claims.
    """
    piece = np.asarray(array[key])
    due = [len(range(*at.indices(size))) for at, size in zip(key, array.shape, strict=False) if isinstance(at, slice)]
    shape = (*due, *array.shape[len(key) :])
    if piece.shape != shape or piece.dtype != array.dtype:
        raise ValueError(f"part {key} is {piece.dtype}{piece.shape}, not {array.dtype}{shape}")
    return piece


def _keys(shape: tuple[int, ...], itemsize: int, together: bool) -> Iterator[Key]:
    """Cut an array into pieces of bounded size: rows of one member, or, where allowed, small members together."""
    if not shape:
        yield ()
        return
    row_bytes = max(1, math.prod(shape[1:]) * itemsize)
    if len(shape) == 1 or (together and row_bytes <= _PIECE_BYTES):
        step = max(1, _PIECE_BYTES // row_bytes)
        yield from ((slice(start, min(start + step, shape[0])),) for start in range(0, shape[0], step))
        return
    step = max(1, _PIECE_BYTES // max(1, math.prod(shape[2:]) * itemsize))
    for member in range(shape[0]):
        yield from ((member, slice(start, min(start + step, shape[1]))) for start in range(0, shape[1], step))


def _contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Copy a part if it is strided: rows of few numbers as one item each, which NumPy copies much faster."""
    if array.ndim and array.strides[-1] == array.itemsize and not array.flags.c_contiguous:
        array = array.view(np.dtype((np.void, array.shape[-1] * array.itemsize)))
    return np.ascontiguousarray(array)
