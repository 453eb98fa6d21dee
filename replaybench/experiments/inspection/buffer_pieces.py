"""Read the stored experiences of a buffer file, of any size, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.replay.files.buffer_schema import BufferFile

PIECE: Final = 1 << 19
"""Numbers of the widest column that are read at once; one row at least."""

_FIELDS: Final = ("observation", "reward", "exploration")

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Successive slots of one member.

    Attributes:
        own: steps of the slots that belong to their unit, bool `[n, steps]`.
    """

    file: BufferFile
    m: int
    rows: slice
    own: NDArray[np.bool_]

    def of_steps(self, name: str) -> NDArray[Any]:
        """Return a column `[own steps, width]`."""
        column = self.file.record.read(name, self.m, self.rows)
        return column.reshape(*self.own.shape, -1)[self.own]

    def of_slots(self, name: str) -> NDArray[Any]:
        """Return an annotation `[n]`."""
        return self.file.record.read(name, self.m, self.rows)

    def ages(self) -> Integers:
        """Return the number of experiences that the member has collected since each own step.

        Raises:
            UserError: a serial number is impossible.
        """
        collected = self.file.collected[self.m]
        serial = self.of_slots("serial").astype(np.int64)[:, None] + np.arange(self.own.shape[1])
        ages: Integers = (collected - serial)[self.own]
        if ages.size and (ages.min() < 0 or ages.max() >= collected):
            raise UserError(f"{self.file.path}: member {self.m} has impossible serial numbers")
        return ages


def pieces(file: BufferFile, m: int) -> Iterator[Piece]:
    """Yield the stored slots of member `m` in pieces."""
    widest = max((int(np.prod(file.shapes[name][2:])) for name in _FIELDS if name in file.shapes), default=1)
    high, stored = max(1, PIECE // max(1, widest)), int(file.count[m])
    for start in range(0, stored, high):
        rows = slice(start, min(start + high, stored))
        yield Piece(file, m, rows, np.arange(file.steps) < _lengths(file, m, rows)[:, None])


def stored_steps(file: BufferFile, m: int) -> int:
    """Return the number of experiences that member `m` stores: the steps of all its units."""
    return int(np.clip(_lengths(file, m, slice(0, int(file.count[m]))), 0, file.steps).sum(dtype=np.int64))


def _lengths(file: BufferFile, m: int, rows: slice) -> NDArray[Any]:
    return file.record.read("length", m, rows) if file.steps > 1 else np.ones(rows.stop - rows.start, np.uint16)


def choose(file: BufferFile, member: int | None) -> list[int]:
    """Return the places of the chosen members, which are all for None.

    Raises:
        UserError: there is no such member.
    """
    count = len(file.count)
    if member is not None and not 0 <= member < count:
        raise UserError(f"--member must be 0 … {count - 1}, not {member}: {file.path} holds {count} members")
    return list(range(count)) if member is None else [member]
