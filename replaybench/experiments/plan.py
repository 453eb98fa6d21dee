"""The memory and disk space that a sweep of a study needs, and warnings about its settings.

A sweep computes all cells of a study.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from replaybench.baselines.grid_choice import check_effort, reference_bytes
from replaybench.baselines.references import kept_at
from replaybench.baselines.rivals import CONTROLLERS
from replaybench.controllers.registry import load_learner
from replaybench.data.run_folder import RunFolder
from replaybench.envs.interface.channel_of_plant import coarse_readings, periods_under_way
from replaybench.experiments.cell import CellRun
from replaybench.experiments.device_cell import DEVICE_CELLS, device_program
from replaybench.experiments.schedule import horizon, updates_after
from replaybench.experiments.snapshots import snapshot_rounds
from replaybench.experiments.study import VOLUME, Cell, Study, reference_cells, without_axes
from replaybench.experiments.study_record import toml_key
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.retention import FULL
from replaybench.replay.strategies.strategy import is_built_in
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import why_not_kept
from replaybench.runtime.provenance import available_memory
from replaybench.runtime.quantities import gigabytes
from replaybench.runtime.user_file import names_from

T = TypeVar("T")

_WORKER_BYTES = 400 << 20  # an interpreter with the compiled kernels loaded
_PROBE_CAPACITY = 10_000
_PACKED: Final = 0.6
"""Assumed size of compressed buffers as a fraction of their size."""
_RECORD_BYTES: Final = 24 << 10
"""Assumed bytes of the headers in a cell's files."""
_FIGURE_BYTES: Final = (500_000, 180_000)
"""Assumed bytes of the figures of a plant, and of those for each combination of a study's settings."""


@dataclass(frozen=True)
class Plan:
    """The cells of a sweep, and the memory and disk space that the sweep needs.

    Attributes:
        open: Cells that are still to be computed.
        shared: Ids of unfinished cells, each mapped to another cell with equal runs, whose results can be copied.
        memory_bytes: Estimated peak memory of all worker processes together.
        disk_bytes: Estimated disk space at the end of the sweep.
        most_disk_bytes: Estimated peak of the disk space during the sweep, with checkpoints of running cells.
    """

    cells: list[Cell]
    open: list[Cell]
    shared: dict[str, Cell]
    memory_bytes: int
    disk_bytes: int
    most_disk_bytes: int

    def refreshed(self, folder: RunFolder) -> Plan:
        """Return the same plan with the cells that are unfinished now. Another sweep may have finished some."""
        unfinished, same = _unfinished(self.cells, folder)
        return dataclasses.replace(self, open=unfinished, shared=same)


def plan(study: Study, folder: RunFolder, workers: int) -> Plan:
    """List a study's cells, and estimate memory and disk space of the unfinished cells.

    Memory is estimated as if the largest tasks ran at the same time.
    """
    workers = workers if study.device == "cpu" else min(workers, DEVICE_CELLS)
    with names_from(study.folder):
        cells = study.cells()
        for name in study.references:
            CONTROLLERS.load(name)  # raises an error for files that cannot be used
        todo, same = _unfinished(cells, folder)
        _trial_warnings(todo)  # raises an error for plants that cannot be used
        built: dict[str, tuple[Replay, int, int, int]] = {}
        needs = for_each(todo, lambda cell: _bytes(cell, built))
        sizes = sorted((buffer for buffer, _ in needs), reverse=True)
        kept = {"final": 1.0, "compressed": _PACKED, "none": 0.0}[study.buffers]
        disk = int(kept * sum(sizes)) + sum(others for _, others in needs)
        tasks = sorted(sizes + _reference_sizes(study, cells), reverse=True)
    if todo:
        points = {cell.grid_point for cell in cells}
        disk += _FIGURE_BYTES[0] * len({cell.plant for cell in cells}) + _FIGURE_BYTES[1] * len(points)
    # While a cell runs, its checkpoint holds its buffer too.
    most = disk + sum(sizes[:workers])
    memory = sum(tasks[:workers]) + min(workers, len(tasks)) * _WORKER_BYTES
    return Plan(cells, todo, same, memory, disk, most)


