"""Report of a planned sweep: its cells, and the time, memory and disk they need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.quantities import duration, gigabytes
from replaybench.data.user_code.user_file import names_from, shortened
from replaybench.envs.ode.plant import steps_told
from replaybench.experiments.calibration import TRIAL_SECONDS, estimate, untried
from replaybench.experiments.inspection.cell_table import reached
from replaybench.experiments.inspection.fitted_table import FittedTable
from replaybench.experiments.plan import Plan, check_room, plan
from replaybench.experiments.plan_warnings import plan_warnings
from replaybench.experiments.study_changes import replaced
from replaybench.experiments.sweep import cores
from replaybench.experiments.training.learning_task import horizon
from replaybench.experiments.training.study import Cell, Study

_MOST_ROWS: Final = 200
_NAMES: Final = ("plant", "learner", "strategy")
_HEADINGS: Final = ("cell", *_NAMES, "noise", "Hz", "seeds", "episodes", "updates", "state")
_RIGHT: Final = ("noise", "Hz", "seeds", "episodes")
_DROPPABLE: Final = ("updates", "cell", "state")


def show_plan(
    console: Console, study: Study, folder: Path, workers: int, cluster: str | None = None, measure: bool = True
) -> None:
    """Print the grid points of a study, the time, memory and disk of its cells, and what would be replaced.

    With a cluster, the needs are those of one worker as fast as this machine.

    Args:
        measure: try classes of cells of unknown speed for some seconds each.

    Raises:
        UserError: a cell cannot be run, or they do not fit.
    """
    with names_from(study.folder):
        _show(console, study, folder, workers, cluster, measure)


def _show(console: Console, study: Study, folder: Path, workers: int, cluster: str | None, measure: bool) -> None:
    run = RunFolder(folder)
    todo = plan(study, run, workers if cluster is None else 1)
    console.print(_cell_table(study.name, todo, run))
    for line in (*_discounts(todo.cells), *_substeps(todo.cells)):
        console.print(line, markup=False, highlight=False)
    check_room(todo, folder)
    at_once = min(workers, cores()) if cluster is None else 1
    if measure and (new := untried(todo.open)):
        kinds = f"{new} kind{'s' * (new != 1)} of cells"
        print(f"measuring the speed of {kinds}, at most {TRIAL_SECONDS:g} s each; --no-measure skips that", flush=True)
    needed = estimate(todo.open, todo.cells, study.reference, at_once, measure)
    who = f"{workers} worker(s) of this machine" if cluster is None else f"one worker; those of {cluster} share it"
    if cluster is None and at_once < workers:
        who += f", which share its {at_once} core(s)"
    print(f"time    about {duration(needed.seconds)} on {who}")
    print(f"        {needed.in_words()}")
    print(f"memory  about {gigabytes(todo.memory_bytes)}")
    print(f"disk    about {gigabytes(todo.disk_bytes)} in {folder}")
    if notice := replaced(run, study, todo.cells):
        console.print(notice, markup=False, highlight=False)
    for warning in plan_warnings(todo.cells):
        console.print(f"warning: {warning}", markup=False, highlight=False)


def _cell_table(name: str, todo: Plan, folder: RunFolder) -> FittedTable:
    title = f"{name}: {len(todo.cells)} cell{'s' * (len(todo.cells) != 1)}, {len(todo.open)} to run"
    title += f", {len(todo.shared)} of the same runs as others" if todo.shared else ""
    points: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in todo.cells:
        points.setdefault(cell.kind[:-1], []).append(cell)
    further = len(points) - _MOST_ROWS
    caption = f"… and {further} further grid points" if further > 0 else ""
    table = FittedTable(_HEADINGS, _NAMES, _RIGHT, _DROPPABLE, title=title, caption=caption)
    open_ids = {cell.id for cell in todo.open}
    short = {axis: shortened(getattr(cell, axis) for cell in todo.cells) for axis in _NAMES}
    for blocks in itertools.islice(points.values(), _MOST_ROWS):
        cell, count = blocks[0], len(blocks)
        missing = sum(block.id in open_ids for block in blocks)
        if 0 < missing < count:
            state = f"{missing} of {count} to run"
        elif missing:
            at = reached(folder, cell) if count == 1 else ""
            state = f"to run, {at}" if at else "to run"
        else:
            same = todo.shared.get(cell.id)
            state = f"same runs as {same.strategy}" if same else "complete"
        seeds = str(sum(block.members for block in blocks))
        every = "every step" if cell.update_every == 1 else f"every {cell.update_every} steps"
        table.add(
            cell.id if count == 1 else f"{count} blocks",
            *(short[axis][getattr(cell, axis)] for axis in _NAMES),
            *(f"{cell.noise:g}", f"{cell.frequency:g}", seeds, str(cell.episodes)),
            every if cell.update_every else "each episode",
            state,
        )
    return table


def _discounts(cells: Sequence[Cell]) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for cell in {(cell.plant, cell.learner, cell.frequency): cell for cell in cells}.values():
        words = horizon(cell.gamma, cell.frequency)
        found.setdefault(f"discount  {cell.plant} at {cell.frequency:g} Hz: {words}", set()).add(cell.learner)
    everyone = len({cell.learner for cell in cells})
    for line, learners in found.items():
        yield line if len(learners) == everyone else f"{line} ({', '.join(sorted(learners))})"


def _substeps(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in {(cell.plant, cell.frequency): cell for cell in cells}.values():
        if words := steps_told(cell.make_plant(), cell.frequency):
            yield f"substeps  {cell.plant} at {cell.frequency:g} Hz: {words}"
