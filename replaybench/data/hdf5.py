"""Records: the project's one kind of HDF5 file, for buffers, checkpoints, scores and solutions.

A record is a flat set of named arrays and one JSON object of facts. Its first 512 bytes, which HDF5 leaves to the
user (the "user block"), say what it is and carry a BLAKE2 checksum of all that follows. The checksum is verified
before the HDF5 library sees the file, because damaged metadata can crash that library. Files are data from
strangers: external, virtual, packed or reference-typed content is refused before it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from replaybench.data.atomic import atomic_path
from replaybench.data.errors import UserError

FORMAT = "replaybench record 1"
_USER_BLOCK = 512
_BLOCK_BYTES = 1 << 24

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Header:
    """What a record says of itself: its kind (`buffer`, `checkpoint`, …), its facts and its arrays' shapes."""

    kind: str
    facts: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]


def write_record(path: Path, kind: str, facts: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a record atomically; arrays may be strided views and are copied block by block only."""
    with atomic_path(path) as temporary:
        with h5py.File(temporary, "w", userblock_size=_USER_BLOCK) as file:
            file.attrs["kind"], file.attrs["facts"] = kind, json.dumps(facts, sort_keys=True)
            for name, array in arrays.items():
                dataset = file.create_dataset(name, array.shape, array.dtype)
                for where in _blocks(array.shape, array.itemsize):
                    dataset[where] = array[where]
        with temporary.open("r+b") as raw:
            mark = f"{FORMAT}\n{_digest(raw)}\n".encode()
            raw.seek(0)
            raw.write(mark)


def read_header(path: Path, kind: str | None = None) -> Header:
    """Read what a record says of itself, its checksum verified.

    Raises:
        UserError: the file is missing, damaged, foreign or not of this `kind`.
    """
    with _opened(path) as file:
        return _header(path, file, kind)


def read_record(path: Path, kind: str | None = None) -> tuple[Header, dict[str, NDArray[Any]]]:
    """Read a record whole, its checksum verified; raises as `read_header`."""
    with _opened(path) as file:
        header = _header(path, file, kind)
        return header, {name: file[name][...] for name in header.shapes}


def is_record(path: Path) -> bool:
    """Tell whether a file bears this project's mark."""
    with path.open("rb") as raw:
        return raw.read(len(FORMAT)) == FORMAT.encode()


def _digest(raw: BinaryIO) -> str:
    raw.seek(_USER_BLOCK)
    content = hashlib.blake2b(digest_size=32)
    while block := raw.read(_BLOCK_BYTES):
        content.update(block)
    return content.hexdigest()


def _blocks(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[Any, ...]]:
    """Cut an array into pieces of bounded size: along its first axis, and where one row is too large, its second."""
    if not shape:
        yield ()
        return
    row_bytes = max(1, math.prod(shape[1:]) * itemsize)
    if row_bytes <= _BLOCK_BYTES or len(shape) == 1:
        rows = max(1, _BLOCK_BYTES // row_bytes)
        for start in range(0, shape[0], rows):
            yield (slice(start, start + rows),)
        return
    step = max(1, _BLOCK_BYTES // (row_bytes // shape[1]))
    for first in range(shape[0]):
        for start in range(0, shape[1], step):
            yield first, slice(start, start + step)


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open a record for reading; any failure of the library becomes one line about the file."""
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    with path.open("rb") as raw:
        mark = raw.read(_USER_BLOCK).split(b"\n", 2)
        if mark[0] != FORMAT.encode():
            raise UserError(f"{path} is not a file that replaybench wrote (no {FORMAT!r} mark at its start)")
        if mark[1:2] != [_digest(raw).encode()]:
            raise UserError(f"{path} is damaged: its checksum does not match; restore it or make it again")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, MemoryError) as error:
        raise UserError(f"{path} cannot be read as HDF5: {str(error).splitlines()[0]}") from error


def _header(path: Path, file: h5py.File, kind: str | None) -> Header:
    shapes, dtypes = {}, {}
    for name in file:
        link, dataset = file.get(name, getlink=True), file.get(name)
        plain = isinstance(link, h5py.HardLink) and isinstance(dataset, h5py.Dataset)
        if not plain or dataset.is_virtual or dataset.external or dataset.chunks or dataset.dtype.kind not in "biuf":
            raise UserError(f"{path} is not a plain record: {name!r} is linked, virtual, packed or not numeric")
        if dataset.id.get_storage_size() != dataset.size * dataset.dtype.itemsize:
            raise UserError(f"{path} is not a plain record: {name!r} claims more data than the file holds")
        shapes[name], dtypes[name] = dataset.shape, dataset.dtype.str
    found = str(file.attrs["kind"])
    if kind is not None and found != kind:
        raise UserError(f"{path} is a {found} file; a {kind} file is needed here")
    return Header(found, json.loads(file.attrs["facts"]), shapes, dtypes)
