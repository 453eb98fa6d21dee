"""MATLAB files of version 7.3: HDF5 with MATLAB's attributes, matrices transposed.

Only plain datasets of numbers are read, and none before its declared size is granted: references, links and data in
other files are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from replaybench.data.logs import matlab_variables
from replaybench.data.logs.matlab_variables import Value, Variables
from replaybench.data.logs.table import Budget, printable
from replaybench.data.records.array_check import attribute, own_item

HDF5_MARK: Final = b"\x89HDF\r\n\x1a\n"

_NUMERIC: Final = (
    "",
    "double",
    "single",
    "logical",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
_UNREAD: Final = {
    "cell": matlab_variables.CELL,
    "char": matlab_variables.TEXT,
    "function_handle": matlab_variables.FUNCTION,
}
_ELSEWHERE: Final = "its numbers are not in this file; save it again, into one file"


def read_mat73(path: Path, budget: Budget) -> Variables:
    """Read the variables of a file.

    Raises:
        UserError: it holds too much.
        OSError, RuntimeError, LookupError, TypeError, ValueError: it is damaged.
    """
    with h5py.File(path, "r") as file:
        return _members(file, budget, 0)


def _members(group: Any, budget: Budget, depth: int) -> Variables:
    found: Variables = {}
    for name in group:
        if name.startswith("#"):  # what cells and objects refer to
            continue
        budget.name()
        item = own_item(group, name)
        found[printable(name)] = _ELSEWHERE if item is None else _value(item, budget, depth)
    return found


def _value(item: Any, budget: Budget, depth: int) -> Value:
    kind = _class_of(item)
    if kind in _UNREAD:
        return _UNREAD[kind]
    if isinstance(item, h5py.Group):
        if "MATLAB_sparse" in item.attrs:
            return matlab_variables.SPARSE
        if kind not in ("", "struct"):
            return matlab_variables.an_object(kind)
        return matlab_variables.TOO_DEEP if depth == matlab_variables.DEEPEST else _members(item, budget, depth + 1)
    if not isinstance(item, h5py.Dataset):
        return "it is no array"
    if "MATLAB_empty" in item.attrs or not item.size:
        return matlab_variables.EMPTY
    if kind not in _NUMERIC:
        return matlab_variables.STRUCT_ARRAY if kind == "struct" else matlab_variables.an_object(kind)
    if item.dtype.names:
        return matlab_variables.COMPLEX
    if h5py.check_ref_dtype(item.dtype):
        return matlab_variables.STRUCT_ARRAY
    if item.dtype.kind not in "biuf":
        return "it holds no numbers"
    budget.take_dataset(item)
    return matlab_variables.matrix(np.asarray(item[...], np.float64).T)


def _class_of(item: Any) -> str:
    name = attribute(item, "MATLAB_class") if "MATLAB_class" in item.attrs else b""
    return printable(name.decode("latin-1") if isinstance(name, bytes) else str(name))
