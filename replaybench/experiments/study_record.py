"""The files `study.toml` and `provenance.json` of a run folder, and the comparison of a new study with a stored one."""

import contextlib
import dataclasses
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from replaybench.data.documents import read_json, read_toml
from replaybench.data.record import read_header
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import without_delay
from replaybench.experiments.study import VOLUME, Cell, Study, without_axes
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.atomic import write_text
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import ComputeSession, session_facts, this_code, utc_now


def read_sessions(path: Path, facts: Mapping[str, Any]) -> tuple[ComputeSession, ...]:
    """Return the sessions (uninterrupted computations) that computed a cell, from the metadata of one of its files."""
    sessions = facts.get("sessions")
    if not isinstance(sessions, list) or not sessions or not all(isinstance(each, dict) for each in sessions):
        raise UserError(f"{path} does not say who computed it")
    return tuple(build(ComputeSession, each, f"{path}: session") for each in sessions)


def write_provenance(folder: RunFolder, name: str, cells: Sequence[Cell], complete: bool) -> None:
    """Write `provenance.json`, which describes how the cells and the results of a study were computed.

    The total time excludes cells whose runs were copied from other cells.
    """
    origins = {cell.id: _origin(folder.cell(cell.id)) for cell in cells}
    sessions = [session for shared, own in origins.values() if not shared for session in own]
    facts = {
        "study": name,
        "complete": complete,
        "started": min((session.started for session in sessions), default=None),
        "seconds": round(sum(session.seconds for session in sessions), 3),
        "written": {"at": utc_now(), "argv": sys.argv[1:], **dataclasses.asdict(this_code())},
        "cells": {
            cell.id: {
                "cell": dataclasses.asdict(cell),
                **({"shared_from": origins[cell.id][0]} if origins[cell.id][0] else {}),
                **session_facts(origins[cell.id][1]),
            }
            for cell in cells
        },
    }
    write_text(folder.provenance, provenance_text(facts))


def provenance_text(facts: Mapping[str, Any]) -> str:
    """Return the content of `provenance.json` as JSON, with one line per cell: indented cells take 1.6 times the bytes.

    `facts` ends with the cells.
    """
    study = json.dumps({**facts, "cells": {}}, indent=2)
    cells = ",\n".join(f"    {json.dumps(key)}: {json.dumps(cell)}" for key, cell in facts["cells"].items())
    return study.removesuffix("{}\n}") + f"{{\n{cells}\n  }}\n}}\n"


def shared_from(facts: Mapping[str, Any]) -> str:
    """Return the id of the cell from which the runs in a file were copied, or "" if the runs are not copies."""
    source = facts.get("shared_from")
    return source if isinstance(source, str) and source.isprintable() else ""


def _origin(cell: Path) -> tuple[str, tuple[ComputeSession, ...]]:
    """Return the id of the cell from which a cell's runs were copied, or "", and the sessions of the computation."""
    for name in ("scores", "checkpoint"):
        path = cell / f"{name}.h5"
        with contextlib.suppress(UserError):  # missing; damage is reported where the file is needed
            facts = read_header(path, name).facts
            return shared_from(facts), read_sessions(path, facts)
    return "", ()


def resolved(study: Study, cells: Sequence[Cell], home: Path | None = None) -> Study:
    """Return an equivalent study with explicit settings of plants and learners, and with paths relative to `home`."""
    known = {name for grid in study.grids() for name in grid.learners}
    names = {cell.id: cell.learner if cell.learner in known else without_axes(cell.learner) for cell in cells}
    learner: dict[str, dict[str, Any]] = {}
    for cell in cells:
        by_axis = {"replays_per_experience"} if VOLUME in cell.learner else set()
        own = {key: value for key, value in cell.settings.items() if key not in by_axis}
        learner.setdefault(names[cell.id], {}).update(own)
    start = {names[cell.id]: cell.start for cell in cells if cell.start is not None}
    # The discount in a cell's parameters may come from its learner's table.
    plants = {name for grid in study.grids() for name in grid.plants}
    plant = {
        cell.plant if cell.plant in plants else without_delay(cell.plant)[0]: _without_axes_of_plant(cell.parameters)
        for cell in cells
    }
    for tables, given in ((learner, study.learner), (plant, study.plant)):
        for name, table in tables.items():
            table |= {key: value for key, value in given.get(name, {}).items() if key == "discount"}
    named = any(".py:" in name for cell in cells for name in (cell.plant, cell.learner, cell.strategy))
    mixed = {str(mix.file): cell.mixed for cell in cells if cell.mixed and (mix := parse(cell.strategy).mix)}
    named |= bool(study.references or mixed)
    folder = os.path.relpath(study.folder or Path.cwd(), home.resolve()) if home and (named or start) else ""
    return dataclasses.replace(study, learner=learner, plant=plant, start=start, mixed=mixed, folder=folder)


