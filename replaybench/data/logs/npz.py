"""Logs as NumPy archives: one 1-D array of numbers per column. Nothing in them is unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.logs import table
from replaybench.data.logs.table import Budget, Floats, Table, refuse_doubles


def read_npz(path: Path) -> Table:
    """Read an archive; what is no 1-D array of numbers is unusable.

    Raises:
        UserError: it unpacks to too much, or columns have one name.
    """
    budget = Budget(path)
    values: list[tuple[str, Floats | str]] = []
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > table.MAX_BYTES:
            raise UserError(f"{path} unpacks to {size / 2**30:.3g} GiB; split it into logs of at most 1 GiB")
        refuse_doubles(path, [member.filename for member in members])
        for member in members:
            with archive.open(member) as file:
                values.append((member.filename.removesuffix(".npy"), _read_npy(file, member.file_size, budget)))
    return Table.of(values)


def _read_npy(file: IO[bytes], size: int, budget: Budget) -> Floats | str:
    """Read one array of `size` bytes in an archive, or say why it cannot be a column."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        return f"it is stored in .npy version {version[0]}.{version[1]}, which only structured arrays need"
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        return "it holds pickled Python objects, which are never loaded; save it as plain numbers"
    if dtype.kind not in "biuf" or len(shape) != 1:
        return f"it is an array {list(shape)} of {dtype}; save one 1-D array of numbers per column"
    if shape[0] * dtype.itemsize != size - file.tell():
        return "it is damaged: it does not hold as many values as it declares"
    budget.take(8 * shape[0])
    return np.frombuffer(file.read(), dtype).astype(np.float64)
