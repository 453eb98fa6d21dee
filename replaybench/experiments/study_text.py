"""A study as a file says it, every setting written out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from replaybench.experiments.training.study import Cell, Study


def resolved(study: Study, cells: Sequence[Cell]) -> Study:
    """Return the study with every setting of its learners and plants written out; its cells are the same."""
    learner = {cell.learner: _without_none(cell.settings) for cell in cells}
    start = {cell.learner: cell.start for cell in cells if cell.start is not None}
    return dataclasses.replace(
        study, learner=learner, plant={cell.plant: cell.parameters for cell in cells}, start=start
    )


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what TOML cannot say: None, which is always the default."""
    kept = {key: value for key, value in table.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def write_toml(study: Study) -> str:
    """Return a study as TOML."""
    table = dataclasses.asdict(study)
    grids = table.pop("grid")
    tables = {key: table.pop(key) for key in ("learner", "plant", "start")}
    lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
    for grid in grids:
        lines += ["", "[[grid]]", *(f"{key} = {_toml(value)}" for key, value in grid.items() if value)]
    for kind, entries in tables.items():
        for name, settings in entries.items():
            lines += [
                "",
                f"[{kind}.{_toml(name)}]",
                *(f"{key} = {_toml(value)}" for key, value in _without_none(settings).items()),
            ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
