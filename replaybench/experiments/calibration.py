"""How long cells take on this machine: each kind is tried for a moment, and what was found is kept.

Time grows in proportion to episodes, so cells that differ in their length, in noise or in which seeds they hold are of
one kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from replaybench.data.cache import cache_dir, store_text
from replaybench.data.errors import UserError
from replaybench.data.formats.documents import read_json
from replaybench.data.numerics import NUMERICS_VERSION, VERSION
from replaybench.data.provenance import this_code
from replaybench.envs.interface.threads import thread_count
from replaybench.experiments.plan import for_each
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.study import Cell

_ROUNDS: Final = 4
_SECONDS: Final = 3.0
_STEPS: Final = 200
"""Of a member, at least so many are timed, or episodes that are over sooner would count for nothing but their ends."""


def estimate_seconds(
    cells: Sequence[Cell], workers: int, progress: Callable[[int, int], object] = lambda done, due: None
) -> float:
    """Return how long cells will take, references and first compilation not counted.

    Args:
        workers: processes that share them.
        progress: called with the number of kinds tried so far, and of all.
    """
    kinds = {_kind(cell): cell for cell in cells}
    per_step: dict[str, float] = {}
    for done, (kind, cell) in enumerate(kinds.items()):
        progress(done, len(kinds))
        per_step[kind] = _seconds_per_step(kind, cell)
    work = [
        steps * per_step[_kind(cell)]
        for cell, steps in zip(cells, for_each(cells, attrgetter("total_steps")), strict=True)
    ]
    return max(sum(work) / workers, max(work)) if work else 0.0


def kept_seconds(cells: Sequence[Cell], workers: int) -> float | None:
    """Return how long cells will take where all their kinds were tried here before; None where one was not."""
    known = all(_kept(kind) is not None for kind in map(_kind, cells))
    return estimate_seconds(cells, workers) if known else None


def _kind(cell: Cell) -> str:
    """Return a key that cells share whose steps cost the same here, under this version."""
    same: dict[str, Any] = {"noise": 0.0, "root_seed": 0, "first_member": 0, "episodes": 0, "greedy_every": 0}
    code = this_code()
    about = [dataclasses.asdict(dataclasses.replace(cell, **same)), VERSION, NUMERICS_VERSION, code.commit]
    return hashlib.sha256(json.dumps([*about, code.processor, code.target]).encode()).hexdigest()[:16]


def _seconds_per_step(kind: str, cell: Cell) -> float:
    """Return the seconds that a step of one member costs, updates included, as kept or tried now."""
    kept = _kept(kind)
    if kept is not None:
        return kept
    found = _tried(cell)
    store_text(_path(kind), json.dumps({"cell": cell.label, "seconds_per_step": found}) + "\n")
    return found


def _kept(kind: str) -> float | None:
    with contextlib.suppress(UserError):
        kept: Any = read_json(_path(kind)).get("seconds_per_step")
        if isinstance(kept, float) and kept > 0:
            return kept
    return None


def _path(kind: str) -> Path:
    return cache_dir() / "calibration" / f"{kind}.json"


def _tried(cell: Cell) -> float:
    """Run the beginning of a cell, after one round that may compile; learners begin to learn at once."""
    eager = {name: 0 for name in cell.settings if name == "warmup_episodes"}
    rounds = max(_ROUNDS, -(-_STEPS // cell.steps_per_episode))
    short = dataclasses.replace(cell, episodes=1 + rounds, settings={**cell.settings, **eager})
    # Where one thread does it all, the time that it was at work leaves out whatever else the machine did meanwhile.
    clock = time.process_time if cell.device == "cpu" and thread_count() == 1 else time.perf_counter
    with contextlib.closing(CellRun(short)) as run:
        _timed(run, clock)
        seconds = [_timed(run, clock)]
        while len(seconds) < rounds and sum(seconds) < _SECONDS:
            seconds.append(_timed(run, clock))
    return sum(seconds) / len(seconds) / (cell.steps_per_episode * cell.members)


def _timed(run: CellRun, clock: Callable[[], float]) -> float:
    """Return the seconds that the next round of a run takes."""
    began = clock()
    run.advance()
    return clock() - began
