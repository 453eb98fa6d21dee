"""Tasks of a sweep: which cells are computed, and which share their runs.

`workers.py` runs tasks in processes of this machine or on a Dask cluster. A local worker writes the files of its cell.
A worker on a cluster returns them, and the coordinator writes them.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from replaybench.data.policy_file import read_policy, write_policy
from replaybench.data.record import read_record, write_record
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.progress import Report, Round
from replaybench.experiments.study import Buffers, Cell
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.retention import FULL
from replaybench.runtime.atomic import atomic_path
from replaybench.runtime.user_file import names_from, one_line_errors


def shared(cells: Sequence[Cell], folder: RunFolder) -> dict[str, Cell]:
    """Return, by the id of each unfinished cell that need not be computed, the cell computed in its place.

    Of equal cells that is a finished one, else one with a checkpoint, else the first.
    """
    found: dict[str, Cell] = {}
    for group in same_runs(cells):
        finished = {cell.id: (folder.cell(cell.id) / "scores.h5").is_file() for cell in group}
        first = max(group, key=lambda c: 2 * finished[c.id] + (folder.cell(c.id) / "checkpoint.h5").is_file())
        found |= {cell.id: first for cell in group if cell is not first and not finished[cell.id]}
    return found


def share(source: Cell, cell: Cell, folder: RunFolder) -> None:
    """Write the results of a finished cell into the folder of an equal one; the buffer is not copied."""
    here, there = folder.cell(source.id), folder.cell(cell.id)
    own: dict[str, Any] = {"id": cell.id, "cell": dataclasses.asdict(cell), "shared_from": source.id}
    if (here / "policy.safetensors").is_file():
        facts, weights = read_policy(here / "policy.safetensors")
        write_policy(there / "policy.safetensors", weights, facts | own)
    for kind in ("snapshots", "scores"):  # scores last: they mark a complete cell
        if (here / f"{kind}.h5").is_file():
            header, arrays = read_record(here / f"{kind}.h5", kind)
            write_record(there / f"{kind}.h5", kind, dict(header.facts) | own, arrays)
    (there / "checkpoint.h5").unlink(missing_ok=True)


def never_fills(cell: Cell) -> bool:
    """Return whether a cell's buffers have room for every experience of its run."""
    segment = int(cell.settings.get("segment", 1))
    episode = cell.steps_per_episode  # of rounds, in which an episode may be as short as a step
    units = (episode if cell.update_every else -(-episode // segment)) * cell.episodes
    return not parse(cell.strategy).retention.bounded or cell.capacity // segment >= units


def same_runs(cells: Sequence[Cell], contents_only: bool = False) -> list[list[Cell]]:
    """Group the cells of one study that have equal numbers; most groups have one member.

    Args:
        contents_only: group cells whose buffers hold the same experiences, even if they sample them differently.
    """
    groups: dict[str, list[Cell]] = {}
    changes: dict[tuple[str | float, ...], dict[str, Any]] = {}
    for cell in cells:
        if cell.kind not in changes:
            changes[cell.kind] = _without_retention(cell, contents_only)
        groups.setdefault(dataclasses.replace(cell, **changes[cell.kind]).id, []).append(cell)
    return list(groups.values())


def _without_retention(cell: Cell, contents_only: bool) -> dict[str, Any]:
    """Return the changes that remove a retention without effect from a cell."""
    strategy = parse(cell.strategy)
    if any(not type(term).__module__.startswith("replaybench.") for term in strategy.terms) or not never_fills(cell):
        return {}
    # If retention and sampling share an order, equal errors are ranked by age.
    ranked = set(strategy.retention.orders) & set(strategy.sampling.orders)
    if not contents_only and (ranked or strategy.sampling.by_place):
        return {}
    return {"strategy": str(dataclasses.replace(strategy, retention=FULL())), "capacity": 0}


Watch = Callable[[str, Round], None]
"""Called with a cell's id after each of its rounds."""

Finish = Callable[[str, Any], None]
"""Called in the coordinator with a task's key and its result."""


class Job(NamedTuple):
    """A function to call in a worker with these arguments and a `Report`.

    Attributes:
        key: its name in reports.
        function: can be pickled, like its arguments and its result.
        arguments: all but the `Report`.
        stops: whether it supports a request to stop; other jobs are killed when a sweep is interrupted.
    """

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    stops: bool = False


def run_cell_task(
    cell: Cell, folder: Path | None, buffers: Buffers, checkpoint_seconds: float, report: Report
) -> dict[str, bytes] | None:
    """Run a cell in a worker.

    Returns:
        The contents by name of the files that were not written into `folder`; None if the cell stopped early.
    """
    from replaybench.experiments.cell import run_cell

    with one_line_errors(cell.label):
        if folder is not None:
            return {} if run_cell(cell, folder, buffers, checkpoint_seconds, report) else None
        with tempfile.TemporaryDirectory() as scratch:
            run_cell(cell, Path(scratch), buffers, checkpoint_seconds=float("inf"))
            return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def in_folder(folder: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task that finds users' files from `folder`."""
    with names_from(folder):
        return task(*arguments)


def store_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files of a cell from a cluster; `scores.h5` last, because it marks a complete cell."""
    for name in sorted(files, key=lambda name: name == "scores.h5"):
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(files[name])
