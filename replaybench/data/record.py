"""Records: HDF5 files of buffers, checkpoints, scores and solutions of dynamic programming.

A record contains named arrays and one JSON object of metadata. Checksums cover every byte of the file. The format is
described in docs/reference/buffer-format.md.

The HDF5 library writes its internal structures. This module writes the numbers in pieces and reads only the requested
rows. It passes only verified bytes to the library, because damaged structures can crash the library.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import h5py
import numpy as np

from replaybench.data.array_check import LEVEL, Stored, attribute, chunk_rows, pack, plain_arrays, unpack
from replaybench.data.documents import parse_json
from replaybench.data.sealed_file import HEAD, MAGIC, SealedFile, seal, write_at
from replaybench.runtime.atomic import atomic_path
from replaybench.runtime.errors import UserError, no_such_file, unknown

_PIECE_BYTES: Final = 1 << 21

Key = tuple[int | slice, ...]


@dataclass(frozen=True)
class LazyColumn:
    """An array whose parts are computed on request, for writing large arrays to files.

    Members are independent learners. `write_record` requests each part once, in ascending order of members and rows.

    Attributes:
        shape: Shape of the array, `[members, rows, …]`.
        dtype: Type of the elements.
        part: Function that computes the part `[member, start:stop]`, given the pair (member, slice).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    part: Callable[[tuple[int, slice]], np.ndarray]

    def __getitem__(self, where: Any) -> Any:
        return self.part(where)


Column = np.ndarray | LazyColumn


def fill(path: Path, extents: list[tuple[int, Column]]) -> None:
    """Write each array, in C order, at its byte address in an existing file."""
    with path.open("r+b", buffering=0) as raw:
        for address, array in extents:
            for key in _keys(array.shape, array.dtype.itemsize, together=isinstance(array, np.ndarray)):
                piece = _piece(array, key)
                write_at(raw.fileno(), _contiguous(piece).reshape(-1).view(np.uint8).data, address)
                address += piece.nbytes


def _piece(array: Column, key: Key) -> np.ndarray:
    """Return a part of an array, or raise `ValueError` if an object computes a part of the wrong shape or dtype."""
    piece = np.asarray(array[key])
    rows = [len(range(*at.indices(size))) for at, size in zip(key, array.shape, strict=False) if isinstance(at, slice)]
    shape = (*rows, *array.shape[len(key) :])
    if piece.shape != shape or piece.dtype != array.dtype:
        raise ValueError(f"part {key} is {piece.dtype}{piece.shape}, not {array.dtype}{shape}")
    return piece


def _keys(shape: tuple[int, ...], itemsize: int, together: bool) -> Iterator[Key]:
    """Yield the index of each piece of an array, a range of rows of one member or, if `together`, of several."""
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


def _contiguous(array: np.ndarray) -> np.ndarray:
    if array.ndim and array.strides[-1] == array.itemsize and not array.flags.c_contiguous:
        # A copy of short rows is faster if each row is one item.
        array = array.view(np.dtype((np.void, array.shape[-1] * array.itemsize)))
    return np.ascontiguousarray(array)


Compression = Literal["gzip"] | None


@dataclass(frozen=True)
class Header:
    """The description of a record (an HDF5 file with checksums): its metadata, and shapes and dtypes of its arrays.

    Attributes:
        kind: Type of the record, such as `buffer` or `checkpoint`.
        facts: Metadata of the record.
        shapes: Shape of each array, by name of the array.
        dtypes: Dtype of each array as text, such as `<f4`, by name of the array.
    """

    kind: str
    facts: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]


def write_record(
    path: Path, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, Column], compression: Compression = None
) -> None:
    """Write arrays and metadata atomically to a record, which is an HDF5 file with checksums.

    Less than 64 MB of memory is used in addition to the arrays.

    Args:
        path: Path of the record. An existing file is replaced when the new file is complete.
        kind: Type of the record, such as `buffer`.
        facts: Metadata of JSON types.
        arrays: NumPy arrays or objects that compute their parts on request, by name.
        compression: `"gzip"` compresses arrays with at least 4 KiB for each index of the first axis. Writing then takes
            at least six times as long.

    Raises:
        UserError: If the disk is full or the folder cannot be written. An existing file at `path` is then unchanged.
    """
    with atomic_path(path) as temporary:
        with h5py.File(temporary, "w", userblock_size=HEAD) as file:
            file.attrs["kind"], file.attrs["facts"] = kind, json.dumps(facts, sort_keys=True)
            extents = _create_datasets(file, arrays, packed=compression is not None)
        fill(temporary, extents)
        seal(temporary)


