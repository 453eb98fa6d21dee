"""Checks of the arrays in an HDF5 file before they are read, and compression of arrays.

Checksums detect damage, but not forgery. A forged HDF5 file can refer to other files, run filters and declare any data
size. These checks refuse such files before their data are read.
"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from replaybench.runtime.errors import UserError

CHUNK_BYTES: Final = 1 << 18
LEVEL: Final = 1
"""Compression level of deflate. Level 6 makes noisy floats less than 2 % smaller and takes three times as long."""
DEFLATE_LIMIT: Final = 1032
"""Largest ratio of uncompressed to compressed size that the deflate format can reach."""
_WORTH_BYTES: Final = 4096
_PLAIN_TYPES: Final = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)


def chunk_rows(shape: tuple[int, ...], itemsize: int) -> int:
    """Return the number of rows in each compressed chunk of an array of shape `[members, rows, …]`.

    The result is 0 for an array that is not compressed. Such an array has fewer than two axes, or less than 4 KiB for
    each index of the first axis.
    """
    row_bytes = math.prod(shape[2:]) * itemsize
    if len(shape) < 2 or not shape[0] or shape[1] * row_bytes < _WORTH_BYTES:
        return 0
    return min(shape[1], max(1, CHUNK_BYTES // row_bytes))


def pack(rows: np.ndarray, count: int) -> bytes:
    """Compress up to `count` rows by byte shuffling and deflate, as a chunk of `count` rows padded with zeros."""
    if len(rows) < count:
        rows = np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)])
    numbers = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, rows.itemsize)
    return zlib.compress(np.ascontiguousarray(numbers.T).data, LEVEL)


def unpack(stored: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Decompress a chunk that `pack` compressed, and raise `ValueError` if the number of bytes is wrong."""
    size = math.prod(shape) * dtype.itemsize
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(stored, size + 1)
    except zlib.error as error:
        raise ValueError(f"a packed chunk cannot be unpacked ({error})") from None
    if len(content) != size or not stream.eof or stream.unused_data:
        raise ValueError("a packed chunk does not hold as many bytes as its shape needs")
    planes = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(shape)


@dataclass(frozen=True)
class Stored:
    """The location of an array in an open HDF5 file.

    `address` is the byte address of an uncompressed array. `chunk_rows` is the number of rows in each chunk of a
    compressed array. It is 0 for an uncompressed array.
    """

    dataset: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    address: int = 0
    chunk_rows: int = 0

    def chunk(self, member: int, row: int) -> tuple[int, int]:
        """Return address and size, in bytes, of a member's chunk that begins at `row`, or raise `ValueError`."""
        info = self.dataset.id.get_chunk_info_by_coord((member, row, *(0 for _ in self.shape[2:])))
        if info.byte_offset is None or info.filter_mask:
            raise ValueError("a packed chunk is missing or not packed")
        return info.byte_offset, info.size


def plain_arrays(path: Path, file: h5py.File, end: int) -> dict[str, Stored]:
    """Return the location (`Stored`) of each array in an HDF5 file, by name.

    `end` is the byte address at which the HDF5 content of the file ends.

    Raises:
        UserError: If the file contains anything but numeric arrays, or if an array declares more data than the file
            has.
    """
    arrays, declared = {}, 0
    for name in file:
        dataset = own_item(file, name)
        reason = next(_reasons(dataset), None)
        stored = None if reason else _stored(dataset)
        if stored is None or stored.address + (0 if stored.chunk_rows else _bytes(stored)) > end:
            reason = reason or "claims more data than the file holds"
            raise UserError(f"{path} is not a plain record: {name!r} {reason}")
        arrays[name] = stored
        declared += dataset.id.get_storage_size()
    if declared > end:
        raise UserError(f"{path} is not a plain record: its arrays claim more data than the file holds")
    return arrays


def own_item(group: Any, name: str) -> Any:
    """Return an item of an HDF5 group, or None if it is a link, or a dataset whose data are in other files.

    Links are not opened, because the target may be any file. If the target is a pipe, reading may never end.
    """
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return None
    item = group[name]
    return None if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external) else item


def attribute(item: Any, name: str) -> Any:
    """Return the single number or text in an attribute of an HDF5 item.

    Raise `ValueError` for an array, which could be very large, and for other types, which HDF5 may crash on.
    """
    stored = item.attrs.get_id(name)
    if math.prod(stored.shape or ()) != 1 or stored.get_type().get_class() not in _PLAIN_TYPES:
        raise ValueError(f"its attribute {name!r} is no single number or text")
    return item.attrs[name]


def check_scales(dataset: Any) -> None:
    """Raise `ValueError` unless the attributes that link a dataset to its axes have the types of netCDF files.

    HDF5 reads these attributes into buffers of the size that netCDF files need, whatever the file declares.
    """
    for name in {"CLASS", "NAME"} & set(dataset.attrs):
        attribute(dataset, name)
    if "DIMENSION_LIST" not in dataset.attrs:
        return
    stored = dataset.attrs.get_id("DIMENSION_LIST")
    usual = h5py.h5t.py_create(h5py.vlen_dtype(h5py.ref_dtype), logical=True)
    if stored.shape != (dataset.ndim,) or not stored.get_type().equal(usual):
        raise ValueError(f"{dataset.name!r} does not list its axes as netCDF does")


def _reasons(dataset: Any) -> Iterator[str]:
    """Yield the reasons why an HDF5 item is not a plain numeric array. Cheap checks come first."""
    if not isinstance(dataset, h5py.Dataset):
        yield "is a link, has its data in other files, or is no array"
    # The numbers in the file must have the same bits as the NumPy type.
    usual = h5py.h5t.py_create(dataset.dtype, logical=True)
    if dataset.dtype.kind not in "biuf" or not dataset.id.get_type().equal(usual):
        yield "is not numeric"
    if not dataset.chunks and dataset.id.get_create_plist().get_layout() != h5py.h5d.CONTIGUOUS:
        yield "has an unusual storage layout"
    if dataset.chunks and not _has_own_packing(dataset):
        yield "is packed in a way that replaybench does not use"


def _has_own_packing(dataset: Any) -> bool:
    if dataset.ndim < 2 or not dataset.size:
        return False
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
    first, rows, *rest = dataset.chunks
    whole = first == 1 and 1 <= rows <= dataset.shape[1] and tuple(rest) == dataset.shape[2:]
    return whole and filters == [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]


def _stored(dataset: Any) -> Stored | None:
    """Return the location of an array, or None if the array declares more bytes than the file can contain."""
    shape, dtype, held = dataset.shape, dataset.dtype, dataset.id.get_storage_size()
    if dataset.chunks:
        count = shape[0] * -(-shape[1] // dataset.chunks[1])
        declared = count * math.prod(dataset.chunks) * dtype.itemsize
        if dataset.id.get_num_chunks() != count or declared > DEFLATE_LIMIT * held:
            return None
        return Stored(dataset, shape, dtype, chunk_rows=dataset.chunks[1])
    if math.prod(shape) * dtype.itemsize != held:
        return None
    return Stored(dataset, shape, dtype, address=dataset.id.get_offset() if held else 0)


def _bytes(stored: Stored) -> int:
    return math.prod(stored.shape) * stored.dtype.itemsize
