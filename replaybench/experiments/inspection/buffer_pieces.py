"""A buffer file in pieces that fit any memory: what is stored, member by member, a unit's own steps only."""

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


class BufferPieces:
    """What an open buffer file stores."""

    def __init__(self, file: BufferFile) -> None:
        self.file, self.record, self.shapes, self.steps = file, file.record, file.shapes, file.steps
        self.count, self.collected = file.count, file.collected

    def pieces(self, m: int) -> Iterator[Piece]:
        """Yield what member m stores, in pieces."""
        widest = max((int(np.prod(self.shapes[name][2:])) for name in _FIELDS if name in self.shapes), default=1)
        high, stored = max(1, PIECE // max(1, widest)), int(self.count[m])
        for start in range(0, stored, high):
            rows = slice(start, min(start + high, stored))
            length = self.record.read("length", m, rows) if self.steps > 1 else np.ones(rows.stop - start, np.uint16)
            yield Piece(self, m, rows, np.arange(self.steps) < length[:, None])

    def stored(self, m: int) -> int:
        """Return how many experiences member m stores: the steps of all its units."""
        if self.steps == 1:
            return int(self.count[m])
        length = self.record.read("length", m, slice(0, int(self.count[m])))
        return int(np.clip(length, 0, self.steps).sum(dtype=np.int64))

    def choose(self, member: int | None) -> list[int]:
        """Return the places of the members asked for; None for all.

        Raises:
            UserError: there is no such member.
        """
        if member is not None and not 0 <= member < len(self.count):
            path, most = self.record.path, len(self.count) - 1
            raise UserError(f"--member must be 0 … {most}, not {member}: {path} holds {most + 1} members")
        return list(range(len(self.count))) if member is None else [member]


@dataclass(frozen=True)
class Piece:
    """Successive slots of one member; `own` `[n, steps]` tells which of their steps are their own."""

    buffer: BufferPieces
    m: int
    rows: slice
    own: NDArray[np.bool_]

    def of_steps(self, name: str) -> NDArray[Any]:
        """Return a column `[own steps, width]`."""
        column = self.buffer.record.read(name, self.m, self.rows)
        return column.reshape(*self.own.shape, -1)[self.own]

    def of_slots(self, name: str) -> NDArray[Any]:
        """Return an annotation `[n]`."""
        return self.buffer.record.read(name, self.m, self.rows)

    def ages(self) -> Integers:
        """Return how many experiences the member has collected since each own step.

        Raises:
            UserError: a serial number is none that the member has given.
        """
        serial = self.of_slots("serial").astype(np.int64)[:, None] + np.arange(self.own.shape[1])
        ages: Integers = (self.buffer.collected[self.m] - serial)[self.own]
        if ages.size and (ages.min() < 0 or ages.max() >= self.buffer.collected[self.m]):
            raise UserError(f"{self.buffer.record.path}: member {self.m} has impossible serial numbers")
        return ages
