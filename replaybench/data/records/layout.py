"""The layout of a record: which array lies where, decided by the HDF5 library before any number is written."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import h5py

from replaybench.data.records.array_writer import Column, piece_of
from replaybench.data.records.compression import LEVEL, chunk_rows, pack


def lay_out(file: h5py.File, arrays: Mapping[str, Column], packed: bool) -> list[tuple[int, Column]]:
    """Make a dataset of each array: write those that are worth packing, set room aside for the others.

    Returns:
        The byte address in the file of each array that is yet to be written.
    """
    extents = []
    for name, array in arrays.items():
        rows = chunk_rows(array.shape, array.dtype.itemsize) if packed else 0
        if rows:
            _write_packed(file, name, array, rows)
        else:
            extents.append((_reserve(file, name, array), array))
    return extents


def _reserve(file: h5py.File, name: str, array: Column) -> int:
    """Make a contiguous dataset, its room set aside but not written; return its address."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_obj_track_times(False)  # equal content, equal bytes
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
        part = piece_of(array, (member, slice(start, min(start + rows, array.shape[1]))))
        dataset.id.write_direct_chunk((member, start, *(0 for _ in array.shape[2:])), pack(part, rows))
