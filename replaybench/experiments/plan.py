"""What a sweep would do, and what it needs of time, memory and disk; what cannot be run or does not fit is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replaybench.baselines.effort import check_effort, reference_bytes
from replaybench.baselines.references import kept_at
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.memory import available_memory
from replaybench.data.quantities import gigabytes
from replaybench.envs.registry import make_plant
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.shared_cells import shared
from replaybench.experiments.training.study import Cell, Study
from replaybench.replay.buffer import Replay

_WORKER_BYTES = 400 << 20  # an interpreter with the compiled kernels loaded
_PROBE_CAPACITY = 10_000


@dataclass(frozen=True)
class Plan:
    """What a sweep would do: its open cells, and what they need.

    Attributes:
        open: cells that are computed.
        shared: by id, the unfinished cells that are the same runs as another, and that other.
    """

    cells: list[Cell]
    open: list[Cell]
    shared: dict[str, Cell]
    memory_bytes: int
    disk_bytes: int


def plan(study: Study, folder: RunFolder, workers: int) -> Plan:
    """Cut the study into cells and estimate memory (the largest cells and references at once) and disk.

    Raises:
        UserError: a cell cannot be run, or what it is measured against would take hours.
    """
    cells = study.cells()
    same = shared(cells, folder)
    todo = [c for c in cells if c.id not in same and not (folder.cell(c.id) / "scores.h5").is_file()]
    built: dict[str, Replay] = {}
    sizes = sorted(for_each(todo, lambda cell: _cell_bytes(cell, _buffer(cell, built))), reverse=True)
    disk = sum(size for size in sizes) if study.buffers != "none" else 0
    # While a cell runs, its checkpoint holds its buffer too.
    disk += sum(sizes[:workers]) + (50 << 20)
    tasks = sorted(sizes + _reference_sizes(study, cells), reverse=True)
    return Plan(cells, todo, same, sum(tasks[:workers]) + min(workers, len(tasks)) * _WORKER_BYTES, disk)


def _reference_sizes(study: Study, cells: Sequence[Cell]) -> list[int]:
    """Return the bytes that each of the references which are not known yet may need."""
    points = {(cell.plant, cell.frequency, cell.noise): cell for cell in cells}
    sizes = []
    for cell in points.values():
        plant = make_plant(cell.plant, **cell.parameters)
        if not kept_at(plant, cell.frequency, cell.noise, study.reference).is_file():
            check_effort(plant, cell.frequency, cell.noise)
            sizes.append(reference_bytes(plant, study.reference))
    return sizes


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
            run.replay.state_dict()  # what files could not hold is told now
    return built[key]


def _cell_bytes(cell: Cell, buffer: Replay) -> int:
    """Bytes of a cell's buffers when full."""
    unit, steps = buffer.unit.steps, cell.steps_per_episode
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


def for_each(cells: Sequence[Cell], value: Callable[[Cell], int]) -> list[int]:
    """Return a value of each cell, computed once for all that differ in their seeds only."""
    known: dict[Any, int] = {}
    return [known[cell.kind] if cell.kind in known else known.setdefault(cell.kind, value(cell)) for cell in cells]
