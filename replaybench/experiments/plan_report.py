"""What a sweep says before it runs: its cells and what they need."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.quantities import duration, gigabytes
from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.calibration import estimate_seconds
from replaybench.experiments.inspection.cell_table import reached
from replaybench.experiments.inspection.fitted_table import FittedTable
from replaybench.experiments.plan import check_room, plan
from replaybench.experiments.plan_warnings import plan_warnings
from replaybench.experiments.study_changes import replaced
from replaybench.experiments.sweep import cores
from replaybench.experiments.training.study import Cell, Study

_MOST_ROWS: Final = 200
_NAMES: Final = ("plant", "learner", "strategy")
_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "episodes", "updates", "state")
_RIGHT: Final = ("noise", "Hz", "seeds", "episodes")
_DROPPABLE: Final = ("updates", "cell", "state")


def show_plan(console: Console, study: Study, folder: Path, workers: int, cluster: str | None = None) -> None:
    """Print the grid points of a study, what their cells need in time, memory and disk, and what would be replaced.

    The workers of a cluster are not asked: what one of them needs, if it is as fast as this machine, is told.

    Raises:
        UserError: a cell cannot be run, or all of them do not fit.
    """
    todo = plan(study, RunFolder(folder), workers if cluster is None else 1)
    title = f"{study.name}: {len(todo.cells)} cell{'s' * (len(todo.cells) != 1)}, {len(todo.open)} to run"
    points: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in todo.cells:
        points.setdefault(cell.kind[:-1], []).append(cell)
    if todo.shared:
        title += f", {len(todo.shared)} of the same runs as others"
    open_ids = {cell.id for cell in todo.open}
    short = {axis: shortened(getattr(cell, axis) for cell in todo.cells) for axis in _NAMES}
    further = len(points) - _MOST_ROWS
    caption = f"… and {further} further grid points" if further > 0 else ""
    table = FittedTable(_HEADINGS, _NAMES, _RIGHT, _DROPPABLE, title=title, caption=caption)
    for blocks in itertools.islice(points.values(), _MOST_ROWS):
        at = reached(RunFolder(folder), blocks[0]) if len(blocks) == 1 and blocks[0].id in open_ids else ""
        same = todo.shared.get(blocks[0].id)
        at = f"same runs as {same.strategy}" if same else at
        table.add(*_row(blocks, short, sum(cell.id in open_ids for cell in blocks), at))
    console.print(table)
    check_room(todo, folder)
    at_once = min(workers, cores()) if cluster is None else 1
    needed = duration(estimate_seconds(todo.open, at_once))
    who = f"{workers} worker(s) of this machine" if cluster is None else f"one worker; those of {cluster} share it"
    if cluster is None and at_once < workers:
        who += f", which share its {at_once} core(s)"
    print(f"time    about {needed} on {who}, references not counted")
    print(f"memory  about {gigabytes(todo.memory_bytes)}")
    print(f"disk    about {gigabytes(todo.disk_bytes)} in {folder}")
    if notice := replaced(RunFolder(folder), study, todo.cells):
        console.print(notice, markup=False, highlight=False)
    for warning in plan_warnings(todo.cells):
        console.print(f"warning: {warning}", markup=False, highlight=False)


def _row(blocks: Sequence[Cell], short: Mapping[str, Mapping[str, str]], missing: int, at: str) -> tuple[str, ...]:
    """Describe the cells of one grid point, a block of seeds each, of which so many are to be run.

    Args:
        short: by axis and name, what a name is written as.
        at: where a single unfinished cell goes on, if that is not at its beginning, or whose runs it shares.
    """
    cell, count = blocks[0], len(blocks)
    state = {0: at or "complete", count: f"to run, {at}" if at else "to run"}.get(
        missing, f"{missing} of {count} to run"
    )
    numbers = (f"{cell.noise:g}", f"{cell.frequency:g}", str(sum(each.members for each in blocks)), str(cell.episodes))
    every = "every step" if cell.update_every == 1 else f"every {cell.update_every} steps"
    schedule = every if cell.update_every else "each episode"
    name = cell.id if count == 1 else f"{count} blocks"
    names = (short[axis][getattr(cell, axis)] for axis in _NAMES)
    return name, *names, *numbers, schedule, state
