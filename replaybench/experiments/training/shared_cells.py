"""Cells with equal numbers because their buffers never fill: one of them is computed for all.

Retentions decide which experience is overwritten. Until a buffer is full, all of them store every experience in turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from replaybench.data.formats.policy_file import read_policy, write_policy
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import read_record, write_record
from replaybench.experiments.training.study import Cell
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.retention.full import FULL


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
