"""MATLAB files of version 5 (also called 6 and 7): a sequence of tagged elements, some of them compressed.

SciPy reads them too, but its compiled reader believes what a file declares: one flipped bit in fifty of a small file
crashes the process. Here every size is held against the bytes that are there; SciPy is what the tests compare with.
Source: MathWorks, MAT-File Format, R2019b, chapter 1.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.logs import matlab_variables
from replaybench.data.logs.matlab_variables import Value, Variables
from replaybench.data.logs.table import Budget, Floats, printable, refuse_doubles

MAT5_MARKS: Final = (b"\x00\x01IM", b"\x01\x00MI")
"""Version and byte order, bytes 124 to 127 of the file: little and big endian."""

_HEADER: Final = 128
_TYPES: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _OBJECT, _OPAQUE = 2, 3, 17
_NUMERIC: Final = range(6, 16)
_COMPLEX: Final = 0x800
_UNREAD: Final = {
    1: matlab_variables.CELL,
    4: matlab_variables.TEXT,
    5: matlab_variables.SPARSE,
    16: matlab_variables.FUNCTION,
}
_CUT: Final = "it is damaged: a variable is cut off"

_Element = tuple[int, memoryview]


def read_mat5(path: Path, budget: Budget) -> Variables:
    """Read the variables of a file.

    Raises:
        UserError: it holds too much, or two variables of one name.
        ValueError, struct.error, zlib.error: it is damaged.
    """
    if path.stat().st_size > budget.left:
        raise UserError(f"{path} is larger than {budget.left / 2**30:.3g} GiB; split it into logs")
    content = memoryview(path.read_bytes())
    reader = _Reader("<" if content[124:128].tobytes() == MAT5_MARKS[0] else ">", budget)
    found = [reader.variable(*element) for element in reader.elements(content[_HEADER:])]
    refuse_doubles(path, [name for name, _ in found])
    return {name: value for name, value in found if name}  # what objects refer to has no name


class _Reader:
    """Reads the elements of one file of known byte order (`<` or `>`)."""

    def __init__(self, order: str, budget: Budget) -> None:
        self._order, self._budget = order, budget

    def elements(self, body: memoryview) -> Iterator[_Element]:
        """Yield type and content of the elements in `body`, one after the other."""
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
        """Return name and value of a matrix element, which may be a compressed one."""
        self._budget.name()
        if kind == _COMPRESSED:
            kind, body = next(self.elements(self._unpack(body)), (0, body))
        if kind != _MATRIX:
            raise ValueError(f"it is damaged: an element of type {kind} stands where a variable should")
        if not body:
            return "", matlab_variables.EMPTY
        parts = self.elements(body)
        flags = struct.unpack_from(f"{self._order}I", _next(parts)[1])[0]
        category = flags & 0xFF
        if category == _OPAQUE:
            name, _, class_name = (_text(_next(parts)[1]) for _ in range(3))
            return name, matlab_variables.an_object(class_name)
        shape = tuple(np.frombuffer(_next(parts)[1], f"{self._order}i4").tolist())
        name = _text(_next(parts)[1])
        if category == _OBJECT:
            return name, matlab_variables.an_object(_text(_next(parts)[1]))
        if category in _UNREAD:
            return name, _UNREAD[category]
        if len(shape) < 2 or min(shape) < 0:
            raise ValueError("it is damaged: a variable has an impossible size")
        if category == _STRUCT:
            return name, self._struct(parts, shape, depth)
        if category not in _NUMERIC:
            raise ValueError(f"it is damaged: there is no variable of class {category}")
        return name, matlab_variables.COMPLEX if flags & _COMPLEX else self._numbers(parts, shape)

    def _unpack(self, body: memoryview) -> memoryview:
        stream = zlib.decompressobj()
        unpacked = stream.decompress(body, self._budget.left + 1)
        self._budget.take(len(unpacked))
        if not stream.eof:
            raise ValueError(_CUT)
        return memoryview(unpacked)

    def _numbers(self, parts: Iterator[_Element], shape: tuple[int, ...]) -> Floats | str:
        if not math.prod(shape):
            return matlab_variables.EMPTY
        kind, body = _next(parts)
        if kind not in _TYPES:
            raise ValueError(f"it is damaged: there are no numbers of type {kind}")
        values = np.frombuffer(body, self._order + _TYPES[kind])
        if len(values) != math.prod(shape):
            raise ValueError("it is damaged: a variable does not hold as many values as it declares")
        self._budget.take(8 * len(values))
        return matlab_variables.matrix(values.astype(np.float64).reshape(shape, order="F"))

    def _struct(self, parts: Iterator[_Element], shape: tuple[int, ...], depth: int) -> Value:
        if math.prod(shape) != 1:
            return matlab_variables.STRUCT_ARRAY
        if depth == matlab_variables.DEEPEST:
            return matlab_variables.TOO_DEEP
        length = struct.unpack_from(f"{self._order}i", _next(parts)[1])[0]
        names = _next(parts)[1]
        if length < 1 or len(names) % length:
            raise ValueError("it is damaged: the names of a struct's fields do not fit their length")
        fields: dict[str, Value] = {}
        for start in range(0, len(names), length):
            name, value = _text(names[start : start + length]), self.variable(*_next(parts), depth + 1)[1]
            fields[name] = "two fields of the struct bear this name" if name in fields else value
        return fields


def _next(parts: Iterator[_Element]) -> _Element:
    found = next(parts, None)
    if found is None:
        raise ValueError(_CUT)
    return found


def _text(content: memoryview) -> str:
    return printable(bytes(content).partition(b"\0")[0].decode("latin-1"))
