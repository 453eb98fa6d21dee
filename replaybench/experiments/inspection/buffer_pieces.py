"""A buffer file in pieces that fit any memory: what is stored, member by member, a unit's own steps only.

What is in a file is not trusted: shapes, counts and serial numbers that contradict each other are one-line errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.records.record import Record

PIECE: Final = 1 << 19
"""Numbers of the widest column that are read at once; one row at least."""

_FIELDS: Final = ("observation", "reward", "exploration")
_PLACES: Final = ("td_error", "priority", "replays", "synthetic", "length")

Integers = NDArray[np.int64]


class BufferPieces:
    """An open buffer file.

    Attributes:
        record: the file.
        steps: most steps in a slot; 1 where experiences are stored one by one.
        count, collected, offers: int64 `[M]`: slots filled, experiences collected, slots' worth offered to retention.

    Raises:
        UserError: it lacks what every buffer has, or its shapes contradict each other.
    """

    def __init__(self, record: Record) -> None:
        # A strategy that has no use for an array's places keeps none of them: `Synth` with a refresh of 1.
        unused = {name for name, shape in record.header.shapes.items() if name in _PLACES and shape[1:] == (0,)}
        self.record, self.shapes = record, {n: s for n, s in record.header.shapes.items() if n not in unused}
        self.count, self.collected, self.offers = map(self._totals, ("count", "collected", "offers"))
        slots = self.shapes.get("serial", ())
        if len(slots) != 2 or slots[0] != len(self.count) or self._kind("serial") not in "iu":
            raise UserError(f"{record.path} lacks serial numbers, or they do not fit its counts")
        if self.count.size and not 0 <= self.count.min() <= self.count.max() <= slots[1]:
            raise UserError(f"{record.path}: a member claims {self.count.max()} experiences in {slots[1]} slots")
        steps = {shape[2] for name, shape in self.shapes.items() if name in _FIELDS and len(shape) == 4}
        self.steps = max(steps, default=1)
        self._check_shapes(slots)

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

    def _totals(self, name: str) -> Integers:
        shape = self.shapes.get(name, ())
        if len(shape) != 1 or shape != self.shapes.get("count") or self._kind(name) not in "iu":
            raise UserError(f"{self.record.path} lacks {name}, or it does not fit the number of members")
        return self.record.read(name).astype(np.int64)

    def _kind(self, name: str) -> str:
        return np.dtype(self.record.header.dtypes[name]).kind

    def _check_shapes(self, slots: tuple[int, ...]) -> None:
        beyond = (self.steps,) if self.steps > 1 else ()
        due = dict.fromkeys(_FIELDS, (*slots, *beyond))
        due |= dict.fromkeys(_PLACES, slots)
        for name, shape in due.items():
            if name in self.shapes:
                found = self.shapes[name]
                if (found[:-1] if name in _FIELDS else found) != shape:
                    raise UserError(f"{self.record.path}: {name} has shape {found}, which does not fit {slots} slots")
            elif name == "length" and self.steps > 1:
                raise UserError(f"{self.record.path} lacks the lengths of its units of {self.steps} steps")


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
