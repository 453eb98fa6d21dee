"""The plan of a sweep: its cells, and the memory and disk they need; sweeps that cannot run or fit are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from replaybench.baselines.effort import check_effort, reference_bytes
from replaybench.baselines.references import kept_at
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.memory import available_memory
from replaybench.data.quantities import gigabytes
from replaybench.data.user_code.user_file import names_from
from replaybench.envs.registry import make_plant
from replaybench.experiments.snapshots.times import snapshot_rounds
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.shared_cells import shared
from replaybench.experiments.training.study import Cell, Study, reference_cells
from replaybench.replay.buffer import Replay

_WORKER_BYTES = 400 << 20  # an interpreter with the compiled kernels loaded
_PROBE_CAPACITY = 10_000
_PACKED: Final = 0.6
"""Assumed compression of buffers."""
_RECORD_BYTES: Final = 24 << 10
"""Headers and facts of a cell's files."""
_FIGURE_BYTES: Final = (500_000, 180_000)
"""Figures of a plant, and of each of its grid points."""


@dataclass(frozen=True)
class Plan:
    """Cells of a sweep, and what they need.

    Attributes:
        open: cells that are computed.
        disk_bytes, most_disk_bytes: at the end, and the most before.
        shared: by id, the unfinished cells with the same runs as another, and that other.
    """

    cells: list[Cell]
    open: list[Cell]
    shared: dict[str, Cell]
    memory_bytes: int
    disk_bytes: int
    most_disk_bytes: int


class _Probe(NamedTuple):
    """Sizes of a run of one member: its buffer, bytes of its policy and of a snapshot, number of metrics."""

    replay: Replay
    policy_bytes: int
    snapshot_bytes: int
    metrics: int


def plan(study: Study, folder: RunFolder, workers: int) -> Plan:
    """Cut the study into cells and estimate memory (the largest cells and references at once) and disk.

    Raises:
        UserError: a cell cannot be run, or its references would take hours.
    """
    with names_from(study.folder):
        cells = study.cells()
        same = shared(cells, folder)
        todo = [c for c in cells if c.id not in same and not (folder.cell(c.id) / "scores.h5").is_file()]
        built: dict[str, _Probe] = {}
        sizes = sorted(for_each(todo, lambda cell: _cell_bytes(cell, _probe(cell, built).replay)), reverse=True)
        kept = {"final": 1.0, "compressed": _PACKED, "none": 0.0}[study.buffers]
        disk = int(kept * sum(sizes)) + sum(for_each(todo, lambda cell: _beside_bytes(cell, _probe(cell, built))))
        tasks = sorted(sizes + _reference_sizes(study, cells), reverse=True)
    if todo:
        points = {cell.kind[:-1] for cell in cells}
        disk += _FIGURE_BYTES[0] * len({cell.plant for cell in cells}) + _FIGURE_BYTES[1] * len(points)
    # While a cell runs, its checkpoint holds its buffer too.
    most = disk + sum(sizes[:workers])
    memory = sum(tasks[:workers]) + min(workers, len(tasks)) * _WORKER_BYTES
    return Plan(cells, todo, same, memory, disk, most)


def _reference_sizes(study: Study, cells: Sequence[Cell]) -> list[int]:
    sizes = []
    for cell in reference_cells(cells).values():
        plant = make_plant(cell.plant, **cell.parameters)
        if not kept_at(plant, cell.frequency, cell.noise, study.reference).is_file():
            check_effort(plant, cell.frequency, cell.noise)
            sizes.append(reference_bytes(plant, study.reference))
    return sizes


def _probe(cell: Cell, built: dict[str, _Probe]) -> _Probe:
    """Return the sizes of a small run of a cell, cached in `built`; parts that do not fit together are refused."""
    parts = (cell.plant, cell.parameters, cell.learner, cell.settings, cell.strategy, cell.observe, cell.replayed_noise)
    key = json.dumps(parts)
    if key not in built:
        capacity = min(cell.capacity, _PROBE_CAPACITY)
        small = dataclasses.replace(cell, members=1, episodes=1, capacity=capacity, device="cpu")
        with contextlib.closing(CellRun(small)) as run:
            policy = sum(array.nbytes for array in run.agent.weights().values())
            snapshot = sum(array.nbytes for array in run.snapshots.arrays().values()) // len(snapshot_rounds(1))
            built[key] = _Probe(run.replay, policy, snapshot, len(run.metrics))
            run.replay.state_dict()  # refuses what files cannot hold
    return built[key]


def _cell_bytes(cell: Cell, buffer: Replay) -> int:
    unit, steps = buffer.unit.steps, cell.steps_per_episode
    slots = (steps if cell.update_every else -(-steps // unit)) * cell.episodes  # an episode may be as short as a step
    if buffer.strategy.retention.bounded:
        slots = min(cell.capacity // unit, slots)
    extra = buffer.strategy.slot_bytes + (0 if buffer.traces is None else buffer.traces.slot_bytes)
    return cell.members * slots * (4 * unit * buffer.columns.width + extra)


def _beside_bytes(cell: Cell, probe: _Probe) -> int:
    """Return the bytes of a cell's other files; results hold the scores a second time."""
    scores = 8 * cell.members * (2 * cell.episodes + (1 + probe.metrics) * (cell.episodes // cell.greedy_every))
    snapshots = len(snapshot_rounds(cell.episodes)) * probe.snapshot_bytes
    return cell.members * probe.policy_bytes + 2 * scores + snapshots + _RECORD_BYTES


def check_room(plan: Plan, folder: Path, local: bool = True) -> None:
    """Refuse a sweep that does not fit; memory counts only for local cells.

    Raises:
        UserError: it needs more memory or disk than there is.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    disk, memory = shutil.disk_usage(existing).free, available_memory()
    if plan.most_disk_bytes > disk:
        raise UserError(
            f"this sweep needs about {gigabytes(plan.most_disk_bytes)} on disk, {folder} has {gigabytes(disk)} free; "
            "use --buffers none, fewer episodes, or another --output"
        )
    if local and plan.memory_bytes > memory:
        raise UserError(
            f"this sweep needs about {gigabytes(plan.memory_bytes)} of memory, {gigabytes(memory)} are free; "
            "use fewer --workers, a smaller block, or fewer episodes"
        )


def for_each(cells: Sequence[Cell], value: Callable[[Cell], int]) -> list[int]:
    """Return a value of each cell, computed once for cells that differ in their seeds only."""
    known: dict[Any, int] = {}
    for cell in cells:
        if cell.kind not in known:
            known[cell.kind] = value(cell)
    return [known[cell.kind] for cell in cells]
