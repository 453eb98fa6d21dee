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
    table["grid"] = [{axis: values for axis, values in grid.items() if values} for grid in table["grid"]]
    return toml({key: value for key, value in table.items() if value or key != "folder"})


def toml(table: Mapping[str, Any]) -> str:
    """Return a table as TOML: its values, then its tables of values or of tables, which stand inline below that.

    None, which TOML does not have, is left out.
    """
    plain, tables = [], []
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = {name: entry for name, entry in value.items() if isinstance(entry, Mapping)}
            own = {name: entry for name, entry in value.items() if name not in inner}
            tables += [_section(f"[{key}]", own)] if own else []
            tables += [_section(f"[{key}.{_inline(name)}]", entry) for name, entry in inner.items()]
        elif isinstance(value, list | tuple) and value and all(isinstance(entry, Mapping) for entry in value):
            tables += [_section(f"[[{key}]]", entry) for entry in value]
        elif value is not None and value != []:
            plain.append(f"{key} = {_inline(value)}\n")
    return "".join([*plain, *tables])


def _section(heading: str, table: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_inline(value)}\n" for key, value in table.items() if value is not None]
    return "\n".join(["", heading, "".join(lines)])


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = (f"{key} = {_inline(entry)}" for key, entry in value.items() if entry is not None)
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value, ensure_ascii=False)
