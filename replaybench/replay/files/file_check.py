"""What the arrays of a buffer file look like, checked against each other: files come from strangers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.records.record import Record


@dataclass(frozen=True, eq=False)
class FileForm:
    """A buffer file's fields and their widths, the steps of a unit, and what each member stores `[M]`."""

    fields: dict[str, int]
    steps: int
    count: NDArray[np.int64]


def file_form(path: Path, record: Record, recordings: Sequence[int] | None = None) -> FileForm:
    """Return the form of a buffer file that must hold the given recordings.

    Raises:
        UserError: its arrays do not fit each other, nothing is stored, or a recording is not there.
    """
    shapes, fields = record.header.shapes, record.header.facts.get("fields")
    serial, count = shapes.get("serial", ()), shapes.get("count")
    if not isinstance(fields, dict) or not fields or len(serial) != 2 or count != serial[:1]:
        raise UserError(f"{path} lacks what a buffer file needs: fields, serial numbers, counts")
    found = {name: shapes.get(name, ()) for name in fields}
    steps = {shape[2] if len(shape) == 4 else 1 for shape in found.values()}
    for name, shape in found.items():
        if shape[:2] != serial or len(shape) not in (3, 4) or len(steps) != 1 or 0 in shape[2:]:
            raise UserError(f"{path}: {name} has shape {shape}, which does not fit serial numbers of shape {serial}")
    form = FileForm({name: shape[-1] for name, shape in found.items()}, steps.pop(), _counts(path, record, serial[1]))
    if form.steps > 1 and shapes.get("length") != serial:
        raise UserError(f"{path} lacks the lengths of its units of {form.steps} steps")
    for number in recordings or ():
        if not 0 <= number < serial[0]:
            raise UserError(f"{path} holds recordings 0 to {serial[0] - 1}, not {number}")
    return form


def _counts(path: Path, record: Record, slots: int) -> NDArray[np.int64]:
    count = record.read("count")
    if count.dtype.kind not in "iu" or not count.size or count.min() < 0 or not 0 < count.max() <= slots:
        raise UserError(f"{path} holds no experiences, or its counts do not fit its arrays")
    return count.astype(np.int64)