def _unfinished(cells: Sequence[Cell], folder: RunFolder) -> tuple[list[Cell], dict[str, Cell]]:
    """Return the cells to compute, and those whose results are copied, as in `shared`."""
    same = shared(cells, folder)
    return [cell for cell in cells if cell.id not in same and not folder.finished(cell.id)], same


def _reference_sizes(study: Study, cells: Sequence[Cell]) -> list[int]:
    sizes = []
    for cell in reference_cells(cells).values():
        plant = cell.make_plant()
        if not kept_at(plant, cell.frequency, cell.noise, study.reference).is_file():
            check_effort(plant, cell.frequency, cell.noise)
            sizes.append(reference_bytes(plant, study.reference))
    return sizes


def _bytes(cell: Cell, built: dict[str, tuple[Replay, int, int, int]]) -> tuple[int, int]:
    """Return the bytes of a cell's buffer file and of its other files, from measured small cells cached in `built`."""
    parts = (cell.plant, cell.parameters, cell.learner, cell.settings, cell.strategy, cell.observe, cell.replayed_noise)
    key = json.dumps(parts)
    if key not in built:
        capacity = min(cell.capacity, _PROBE_CAPACITY)
        small = dataclasses.replace(cell, members=1, episodes=1, capacity=capacity, device="cpu")
        with contextlib.closing(CellRun(small)) as run:
            files = run.agent.weights(), run.snapshots.arrays()
            policy, snapshot = (sum(array.nbytes for array in each.values()) for each in files)
            built[key] = run.replay, policy, snapshot, len(run.metrics)
            run.replay.state_dict()  # raises an error if a file cannot hold the buffer
            if cell.device != "cpu":
                device_program(small, run.parts())  # raises an error if no device supports the cell
    buffer, policy, snapshot, metrics = built[key]
    unit, steps = buffer.unit.steps, cell.steps_per_episode
    slots = (steps if cell.update_every else -(-steps // unit)) * cell.episodes  # an episode may be as short as a step
    if buffer.strategy.retention.bounded:
        slots = min(cell.capacity // unit, slots)
    extra = buffer.strategy.slot_bytes + (0 if buffer.traces is None else buffer.traces.slot_bytes)
    scores = 8 * cell.members * (2 * cell.episodes + (1 + metrics) * (cell.episodes // cell.greedy_every))
    snapshots = len(snapshot_rounds(cell.episodes)) * (snapshot // len(snapshot_rounds(1)))
    others = cell.members * policy + 2 * scores + snapshots + _RECORD_BYTES  # the results file also contains scores
    return cell.members * slots * (4 * unit * buffer.columns.width + extra), others


def shared(cells: Sequence[Cell], folder: RunFolder) -> dict[str, Cell]:
    """Map the ids of unfinished cells to other cells with equal runs.

    Results of the other cells can be copied. Cells without such a partner are left out.
    """
    sources: dict[str, Cell] = {}
    for group in same_runs(cells):
        finished = {cell.id: folder.finished(cell.id) for cell in group}
        first = max(group, key=lambda c: 2 * finished[c.id] + (folder.cell(c.id) / "checkpoint.h5").is_file())
        sources |= {cell.id: first for cell in group if cell is not first and not finished[cell.id]}
    return sources


def _never_fills(cell: Cell) -> bool:
    segment = int(cell.settings.get("segment", 1))
    steps = cell.steps_per_episode  # of a round; in an iteration, an episode may be as short as a step
    units = (steps if cell.update_every else -(-steps // segment)) * cell.episodes
    return not parse(cell.strategy).retention.bounded or cell.capacity // segment >= units


def same_runs(cells: Sequence[Cell], contents_only: bool = False) -> list[list[Cell]]:
    """Group the cells whose runs are equal, because their replay buffers never fill.

    If `contents_only`, cells that store equal experiences but sample differently are grouped, too.
    """
    groups: dict[str, list[Cell]] = {}
    changes: dict[tuple[str | float, ...], dict[str, Any]] = {}
    for cell in cells:
        if cell.configuration not in changes:
            changes[cell.configuration] = _without_retention(cell, contents_only)
        groups.setdefault(dataclasses.replace(cell, **changes[cell.configuration]).id, []).append(cell)
    return list(groups.values())


def _without_retention(cell: Cell, contents_only: bool) -> dict[str, Any]:
    """Return the new settings that replace a cell's retention by `FULL`, or {} if the retention has an effect."""
    strategy = parse(cell.strategy)
    if not all(map(is_built_in, strategy.terms)) or not _never_fills(cell):
        return {}
    # If retention and sampling share an order, equal errors are ranked by age.
    ranked = set(strategy.retention.orders) & set(strategy.sampling.orders)
    if not contents_only and (ranked or strategy.sampling.by_place):
        return {}
    return {"strategy": str(dataclasses.replace(strategy, retention=FULL())), "capacity": 0}


def check_room(plan: Plan, folder: RunFolder, local: bool = True) -> str:
    """Check that enough disk space is free for a sweep and, for a sweep on this machine (`local`), enough memory.

    The need is an upper limit, as episodes may end early. A sweep that has begun is therefore not refused for lack of
    disk space. Files are written whole or not at all, and a full disk stops a sweep without a loss.

    Returns:
        A warning about the disk space, or "".

    Raises:
        UserError: Too little memory is free, or too little disk space for a sweep that has not begun.
    """
    existing = next(path for path in (folder.path, *folder.path.absolute().parents) if path.exists())
    warning = ""
    disk, memory = shutil.disk_usage(existing).free, available_memory()
    if plan.most_disk_bytes > disk:
        warning = (
            f"this sweep needs up to {gigabytes(plan.most_disk_bytes)} on disk, {folder.path} has {gigabytes(disk)} "
            "free; use --buffers none, fewer episodes, or another --output"
        )
        if not any((folder.cell(cell.id)).exists() for cell in plan.cells):
            raise UserError(warning)
    if local and plan.memory_bytes > memory:
        raise UserError(
            f"this sweep needs about {gigabytes(plan.memory_bytes)} of memory, {gigabytes(memory)} are free; "
            "use fewer --workers, a smaller block, or fewer episodes"
        )
    return warning


def for_each(cells: Sequence[Cell], value: Callable[[Cell], T]) -> list[T]:
    """Apply a function to each cell, or reuse the result if only the seeds differ."""
    known: dict[Any, T] = {}
    for cell in cells:
        if cell.configuration not in known:
            known[cell.configuration] = value(cell)
    return [known[cell.configuration] for cell in cells]


_FADES: Final = (("first_amplitude", "last_amplitude"), ("sigma", "last_sigma"), ("first_random", "last_random"))
"""Names of settings in pairs: the initial amount of exploration, and the final amount after its decay."""


def plan_warnings(cells: Sequence[Cell]) -> list[str]:
    """Return warnings about settings of a study that make runs useless or inefficient, one line each."""
    points = list({cell.grid_point: cell for cell in cells}.values())
    lines = [line for cell in points for line in _no_learning(cell) or _constant_exploration(cell)]
    lines += [line for group in same_runs(points, contents_only=True) for line in _never_full(group)]
    channels = [*_coarse_readings(points), *map(_unobserved_commands, points), *map(_late_rewards, points)]
    lines = list(dict.fromkeys([*_trial_warnings(points), *channels, *lines]))
    lines = [line for line in lines if line]
    noise = max((cell.noise for cell in cells), default=0.0)
    if noise > 1:
        lines.append(f"noise {noise:g}: that is more than half the range of every signal, which drowns in it")
    if uncached := why_not_kept():
        lines.append(uncached)
    return lines


def _unobserved_commands(cell: Cell) -> str:
    """Return a warning if commands are under way that a policy without memory does not observe."""
    plant = cell.make_plant()
    channel, steps = plant.channel, plant.episode_seconds * cell.frequency
    needed = min(math.ceil(periods_under_way(plant, cell.frequency) - 1e-9), int(steps))
    if cell.settings.get("memory") is not None or channel.history >= needed:
        return ""
    commands = "the last command" if needed == 1 else f"the last {needed} commands"
    return (
        f"{cell.plant} at {cell.frequency:g} Hz: {commands} may still be under way, and learners observe "
        f"{channel.history or 'none'} of them; set history = {needed} in [channel]"
    )


def _late_rewards(cell: Cell) -> str:
    """Return a warning if commands act later than the discount looks ahead."""
    late = periods_under_way(cell.make_plant(), cell.frequency)
    if late * (1 - cell.gamma) <= 1 + 1e-9:
        return ""
    return (
        f"{cell.plant} at {cell.frequency:g} Hz: commands act up to {late / cell.frequency:.4g} s after their reading, "
        f"but {horizon(cell.gamma, cell.frequency)}, so that their rewards hardly count; set discount above "
        f"{1 - 1 / late:.3g}"
    )


def _coarse_readings(cells: Sequence[Cell]) -> list[str]:
    plants = {cell.plant: cell for cell in cells}
    return [f"{name}: {warning}" for name, cell in plants.items() for warning in coarse_readings(cell.make_plant())]


def _trial_warnings(cells: Sequence[Cell]) -> list[str]:
    plants = {cell.plant: cell for cell in cells}.values()
    return [warning for cell in plants if (warning := cell.make_plant().trial_warning())]


def _never_full(group: Sequence[Cell]) -> list[str]:
    """Return a warning if replay buffers never fill, so that retentions have no effect."""
    retentions = {cell.strategy: parse(cell.strategy).retention for cell in group}
    names, first = list(retentions), group[0]
    if len(names) < 2 and (retentions[first.strategy].in_turn or not _never_fills(first)):
        return []
    capacities = dict.fromkeys(f"{cell.capacity:,}" for cell in group if retentions[cell.strategy].bounded)
    steps = first.steps_per_episode * first.episodes
    same = f"{names[0]} keeps every experience, as FULL does"
    if len(names) > 1:
        same = f"{', '.join(names[:-1])} and {names[-1]} keep the same experiences"
        same += ": they are the same runs, and computed once" if len(same_runs(group)) == 1 else ""
    return [
        f"buffers never fill: a run has {steps:,} steps, buffers have room for {' and '.join(capacities)}, so {same}; "
        f"raise episodes, or set a capacity below {steps:,}"
    ]


def _table(cell: Cell, part: str = "") -> str:
    return f"[learner.{toml_key(without_axes(cell.learner))}{part}]"


def _no_learning(cell: Cell) -> list[str]:
    _, config = load_learner(cell.learner)
    schedule = build(config, cell.settings, f"settings of {cell.learner}").schedule
    counted = "iterations" if cell.update_every else "episodes"
    if (warm_up := schedule.warmup_episodes) >= cell.episodes:
        return [
            f"{cell.learner} learns nothing: it warms up for {warm_up} {counted}, the run has {cell.episodes}; "
            f"raise episodes, or lower warmup_episodes in {_table(cell)}"
        ]
    strategy = parse(cell.strategy).at(cell.frequency)
    episode = cell.steps_per_episode
    steps = episode * cell.episodes
    stored, batch = int(steps * strategy.entry_share), schedule.batch_size * schedule.segment
    if stored < batch:
        return [
            f"{cell.learner} has little to learn from: {cell.plant} at {cell.frequency:g} Hz gives {stored} "
            f"experiences in {cell.episodes} {counted}, a batch has {batch}; raise episodes"
        ]
    if not schedule.on_policy and updates_after(steps, episode, strategy, schedule) < 1:
        volume = "replay_volume" if VOLUME in cell.learner else f"replays_per_experience in {_table(cell)}"
        return [f"{cell.learner} learns nothing: {steps} steps are followed by no update; raise episodes, or {volume}"]
    return []


def _constant_exploration(cell: Cell) -> list[str]:
    noise, part = cell.settings.get("exploration"), ".exploration"
    if not isinstance(noise, Mapping):
        noise, part = cell.settings, ""
    fades = any(noise.get(last) is not None and noise.get(first) != noise[last] for first, last in _FADES)
    over = noise.get("decay_episodes") or 0
    if not fades or over <= 2 * cell.episodes:
        return []
    counted = "iterations" if cell.update_every else "episodes"
    return [
        f"{cell.learner} explores nearly as much at the end as at the beginning: that fades over {over} {counted}, the "
        f"run has {cell.episodes}; set decay_episodes in {_table(cell, part)} to {max(1, cell.episodes // 3)}, a third"
    ]
