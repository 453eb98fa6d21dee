"""The origin of a sweep's results: what each cell's files say of the processes that computed it, and of this one."""

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
    """Return the stints that a cell's file tells of.

    Raises:
        UserError: it tells of none, or not as it should.
    """
    told = facts.get("stints")
    if not isinstance(told, list) or not told or not all(isinstance(stint, dict) for stint in told):
        raise UserError(f"{path} does not say who computed it")
    return tuple(build(Stint, stint, f"{path}: stint") for stint in told)


def write_provenance(folder: RunFolder, name: str, cells: Sequence[Cell], complete: bool) -> None:
    """Write who computed each cell, finished or under way, and who wrote the results.

    Seconds are sums over the cells that were computed: one that shares another's runs names it.
    """
    told = {cell.id: _so_far(folder.cell(cell.id)) for cell in cells}
    everyone = [stint for shared, own in told.values() if not shared for stint in own]
    facts = {
        "study": name,
        "complete": complete,
        "started": min((stint.started for stint in everyone), default=None),
        "seconds": round(sum(stint.seconds for stint in everyone), 3),
        "written": {"at": utc_now(), "argv": sys.argv[1:], **dataclasses.asdict(this_code())},
        "cells": {
            cell.id: {
                "cell": dataclasses.asdict(cell),
                **({"shared_from": told[cell.id][0]} if told[cell.id][0] else {}),
                **stint_facts(told[cell.id][1]),
            }
            for cell in cells
        },
    }
    write_text(folder.provenance, json.dumps(facts, indent=2) + "\n")


def shared_from(facts: Mapping[str, Any]) -> str:
    """Return the id of the cell that was computed in place of one, by the facts of its files; empty for most."""
    source = facts.get("shared_from")
    return source if isinstance(source, str) and source.isprintable() else ""


def _so_far(cell: Path) -> tuple[str, tuple[Stint, ...]]:
    """Return whose runs a cell shares, and its stints up to its end or its last checkpoint; none before that."""
    for name in ("scores", "checkpoint"):
        path = cell / f"{name}.h5"
        with contextlib.suppress(UserError):  # not there; damage is told of where the file is needed
            facts = read_header(path, name).facts
            return shared_from(facts), read_stints(path, facts)
    return "", ()
