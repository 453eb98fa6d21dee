"""Time, memory and disk that a sweep needs, and warnings about a study."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from replaybench.baselines.grid_choice import check_effort, reference_bytes
from replaybench.baselines.references import kept_at
from replaybench.controllers.registry import load_learner
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import make_plant
from replaybench.experiments.cell import CellRun
from replaybench.experiments.schedule import updates_after
from replaybench.experiments.snapshots import snapshot_rounds
from replaybench.experiments.study import Cell, Study, reference_cells
from replaybench.experiments.tasks import never_fills, same_runs, shared
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import why_not_kept
from replaybench.runtime.provenance import available_memory
from replaybench.runtime.quantities import gigabytes
from replaybench.runtime.user_file import names_from

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
    """Cut the study into cells and estimate memory (the largest cells and references at once) and disk."""
    with names_from(study.folder):
        cells = study.cells()
        same = shared(cells, folder)
        todo = [c for c in cells if c.id not in same and not (folder.cell(c.id) / "scores.h5").is_file()]
        built: dict[str, _Probe] = {}
        sizes = sorted(for_each(todo, lambda cell: _cell_bytes(cell, _probe(cell, built).replay)), reverse=True)
        kept = {"final": 1.0, "compressed": _PACKED, "none": 0.0}[study.buffers]
        disk = int(kept * sum(sizes)) + sum(for_each(todo, lambda cell: _other_bytes(cell, _probe(cell, built))))
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
            run.replay.state_dict()  # raises an error if files cannot hold it
    return built[key]


def _cell_bytes(cell: Cell, buffer: Replay) -> int:
    unit, steps = buffer.unit.steps, cell.steps_per_episode
    slots = (steps if cell.update_every else -(-steps // unit)) * cell.episodes  # an episode may be as short as a step
    if buffer.strategy.retention.bounded:
        slots = min(cell.capacity // unit, slots)
    extra = buffer.strategy.slot_bytes + (0 if buffer.traces is None else buffer.traces.slot_bytes)
    return cell.members * slots * (4 * unit * buffer.columns.width + extra)


def _other_bytes(cell: Cell, probe: _Probe) -> int:
    """Return the bytes of a cell's other files; scores count twice, because results contain them too."""
    scores = 8 * cell.members * (2 * cell.episodes + (1 + probe.metrics) * (cell.episodes // cell.greedy_every))
    snapshots = len(snapshot_rounds(cell.episodes)) * probe.snapshot_bytes
    return cell.members * probe.policy_bytes + 2 * scores + snapshots + _RECORD_BYTES


def check_room(plan: Plan, folder: Path, local: bool = True) -> None:
    """Raise `UserError` for a sweep that does not fit; memory counts only for local cells."""
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


_FADES: Final = (("first_amplitude", "last_amplitude"), ("sigma", "last_sigma"), ("first_random", "last_random"))
"""Settings of exploration at the beginning and at the end of its decay."""


def plan_warnings(cells: Sequence[Cell]) -> list[str]:
    """Return a line for each reason why cells of a study are pointless."""
    points = list({cell.kind[:-1]: cell for cell in cells}.values())
    found = [line for cell in points for line in _in_vain(cell) or _unfaded(cell)]
    found += [line for group in same_runs(points, contents_only=True) for line in _never_full(group)]
    found = list(dict.fromkeys(found))
    noise = max((cell.noise for cell in cells), default=0.0)
    if noise > 1:
        found.append(f"noise {noise:g}: that is more than half the range of every signal, which drowns in it")
    if uncached := why_not_kept():
        found.append(uncached)
    return found


def _never_full(group: Sequence[Cell]) -> list[str]:
    """Warn of strategies that are equal because buffers never fill, or of a retention without effect."""
    retentions = {cell.strategy: parse(cell.strategy).retention for cell in group}
    names, first = list(retentions), group[0]
    if len(names) < 2 and (retentions[first.strategy].in_turn or not never_fills(first)):
        return []
    rooms = dict.fromkeys(f"{cell.capacity:,}" for cell in group if retentions[cell.strategy].bounded)
    steps = first.steps_per_episode * first.episodes
    same = f"{names[0]} keeps every experience, as FULL does"
    if len(names) > 1:
        same = f"{', '.join(names[:-1])} and {names[-1]} keep the same experiences"
        same += ": they are the same runs, and computed once" if len(same_runs(group)) == 1 else ""
    return [
        f"buffers never fill: a run has {steps:,} steps, buffers have room for {' and '.join(rooms)}, so {same}; raise "
        f"episodes, or set a capacity below {steps:,}"
    ]


def _table(cell: Cell, part: str = "") -> str:
    """Return the heading of a learner's table in a study, quoted if TOML needs it."""
    bare = re.fullmatch(r"[\w-]+", cell.learner, re.ASCII)
    return f"[learner.{cell.learner if bare else json.dumps(cell.learner, ensure_ascii=False)}{part}]"


def _in_vain(cell: Cell) -> list[str]:
    learner, config = load_learner(cell.learner)
    settings: Any = build(config, cell.settings, f"settings of {cell.learner}")
    counted = "rounds" if cell.update_every else "episodes"
    warm_up = getattr(settings, "warmup_episodes", 0)
    if warm_up >= cell.episodes:
        return [
            f"{cell.learner} learns nothing: it warms up for {warm_up} {counted}, the run has {cell.episodes}; "
            f"raise episodes, or lower warmup_episodes in {_table(cell)}"
        ]
    strategy = parse(cell.strategy).at(cell.frequency)
    episode = cell.steps_per_episode
    steps = episode * cell.episodes
    stored, batch = int(steps * strategy.entry_share), settings.batch_size * getattr(settings, "segment", 1)
    if stored < batch:
        return [
            f"{cell.learner} has little to learn from: {cell.plant} at {cell.frequency:g} Hz gives {stored} "
            f"experiences in {cell.episodes} {counted}, a batch has {batch}; raise episodes"
        ]
    on_policy = getattr(settings, "on_policy", getattr(learner, "on_policy", False))
    if not on_policy and updates_after(steps, episode, strategy, settings) < 1:
        return [
            f"{cell.learner} learns nothing: {steps} steps are followed by no update; raise episodes, or "
            f"replays_per_experience in {_table(cell)}"
        ]
    return []


def _unfaded(cell: Cell) -> list[str]:
    noise, part = cell.settings.get("exploration"), ".exploration"
    if not isinstance(noise, Mapping):
        noise, part = cell.settings, ""
    fades = any(noise.get(last) is not None and noise.get(first) != noise[last] for first, last in _FADES)
    over = noise.get("decay_episodes") or 0
    if not fades or over <= 2 * cell.episodes:
        return []
    counted = "rounds" if cell.update_every else "episodes"
    return [
        f"{cell.learner} explores nearly as much at the end as at the beginning: that fades over {over} {counted}, the "
        f"run has {cell.episodes}; set decay_episodes in {_table(cell, part)} to {max(1, cell.episodes // 3)}, a third"
    ]