def _without_axes_of_plant(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a plant without discount and delay, which axes of the study or names may contain."""
    channel = {key: value for key, value in parameters.get("channel", {}).items() if key != "delay"}
    own = {key: value for key, value in parameters.items() if key not in ("discount", "channel")}
    return {**own, "channel": channel} if channel else own


def write_toml(study: Study) -> str:
    """Return a study as text in TOML format."""
    return _toml_text(dataclasses.asdict(study))


def _toml_text(table: dict[str, Any]) -> str:
    grids = [("[[grid]]", {axis: values for axis, values in grid.items() if values}) for grid in table.pop("grid", ())]
    tables = {key: table.pop(key, {}) for key in ("learner", "plant", "start")}
    sections = [(f"[{key}.{toml_value(name)}]", each) for key in tables for name, each in tables[key].items()]
    left_out = {
        key for key in ("folder", "first_seed", "replay_volume", "delay", "channel", "mixed") if not table.get(key)
    }
    text = _lines({key: value for key, value in table.items() if key not in left_out})
    return text + "".join(f"\n{heading}\n{_lines(each)}" for heading, each in (*grids, *sections))


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in table.items() if value is not None)


def toml_value(value: Any) -> str:
    """Return a value as text in TOML format, with mappings as inline tables."""
    if isinstance(value, Mapping):
        entries = (f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items() if entry is not None)
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def toml_key(key: str) -> str:
    """Return a key as text in TOML format, in quotes if TOML requires them."""
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)


def check_written(path: Path) -> None:
    """Raise `UserError` if a `study.toml` has comments or another layout than `write_toml` gives it.

    The file is then a person's work. Its values may differ from those that were written.
    """
    if _toml_text(read_toml(path)) != path.read_text(encoding="utf-8"):
        raise UserError(f"{path} was edited")


_MOST_CHANGES: Final = 4


def replaced(folder: RunFolder, study: Study, cells: Sequence[Cell]) -> str | None:
    """Return a notice that a sweep will replace another study in a run folder, or None if the study is the same.

    Raises:
        UserError: A file of `Mix` has changed since the run began.
    """
    if not folder.study.is_file():
        return None
    try:
        before = dict(flat({key: value for key, value in read_toml(folder.study).items() if key != "folder"}))
    except UserError as error:
        changes = [str(error)]
    else:
        after = dict(flat(tomllib.loads(write_toml(resolved(study, cells)))))
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        for key in keys:
            if key.startswith("mixed.") and key in before and key in after:
                raise UserError(
                    f"{key.removeprefix('mixed.')} holds other experiences than when the run {folder.path} began; "
                    "restore it, or choose another --output"
                )
        changes = [f"{key} was {before.get(key, 'not there')}, is {after.get(key, 'not there')}" for key in keys]
    ids = {cell.id for cell in cells}
    others = sum(path.parent.name not in ids for path in folder.path.glob("cells/*/scores.h5"))
    known: Any = None
    with contextlib.suppress(UserError):
        known = read_json(folder.provenance).get("cells")
    if not changes and (not others or (isinstance(known, dict) and ids == set(known))):
        return None
    if (more := len(changes) - _MOST_CHANGES) > 0:
        changes[_MOST_CHANGES:] = [f"{more} further changes"]
    why = (
        f"({'; '.join(changes)})"
        if changes
        else "by its cells' ids (made by another version, or with other plant code)"
    )
    kept = f"; {others} finished cell(s) of it stay in cells/, outside these results" if others else ""
    return (
        f"note: {folder.path} holds another study {why}: study.toml, results.nc, provenance.json and figures are "
        f"replaced{kept}; choose another --output to keep both"
    )


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables with names such as `table.key`."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
