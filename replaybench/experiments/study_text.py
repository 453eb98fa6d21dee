"""Studies as TOML, with every setting written out."""

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
        home: folder of the new file, if relative paths must be found from there.
    """
    known = {name for grid in study.grids() for name in grid.learners}
    names = {cell.id: cell.learner if cell.learner in known else cell.learner.rpartition(GAMMA)[0] for cell in cells}
    learner = {names[cell.id]: dict(cell.settings) for cell in cells}
    start = {names[cell.id]: cell.start for cell in cells if cell.start is not None}
    # The discount in a cell's parameters may be its learner's alone.
    plant = {cell.plant: {k: v for k, v in cell.parameters.items() if k != "discount"} for cell in cells}
    for tables, given in ((learner, study.learner), (plant, study.plant)):
        for name, table in tables.items():
            table |= {key: value for key, value in given.get(name, {}).items() if key == "discount"}
    named = any(".py:" in name for cell in cells for name in (cell.plant, cell.learner, cell.strategy))
    folder = os.path.relpath(study.folder or Path.cwd(), home.resolve()) if home and (named or start) else ""
    return dataclasses.replace(study, learner=learner, plant=plant, start=start, folder=folder)


def write_toml(study: Study) -> str:
    """Return a study as TOML."""
    table = dataclasses.asdict(study)
    grids = [("[[grid]]", {axis: values for axis, values in grid.items() if values}) for grid in table.pop("grid")]
    tables = {key: table.pop(key) for key in ("learner", "plant", "start")}
    sections = [(f"[{key}.{toml_value(name)}]", each) for key in tables for name, each in tables[key].items()]
    text = _lines({key: value for key, value in table.items() if value or key != "folder"})
    return text + "".join(f"\n{heading}\n{_lines(each)}" for heading, each in (*grids, *sections))


def _lines(table: Mapping[str, Any]) -> str:
    """Return the lines of a table, without None, which TOML does not have."""
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items() if value is not None)


def toml_value(value: Any) -> str:
    """Return a value as TOML; tables become inline tables."""
    if isinstance(value, Mapping):
        entries = (f"{key} = {toml_value(entry)}" for key, entry in value.items() if entry is not None)
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
