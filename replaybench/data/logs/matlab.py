"""Reader of logs in MATLAB files of version 5 to 7.3.

A log has T rows. A vector (1×T or T×1) is a column of the log. A matrix with T rows gives one column of the log for
each of its columns, named as in MATLAB, for example `x(:,2)`. A matrix with T columns gives one column of the log for
each of its rows, for example `x(2,:)`. Fields of a struct are named `name.field`, or only `field` if the file has no
other struct and no variable of that name. T is the length of the vector of times, or else the length of at least two
vectors that hold the most numbers in total. Variables of other lengths are listed as unusable.

Files of versions 5 to 7 are read here, because SciPy's `loadmat` ends the process with a segmentation fault on 20,000
nested cell arrays, and reserves 8 GiB for a file of 184 bytes.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import h5py
import numpy as np

from replaybench.data.array_check import attribute, own_item
from replaybench.data.logs.table import Budget, Table, aligned, printable, refuse_doubles
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError

Value: TypeAlias = "Floats | str | dict[str, Value]"
"""The content of a variable: a float64 matrix `[rows, columns]`, the reason why there is no matrix, or a struct."""
Variables: TypeAlias = dict[str, Value]

DEEPEST: Final = 8
"""Largest depth of nested structs that are read."""
TOO_DEEP: Final = f"it lies more than {DEEPEST} structs deep"
CELL: Final = "it is a cell array; save each vector as a variable of its own"
TEXT: Final = "it is text"
EMPTY: Final = "it is empty"
SPARSE: Final = "it is sparse; save full(…) of it"
FUNCTION: Final = "it is a function"
COMPLEX: Final = "it is complex; save real(…) and imag(…) of it"
STRUCT_ARRAY: Final = "it is an array of structs; save one struct of vectors"


def _object_reason(name: str) -> str:
    """Return the reason why an object of a MATLAB class, such as a timeseries, is not read."""
    return f"it is a MATLAB {name or 'object'}, which only MATLAB reads; save its vectors, as in t = x.Time; y = x.Data"


def matrix(values: Floats) -> Floats | str:
    """Return an array as a matrix, or the reason, as text, why it cannot be one."""
    if not values.size:
        return EMPTY
    if values.ndim > 2:
        long = tuple(length for length in values.shape if length > 1)
        if len(long) > 2:
            return f"it is an array of {'×'.join(map(str, values.shape))}; save its columns as vectors"
        return values.reshape((*long, 1, 1)[:2], order="F")
    return np.atleast_2d(values)


MAT5_MARKS: Final = (b"\x00\x01IM", b"\x01\x00MI")
"""Bytes 124 to 127 of a little-endian and of a big-endian file of version 5 to 7."""

_HEADER: Final = 128
_TYPES: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _OBJECT, _OPAQUE = 2, 3, 17
_NUMERIC: Final = range(6, 16)
_COMPLEX: Final = 0x800
_UNREAD: Final = {1: CELL, 4: TEXT, 5: SPARSE, 16: FUNCTION}
_CUT: Final = "it is damaged: a variable is cut off"

_Element = tuple[int, memoryview]


def read_mat5(path: Path, budget: Budget) -> Variables:
    """Read the variables of a MATLAB file of version 5 to 7, by name."""
    if path.stat().st_size > budget.left:
        raise UserError(f"{path} is larger than {budget.left / 2**30:.3g} GiB; split it into logs")
    content = memoryview(path.read_bytes())
    reader = _Reader("<" if content[124:128].tobytes() == MAT5_MARKS[0] else ">", budget)
    variables = [reader.variable(*element) for element in reader.elements(content[_HEADER:])]
    refuse_doubles(path, [name for name, _ in variables])
    return {name: value for name, value in variables if name}  # data of objects have no name


class _Reader:
    """A reader of the data elements of one file with a known byte order, `<` or `>`."""

    def __init__(self, order: str, budget: Budget) -> None:
        self._order, self._budget = order, budget

    def elements(self, body: memoryview) -> Iterator[_Element]:
        """Yield the type number and the content of each data element in `body`, in order."""
        at = 0
        while at + 8 <= len(body):
            kind, size = struct.unpack_from(f"{self._order}II", body, at)
            if small := kind >> 16:  # up to four bytes lie in the tag itself
                kind, size, start, step = kind & 0xFFFF, small, at + 4, 8
            else:
                start, step = at + 8, 8 + size + (-size % 8 if kind != _COMPRESSED else 0)
            if size > len(body) - start or (small and size > 4):
                raise ValueError(_CUT)
            yield kind, body[start : start + size]
            at += step
        if any(body[at:]):
            raise ValueError(_CUT)

    def variable(self, kind: int, body: memoryview, depth: int = 0) -> tuple[str, Value]:
        """Return the name and the value of the variable in a data element, which may be compressed."""
        self._budget.name()
        if kind == _COMPRESSED:
            stream = zlib.decompressobj()
            unpacked = stream.decompress(body, self._budget.left + 1)
            self._budget.take(len(unpacked))
            if not stream.eof:
                raise ValueError(_CUT)
            kind, body = next(self.elements(memoryview(unpacked)), (0, body))
        if kind != _MATRIX:
            raise ValueError(f"it is damaged: an element of type {kind} stands where a variable should")
        if not body:
            return "", EMPTY
        parts = self.elements(body)
        flags = struct.unpack_from(f"{self._order}I", _next(parts)[1])[0]
        category = flags & 0xFF
        if category == _OPAQUE:
            name, _, class_name = (_text(_next(parts)[1]) for _ in range(3))
            return name, _object_reason(class_name)
        shape = tuple(np.frombuffer(_next(parts)[1], f"{self._order}i4").tolist())
        name = _text(_next(parts)[1])
        if category == _OBJECT:
            return name, _object_reason(_text(_next(parts)[1]))
        if category in _UNREAD:
            return name, _UNREAD[category]
        if len(shape) < 2 or min(shape) < 0:
            raise ValueError("it is damaged: a variable has an impossible size")
        if category == _STRUCT:
            return name, self._struct(parts, shape, depth)
        if category not in _NUMERIC:
            raise ValueError(f"it is damaged: there is no variable of class {category}")
        return name, COMPLEX if flags & _COMPLEX else self._numbers(parts, shape)

    def _numbers(self, parts: Iterator[_Element], shape: tuple[int, ...]) -> Floats | str:
        if not math.prod(shape):
            return EMPTY
        kind, body = _next(parts)
        if kind not in _TYPES:
            raise ValueError(f"it is damaged: there are no numbers of type {kind}")
        values = np.frombuffer(body, self._order + _TYPES[kind])
        if len(values) != math.prod(shape):
            raise ValueError("it is damaged: a variable does not hold as many values as it declares")
        self._budget.take(8 * len(values))
        return matrix(values.astype(np.float64).reshape(shape, order="F"))

    def _struct(self, parts: Iterator[_Element], shape: tuple[int, ...], depth: int) -> Value:
        if math.prod(shape) != 1:
            return STRUCT_ARRAY
        if depth == DEEPEST:
            return TOO_DEEP
        length = struct.unpack_from(f"{self._order}i", _next(parts)[1])[0]
        names = _next(parts)[1]
        if length < 1 or len(names) % length:
            raise ValueError("it is damaged: the names of a struct's fields do not fit their length")
        fields: dict[str, Value] = {}
        for start in range(0, len(names), length):
            name, value = _text(names[start : start + length]), self.variable(*_next(parts), depth + 1)[1]
            fields[name] = "two fields of the struct have this name" if name in fields else value
        return fields


def _next(parts: Iterator[_Element]) -> _Element:
    element = next(parts, None)
    if element is None:
        raise ValueError(_CUT)
    return element


def _text(content: memoryview) -> str:
    return printable(bytes(content).partition(b"\0")[0].decode("latin-1"))


HDF5_MARK: Final = b"\x89HDF\r\n\x1a\n"

_INTEGERS: Final = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NUMERIC_V73: Final = ("", "double", "single", "logical", *_INTEGERS)
_UNREAD_V73: Final = {"cell": CELL, "char": TEXT, "function_handle": FUNCTION}
_ELSEWHERE: Final = "its numbers are not in this file; save it again, into one file"


def _members(group: Any, budget: Budget, depth: int) -> Variables:
    """Read the variables of a MATLAB file of version 7.3, or the fields of a struct in such a file."""
    variables: Variables = {}
    for name in group:
        if name.startswith("#"):  # data of cells and objects
            continue
        budget.name()
        item = own_item(group, name)
        variables[printable(name)] = _ELSEWHERE if item is None else _value(item, budget, depth)
    return variables


def _value(item: Any, budget: Budget, depth: int) -> Value:
    kind = _class_of(item)
    if kind in _UNREAD_V73:
        return _UNREAD_V73[kind]
    if isinstance(item, h5py.Group):
        if "MATLAB_sparse" in item.attrs:
            return SPARSE
        if kind not in ("", "struct"):
            return _object_reason(kind)
        return TOO_DEEP if depth == DEEPEST else _members(item, budget, depth + 1)
    if not isinstance(item, h5py.Dataset):
        return "it is no array"
    if "MATLAB_empty" in item.attrs or not item.size:
        return EMPTY
    if kind not in _NUMERIC_V73:
        return STRUCT_ARRAY if kind == "struct" else _object_reason(kind)
    if item.dtype.names:
        return COMPLEX
    if h5py.check_ref_dtype(item.dtype):
        return STRUCT_ARRAY
    if item.dtype.kind not in "biuf":
        return "it holds no numbers"
    budget.take_dataset(item)
    return matrix(np.asarray(item[...], np.float64).T)


def _class_of(item: Any) -> str:
    name = attribute(item, "MATLAB_class") if "MATLAB_class" in item.attrs else b""
    return printable(name.decode("latin-1") if isinstance(name, bytes) else str(name))


def read_mat(path: Path) -> Table:
    """Read a MATLAB file of version 5, 6, 7 or 7.3 as a table.

    The table lists variables that cannot be columns as unusable, with the reason.

    Raises:
        UserError: If the file is not a MATLAB file of these versions, or is too large.
    """
    with path.open("rb") as file:
        start = file.read(520)
    budget = Budget(path)
    if HDF5_MARK in (start[:8], start[512:520]):
        with h5py.File(path, "r") as file73:
            variables = _members(file73, budget, 0)
    elif start[124:128] in MAT5_MARKS:
        variables = read_mat5(path, budget)
    else:
        raise UserError(
            f"{path} is not a MATLAB file of version 5, 7 or 7.3, or its start is damaged; "
            "in MATLAB, write one with save('log.mat', '-v7')"
        )
    structs = [value for value in variables.values() if isinstance(value, dict)]
    bare = len(structs) == 1 and not structs[0].keys() & variables.keys()
    return aligned(path, [named for name, value in variables.items() for named in _flat(name, value, bare)])


def _flat(name: str, value: Value, bare: bool = False) -> Iterator[tuple[str, Floats | str]]:
    """Yield name and value of each array in a variable, where fields are named `name.field`, or `field` if `bare`."""
    if not isinstance(value, dict):
        yield name, value
        return
    for field, inner in value.items():
        yield from _flat(field if bare else f"{name}.{field}", inner)
