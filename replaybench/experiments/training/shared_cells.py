"""Cells that are the same runs under several names, because their buffers never fill: one of them is computed.

Retentions decide what is overwritten. Until a buffer is full they all store every experience in turn, and runs that
differ in nothing else have equal numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replaybench.data.formats.policy_file import read_policy, write_policy
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import read_record, write_record
from replaybench.experiments.training.study import Cell
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.retention.full import FULL


def same_runs(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group the cells of one study that have equal numbers; most groups have one member."""
    return _grouped(cells, to_the_bit=True)


def same_contents(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group the cells of one study whose buffers hold the same experiences, though they may be drawn otherwise."""
    return _grouped(cells, to_the_bit=False)


def shared(cells: Sequence[Cell], folder: RunFolder) -> dict[str, Cell]:
    """Return, by the id of each unfinished cell that need not be computed, the cell that is computed in its place.

    Of equal cells that is a finished one, else one under way, else the first.
    """
    found: dict[str, Cell] = {}
    for group in same_runs(cells):
        progress = {cell.id: _progress(folder.cell(cell.id)) for cell in group}
        first = max(group, key=lambda cell: progress[cell.id])
        found |= {cell.id: first for cell in group if cell is not first and not _finished(folder.cell(cell.id))}
    return found


def share(source: Cell, cell: Cell, folder: RunFolder) -> None:
    """Write the results of a finished cell under the name of one that is the same runs; the buffer is not copied."""
    here, there = folder.cell(source.id), folder.cell(cell.id)
    own: dict[str, Any] = {"id": cell.id, "cell": dataclasses.asdict(cell), "shared_from": source.id}
    if (here / "policy.safetensors").is_file():
        facts, weights = read_policy(here / "policy.safetensors")
        write_policy(there / "policy.safetensors", weights, facts | own)
    for kind in ("snapshots", "scores"):  # the scores say that a cell is complete
        if (here / f"{kind}.h5").is_file():
            header, arrays = read_record(here / f"{kind}.h5", kind)
            write_record(there / f"{kind}.h5", kind, dict(header.facts) | own, arrays)
    (there / "checkpoint.h5").unlink(missing_ok=True)


def never_fills(cell: Cell) -> bool:
    """Return whether a cell's buffers have room for every experience of its run, as those of `FULL` always have."""
    segment = int(cell.settings.get("segment", 1))
    episode = cell.steps_per_episode  # of rounds, in which an episode may be as short as a step
    units = (episode if cell.update_every else -(-episode // segment)) * cell.episodes
    return not parse(cell.strategy).retention.bounded or cell.capacity // segment >= units


def _grouped(cells: Sequence[Cell], to_the_bit: bool) -> list[list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    changes: dict[tuple[str | float, ...], dict[str, Any]] = {}
    for cell in cells:
        if cell.kind not in changes:  # else the same but for its seeds
            changes[cell.kind] = _without_retention(cell, to_the_bit)
        groups.setdefault(dataclasses.replace(cell, **changes[cell.kind]).id, []).append(cell)
    return list(groups.values())


def _without_retention(cell: Cell, to_the_bit: bool) -> dict[str, Any]:
    """Return what stands in place of a cell's strategy and capacity where its retention decides nothing."""
    strategy = parse(cell.strategy)
    if any(not type(term).__module__.startswith("replaybench.") for term in strategy.terms) or not never_fills(cell):
        return {}
    # Where a retention keeps the ranks that are sampled from, equal errors are in order of age there.
    ranked = set(strategy.retention.orders) & set(strategy.sampling.orders)
    if to_the_bit and (ranked or strategy.sampling.by_place):
        return {}
    return {"strategy": str(dataclasses.replace(strategy, retention=FULL())), "capacity": 0}


def _finished(cell: Path) -> bool:
    return (cell / "scores.h5").is_file()


def _progress(cell: Path) -> int:
    return 2 * _finished(cell) + (cell / "checkpoint.h5").is_file()
