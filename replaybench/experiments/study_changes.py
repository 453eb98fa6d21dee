"""Notice about what a sweep replaces in a folder that holds another study."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from replaybench.data.errors import UserError
from replaybench.data.formats.documents import read_json, read_toml
from replaybench.data.formats.run_folder import RunFolder
from replaybench.experiments.study_text import resolved, write_toml
from replaybench.experiments.training.study import SINCE, Cell, Study

_MOST_CHANGES: Final = 4


def replaced(folder: RunFolder, study: Study, cells: Sequence[Cell]) -> str | None:
    """Return a notice of what a sweep replaces in a folder of another study; None if there is no other."""
    if not folder.study.is_file():
        return None
    try:
        before = SINCE | dict(_flat({key: value for key, value in read_toml(folder.study).items() if key != "folder"}))
    except UserError as error:
        changes = [str(error)]
    else:
        after = dict(_flat(tomllib.loads(write_toml(resolved(study, cells)))))
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        changes = [f"{key} was {before.get(key, 'not there')}, is {after.get(key, 'not there')}" for key in keys]
    ids = {cell.id for cell in cells}
    others = sum(path.parent.name not in ids for path in folder.path.glob("cells/*/scores.h5"))
    if not changes and (not others or ids == _cells_before(folder)):
        return None
    if (more := len(changes) - _MOST_CHANGES) > 0:
        changes[_MOST_CHANGES:] = [f"{more} further changes"]
    why = (
        f" ({'; '.join(changes)})"
        if changes
        else " by its cells' ids (made by another version, or with other plant code)"
    )
    kept = f"; {others} finished cell(s) of it stay in cells/, outside these results" if others else ""
    return (
        f"note: {folder.path} holds another study{why}: study.toml, results.nc, provenance.json and figures are "
        f"replaced{kept}; choose another --output to keep both"
    )


def _cells_before(folder: RunFolder) -> set[str]:
    with contextlib.suppress(UserError):
        cells = read_json(folder.provenance).get("cells")
        return set(cells) if isinstance(cells, dict) else set()
    return set()


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
