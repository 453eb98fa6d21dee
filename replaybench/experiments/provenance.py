"""Origin of a sweep's results: the sessions that computed each cell, and this process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from replaybench.data.atomic import write_text
from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.provenance import Stint, stint_facts, this_code, utc_now
from replaybench.data.records.record import read_header
from replaybench.experiments.training.study import Cell


def read_stints(path: Path, facts: Mapping[str, Any]) -> tuple[Stint, ...]:
    """Return the sessions in the facts of a cell's file.

    Raises:
        UserError: there are none, or they are damaged.
    """
    stints = facts.get("stints")
    if not isinstance(stints, list) or not stints or not all(isinstance(stint, dict) for stint in stints):
        raise UserError(f"{path} does not say who computed it")
    return tuple(build(Stint, stint, f"{path}: stint") for stint in stints)


def write_provenance(folder: RunFolder, name: str, cells: Sequence[Cell], complete: bool) -> None:
    """Write the origin of each cell, finished or not, and of the results.

    Seconds are sums over computed cells; a cell that shares another's runs names it.
    """
    origins = {cell.id: _origin(folder.cell(cell.id)) for cell in cells}
    stints = [stint for shared, own in origins.values() if not shared for stint in own]
    facts = {
        "study": name,
        "complete": complete,
        "started": min((stint.started for stint in stints), default=None),
        "seconds": round(sum(stint.seconds for stint in stints), 3),
        "written": {"at": utc_now(), "argv": sys.argv[1:], **dataclasses.asdict(this_code())},
        "cells": {
            cell.id: {
                "cell": dataclasses.asdict(cell),
                **({"shared_from": origins[cell.id][0]} if origins[cell.id][0] else {}),
                **stint_facts(origins[cell.id][1]),
            }
            for cell in cells
        },
    }
    write_text(folder.provenance, json.dumps(facts, indent=2) + "\n")


def shared_from(facts: Mapping[str, Any]) -> str:
    """Return the id of the cell that was computed in place of this one, from the facts of a file; empty for most."""
    source = facts.get("shared_from")
    return source if isinstance(source, str) and source.isprintable() else ""


def _origin(cell: Path) -> tuple[str, tuple[Stint, ...]]:
    """Return the id of the cell that computed the runs in a folder, if another, and the sessions so far."""
    for name in ("scores", "checkpoint"):
        path = cell / f"{name}.h5"
        with contextlib.suppress(UserError):  # missing; damage is reported where the file is needed
            facts = read_header(path, name).facts
            return shared_from(facts), read_stints(path, facts)
    return "", ()
