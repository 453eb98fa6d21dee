"""The main job: plan a study, refuse what cannot fit, run its references and cells, write results and figures."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from replaybench.baselines.grid_choice import Rule
from replaybench.baselines.references import Reference, reference
from replaybench.controllers.device import check_device
from replaybench.data.atomic import write_text
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.memory import available_memory, gigabytes
from replaybench.envs.registry import make_plant
from replaybench.experiments.interruption import Interrupted
from replaybench.experiments.plan_report import replaced
from replaybench.experiments.progress import Display
from replaybench.experiments.provenance import write_provenance
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.cluster import run_on_cluster
from replaybench.experiments.training.study import Cell, Study, resolved, write_toml
from replaybench.experiments.training.tasks import Job, Report, Run, run_cell_task, store_files
from replaybench.experiments.training.workers import run_locally
from replaybench.replay.buffer import Replay

_WORKER_BYTES = 400 << 20  # an interpreter with the compiled kernels loaded
_PROBE_EPISODES = 3
_PROBE_SECONDS = 20.0
_PROBE_CAPACITY = 10_000


@dataclass(frozen=True)
class Plan:
    """What a sweep would do: its open cells, and what they need."""

    cells: list[Cell]
    open: list[Cell]
    memory_bytes: int
    disk_bytes: int


def plan(study: Study, folder: RunFolder, workers: int) -> Plan:
    """Cut the study into cells and estimate memory (the largest cells at once) and disk.

    Raises:
        UserError: a cell cannot be run.
    """
    cells = study.cells()
    todo = [cell for cell in cells if not (folder.cell(cell.id) / "scores.h5").is_file()]
    built: dict[str, Replay] = {}
    sizes = sorted(_for_each(todo, lambda cell: _cell_bytes(cell, _buffer(cell, built))), reverse=True)
    disk = sum(size for size in sizes) if study.buffers != "none" else 0
    # While a cell runs, its checkpoint holds its buffer too.
    disk += sum(sizes[:workers]) + (50 << 20)
    return Plan(cells, todo, sum(sizes[:workers]) + min(workers, len(todo)) * _WORKER_BYTES, disk)


def _buffer(cell: Cell, built: dict[str, Replay]) -> Replay:
    """Return a small buffer like those of the cell, and keep it in `built` for cells that differ in numbers only.

    A whole run of one member is built around it, so that parts which do not go together are refused now.
    """
    parts = (cell.plant, cell.parameters, cell.learner, cell.settings, cell.strategy, cell.observe, cell.replayed_noise)
    key = json.dumps(parts)
    if key not in built:
        capacity = min(cell.capacity, _PROBE_CAPACITY)
        small = dataclasses.replace(cell, members=1, episodes=1, capacity=capacity, device="cpu")
        with contextlib.closing(CellRun(small)) as run:
            built[key] = run.replay
    return built[key]


def _cell_bytes(cell: Cell, buffer: Replay) -> int:
    """Bytes of a cell's buffers when full."""
    unit, steps = buffer.unit.steps, _steps(cell)
    slots = (steps if cell.update_every else -(-steps // unit)) * cell.episodes  # an episode may be as short as a step
    if buffer.strategy.retention.bounded:
        slots = min(cell.capacity // unit, slots)
    beside = buffer.strategy.slot_bytes + (0 if buffer.traces is None else buffer.traces.slot_bytes)
    return cell.members * slots * (4 * unit * buffer.columns.width + beside)


def check_room(plan: Plan, folder: Path, local: bool = True) -> None:
    """Refuse a sweep that will not fit; memory counts only where the cells run on this machine.

    Raises:
        UserError: more memory or disk is needed than there is.
    """
    there = folder
    while not there.exists():
        there = there.parent
    disk, memory = shutil.disk_usage(there).free, available_memory()
    if plan.disk_bytes > disk:
        raise UserError(
            f"this sweep needs about {gigabytes(plan.disk_bytes)} on disk, {folder} has {gigabytes(disk)} free; "
            "use --buffers none, fewer episodes, or another --output"
        )
    if local and plan.memory_bytes > memory:
        raise UserError(
            f"this sweep needs about {gigabytes(plan.memory_bytes)} of memory, {gigabytes(memory)} are free; "
            "use fewer --workers, a smaller block, or fewer episodes"
        )


def estimate_seconds(cells: Sequence[Cell], workers: int) -> float:
    """Time the first open cell here for a while, updates included, and scale by members, steps and episodes."""
    if not cells:
        return 0.0
    first = cells[0]
    eager = {name: 0 for name in first.settings if name == "warmup_episodes"}
    short = dataclasses.replace(first, episodes=_PROBE_EPISODES, settings={**first.settings, **eager})
    seconds: list[float] = []
    with contextlib.closing(CellRun(short)) as probe:
        while len(seconds) < _PROBE_EPISODES and sum(seconds) < _PROBE_SECONDS:
            began = time.perf_counter()
            probe.advance()
            seconds.append(time.perf_counter() - began)
    per_step = min(seconds) / (_steps(first) * first.members)  # the first round may compile
    work = [per_step * steps for steps in _for_each(cells, _total_steps)]
    return max(sum(work) / workers, max(work))


def _for_each(cells: Sequence[Cell], value: Callable[[Cell], int]) -> list[int]:
    """Return a value of each cell, computed once for all that differ in their seeds only."""
    known: dict[Any, int] = {}
    return [known[cell.kind] if cell.kind in known else known.setdefault(cell.kind, value(cell)) for cell in cells]


def _weighed(cells: Sequence[Cell]) -> Iterator[tuple[int, Cell]]:
    return zip(_for_each(cells, _total_steps), cells, strict=True)


def _total_steps(cell: Cell) -> int:
    return _steps(cell) * cell.members * cell.episodes


def _steps(cell: Cell) -> int:
    return make_plant(cell.plant, **cell.parameters).steps_per_episode(cell.frequency)


def reference_task(cell: Cell, rule: Rule | None, report: Report) -> Reference:
    """Compute, or fetch from the cache, what a cell's scores are measured against."""
    return reference(make_plant(cell.plant, **cell.parameters), cell.frequency, cell.noise, rule)


def sweep(
    study: Study,
    output: Path,
    *,
    workers: int,
    cluster: str | None,
    checkpoint_seconds: float,
    console: Console,
    figures: Callable[[Any, RunFolder, Sequence[Cell]], list[Path]],
) -> tuple[Any, list[Path], int]:
    """Run a study into a folder, or continue there.

    Args:
        workers: local worker processes.
        cluster: address of a Dask scheduler, used in their place.
        checkpoint_seconds: least time between the checkpoints of a local cell.
        figures: draws the figures of a dataset.

    Returns:
        The dataset, the paths of the figures, and the exit status: 0, or 130 or 143 where Ctrl-C or SIGTERM came.

    Raises:
        UserError: the sweep cannot run here, does not fit, or its folder is in use.
    """
    from replaybench.experiments.results.dataset import assemble
    from replaybench.experiments.results.results_file import write_results

    folder = RunFolder(output)
    planned = plan(study, folder, workers)
    if cluster is None and planned.open:
        check_device(study.device)
    check_room(planned, output, local=cluster is None)
    with folder.locked():
        folder.remove_partial_files()
        todo = plan(study, folder, workers)
        if notice := replaced(folder, study, todo.cells):
            console.print(notice, markup=False, highlight=False)
        write_text(folder.study, write_toml(resolved(study, todo.cells)))
        points = {(cell.plant, cell.frequency, cell.noise): cell for cell in todo.cells}
        # The dearest cells first, so that no worker is left alone with one at the end.
        ordered = [cell for _, cell in sorted(_weighed(todo.open), key=lambda weighed: -weighed[0])]
        tasks = [Job(f"{point}", reference_task, (cell, study.reference)) for point, cell in points.items()]
        home = None if cluster else folder
        for cell in ordered:
            where = (home and home.cell(cell.id), study.buffers, checkpoint_seconds)
            tasks.append(Job(cell.id, run_cell_task, (cell, *where), stops=True))
        status, references = 0, dict[str, Reference]()
        run: Run = partial(run_on_cluster, cluster) if cluster else partial(run_locally, workers)
        with Display(console, todo.cells, todo.open) as display:

            def finish(key: str, result: Any) -> None:
                if isinstance(result, Reference):
                    references[key] = result
                    return
                if isinstance(result, dict):
                    store_files(folder.cell(key), result)
                display.complete(key)

            try:
                run(tasks, display.advance, finish)
            except Interrupted as interruption:
                status = interruption.status
        known = {point: references[f"{point}"] for point in points if f"{point}" in references}
        data = assemble(todo.cells, known, {cell.id: folder.cell(cell.id) for cell in todo.cells})
        write_results(folder.results, data)
        write_provenance(folder, study.name, todo.cells, complete=not status)
        drawn = figures(data, folder, todo.cells) if not status else []
    return data, drawn, status