class Record:
    """An open record, which is an HDF5 file with checksums whose arrays can be read in part.

    `open_record` opens a record. Only one thread may use an open record.

    Attributes:
        header: Type, metadata, and shapes and dtypes of the arrays.
        sealed: The underlying file with checksums. The attribute `sealed.bytes_read` is the number of bytes read so
            far.
    """

    def __init__(self, path: Path, sealed: SealedFile, view: _SealedView, file: h5py.File) -> None:
        self.path, self.sealed, self._view = path, sealed, view
        self._stored = plain_arrays(path, file, HEAD + sealed.length)
        facts = parse_json(str(attribute(file, "facts")), f"{path} is not a plain record: its facts are no JSON object")
        shapes = {name: stored.shape for name, stored in self._stored.items()}
        dtypes = {name: stored.dtype.str for name, stored in self._stored.items()}
        self.header = Header(str(attribute(file, "kind")), facts, shapes, dtypes)

    def read(self, name: str, member: int | None = None, rows: slice | None = None) -> np.ndarray:
        """Read an array or a part of an array, and verify only the blocks of the file that contain this part.

        Args:
            name: Name of the array.
            member: Index on the first axis, which is then missing in the result. None reads all indices.
            rows: Range of indices on the second axis, without a step. None reads all rows.

        Raises:
            UserError: If the array, member or axis does not exist, `rows` has a step, or the part is damaged.
        """
        if name not in self._stored:
            raise unknown("array", name, self._stored)
        stored = self._stored[name]
        with _errors_in_one_line(self.path, self._view):
            if member is None and rows is None and not stored.chunk_rows:
                return self._read_range(stored, 0, stored.shape)
            if not stored.shape or (rows is not None and len(stored.shape) < 2):
                raise UserError(f"{self.path}: {name} of shape {stored.shape} has no such part")
            if member is not None and not 0 <= member < stored.shape[0]:
                raise UserError(f"{self.path} holds members 0 to {stored.shape[0] - 1} of {name}, not {member}")
            start, stop, step = (rows or slice(None)).indices(stored.shape[1] if len(stored.shape) > 1 else 1)
            if step != 1:
                raise ValueError("only contiguous rows can be read: the step must be 1")
            members = range(stored.shape[0]) if member is None else (member,)
            read = self._unpack_rows if stored.chunk_rows else self._read_rows
            parts = [read(stored, m, start, max(start, stop)) for m in members]
            return parts[0] if member is not None else np.stack(parts)

    def verify(self) -> None:
        """Verify all bytes that have not been read yet, and raise `UserError` if the file is damaged."""
        with _errors_in_one_line(self.path, self._view):
            self.sealed.verify()

    def _read_rows(self, stored: Stored, member: int, start: int, stop: int) -> np.ndarray:
        row = math.prod(stored.shape[2:])
        first = (member * math.prod(stored.shape[1:]) + start * row) * stored.dtype.itemsize
        return self._read_range(stored, first, (stop - start, *stored.shape[2:]) if len(stored.shape) > 1 else ())

    def _read_range(self, stored: Stored, first: int, shape: tuple[int, ...]) -> np.ndarray:
        out = np.empty(shape, stored.dtype)
        if out.size:
            self.sealed.read(stored.address + first - HEAD, out.reshape(-1).view(np.uint8).data)
        return out

    def _unpack_rows(self, stored: Stored, member: int, start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, *stored.shape[2:]), stored.dtype)
        high = stored.chunk_rows
        for first in range(start // high * high, stop, high):
            address, size = stored.chunk(member, first)
            packed = memoryview(bytearray(min(size, self.sealed.length + 1)))
            self.sealed.read(address - HEAD, packed)
            chunk = unpack(packed, stored.dtype, (high, *stored.shape[2:]))
            low, top = max(start, first), min(stop, first + high)
            out[low - start : top - start] = chunk[low - first : top - first]
        return out


@contextmanager
def open_record(path: Path, kind: str | None = None) -> Iterator[Record]:
    """Open a record (an HDF5 file with checksums), and verify everything but the arrays.

    The parts of an array are verified when they are read.

    Args:
        path: Path of the record.
        kind: Required type of the record, such as `buffer`. None accepts every type.

    Raises:
        UserError: If the file is missing, damaged, not a record, or a record of another type.
    """
    if not path.is_file():
        raise no_such_file(path)
    with ExitStack() as stack:
        sealed = SealedFile(path)
        stack.callback(sealed.close)
        view = _SealedView(sealed)
        with _errors_in_one_line(path, view):
            file = stack.enter_context(h5py.File(view, "r"))
            record = Record(path, sealed, view, file)
        if kind is not None and record.header.kind != kind:
            raise UserError(f"{path} is a {record.header.kind} file; a {kind} file is needed here")
        yield record


def read_header(path: Path, kind: str | None = None) -> Header:
    """Return the verified header of a record (an HDF5 file with checksums). Arguments are those of `open_record`."""
    with open_record(path, kind) as record:
        return record.header


def read_record(path: Path, kind: str | None = None) -> tuple[Header, dict[str, np.ndarray]]:
    """Read a record (an HDF5 file with checksums), verify every byte, and return the header and the arrays by name.

    Arguments and errors are those of `open_record`.
    """
    with open_record(path, kind) as record:
        arrays = {name: record.read(name) for name in record.header.shapes}
        record.verify()
        return record.header, arrays


def is_record(path: Path) -> bool:
    """Return whether a file begins with the signature of a record, which is an HDF5 file with checksums."""
    with path.open("rb") as raw:
        return raw.read(len(MAGIC)) == MAGIC


@contextmanager
def _errors_in_one_line(path: Path, view: _SealedView) -> Iterator[None]:
    """Convert an exception of the HDF5 library in the `with` block to a `UserError` with a message of one line.

    If checksums detected damage, that error is raised instead. The new error is raised outside the handler and keeps no
    reference to the library's exception. Such a reference would keep HDF5 handles of the file object open, and HDF5
    crashes when it closes such handles at the interpreter's exit.
    """
    fault: BaseException | None = None
    try:
        yield
    except UserError as error:
        fault = UserError(*error.args)
    except Exception as error:
        if not isinstance(error, OSError | RuntimeError | LookupError | TypeError | ValueError | MemoryError):
            raise
        fault = UserError(f"{path} cannot be read as HDF5: {(str(error) or repr(error)).splitlines()[0]}")
    finally:
        # HDF5 sometimes continues after a failed read, for example when it looks up a name.
        detected, view.fault = view.fault, None
    if detected is not None:
        fault = type(detected)(*detected.args)
    if fault is not None:
        raise fault


def _create_datasets(file: h5py.File, arrays: Mapping[str, Column], packed: bool) -> list[tuple[int, Column]]:
    """Create the datasets, write the compressed ones, and return address and array of each uncompressed one."""
    extents = []
    for name, array in arrays.items():
        rows = chunk_rows(array.shape, array.dtype.itemsize) if packed else 0
        if rows:
            _write_packed(file, name, array, rows)
        else:
            extents.append((_reserve(file, name, array), array))
    return extents


def _reserve(file: h5py.File, name: str, array: Column) -> int:
    """Create a contiguous dataset without writing its numbers, and return the byte address for these numbers."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_obj_track_times(False)  # so that equal content gives equal bytes
    space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = h5py.h5t.py_create(array.dtype, logical=True)
    address: int = h5py.h5d.create(file.id, name.encode(), kind, space, plist).get_offset()
    return address


def _write_packed(file: h5py.File, name: str, array: Column, rows: int) -> None:
    dataset = file.create_dataset(
        name,
        array.shape,
        array.dtype,
        chunks=(1, rows, *array.shape[2:]),
        shuffle=True,
        compression="gzip",
        compression_opts=LEVEL,
    )
    for member, start in itertools.product(range(array.shape[0]), range(0, array.shape[1], rows)):
        part = _piece(array, (member, slice(start, min(start + rows, array.shape[1]))))
        dataset.id.write_direct_chunk((member, start, *(0 for _ in array.shape[2:])), pack(part, rows))


class _SealedView(io.RawIOBase):
    """A file object through which libhdf5 reads a file whose head and table of checksums are hidden.

    Attributes:
        fault: The first exception of a read. The C library may lose the exception before it reaches the caller.
    """

    def __init__(self, sealed: SealedFile) -> None:
        super().__init__()
        self._sealed, self._place = sealed, 0
        self.fault: BaseException | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: HEAD + self._sealed.length}[whence]
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer, with zeros in place of the file's head."""
        # HDF5 skips the zeros and finds its own signature.
        out = memoryview(buffer).cast("B")
        try:
            head = min(max(0, HEAD - self._place), len(out))
            out[:head] = bytes(head)
            if rest := out[head:]:
                self._sealed.read(self._place + head - HEAD, rest)
        except BaseException as error:
            self.fault = self.fault or error
            raise
        self._place += len(out)
        return len(out)
