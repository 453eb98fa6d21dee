"""A study as a file says it, every setting written out."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from replaybench.experiments.training.study import GAMMA, Cell, Study


def resolved(study: Study, cells: Sequence[Cell], home: Path | None = None) -> Study:
    """Return the study with every setting of its learners and plants written out; its cells are the same.

    Args:
        home: where it is written, if paths that it names are to be found from there.
    """
    known = {name for grid in study.grids() for name in grid.learners}
    names = {cell.id: cell.learner if cell.learner in known else cell.learner.rpartition(GAMMA)[0] for cell in cells}
    learner = {names[cell.id]: _without_none(cell.settings) for cell in cells}
    start = {names[cell.id]: cell.start for cell in cells if cell.start is not None}
    # The discount in a cell's parameters may be its learner's alone.
    plant = {cell.plant: {k: v for k, v in cell.parameters.items() if k != "discount"} for cell in cells}
    for tables, given in ((learner, study.learner), (plant, study.plant)):
        for name, table in tables.items():
            table |= {key: value for key, value in given.get(name, {}).items() if key == "discount"}
    named = any(".py:" in name for cell in cells for name in (cell.plant, cell.learner, cell.strategy))
    folder = os.path.relpath(study.folder or Path.cwd(), home.resolve()) if home and (named or start) else ""
    return dataclasses.replace(study, learner=learner, plant=plant, start=start, folder=folder)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what TOML cannot say: None, which is always the default."""
    kept = {key: value for key, value in table.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def write_toml(study: Study) -> str:
    """Return a study as TOML."""
    table = dataclasses.asdict(study)
    grids = table.pop("grid")
    tables = {key: table.pop(key) for key in ("learner", "plant", "start")}
    kept = {key: value for key, value in table.items() if value is not None and (value or key != "folder")}
    lines = [f"{key} = {toml_value(value)}" for key, value in kept.items()]
    for grid in grids:
        lines += ["", "[[grid]]", *(f"{key} = {toml_value(value)}" for key, value in grid.items() if value)]
    for kind, entries in tables.items():
        for name, settings in entries.items():
            lines += [
                "",
                f"[{kind}.{toml_value(name)}]",
                *(f"{key} = {toml_value(value)}" for key, value in _without_none(settings).items()),
            ]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """Return a value as TOML; a table is an inline one."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
