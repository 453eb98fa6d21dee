"""From a file, or a run folder and words about one of its cells, to the file and the member that are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from replaybench.data.errors import UserError
from replaybench.experiments.inspection.cells import Choice, chosen_file


def find_recording(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Return the buffer file and the place of the member that a user means; `chosen` are fields of a `Choice`."""
    return _with_member(*chosen_file(path, Choice(**chosen)), member)


def find_inspected(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Return the file that `inspect` is to show: of a chosen cell its buffer, else what there is of it.

    A run folder without words about a cell is meant itself.
    """
    choice = Choice(**chosen)
    if path.is_dir() and not choice.given():
        return path, member
    file, place = chosen_file(path, choice, ("buffer", "scores", "checkpoint"))
    return _with_member(file, place if file.stem == "buffer" else None, member)


def find_policy(path: Path, member: int | None, **chosen: Any) -> tuple[Path, int | None]:
    """Return the policy file and the place of the member that a user means; `chosen` are fields of a `Choice`."""
    return _with_member(*chosen_file(path, Choice(**chosen), ("policy",)), member)


def _with_member(file: Path, place: int | None, member: int | None) -> tuple[Path, int | None]:
    if place is not None and member is not None:
        raise UserError("--member counts the recordings of a file, --seed names one of a run: leave one out")
    return file, member if place is None else place
