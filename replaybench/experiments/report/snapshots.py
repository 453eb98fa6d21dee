"""The snapshots of a cell, read and checked: what its buffers held along the run, and what its policy did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import open_record
from replaybench.experiments.figures.style import Series
from replaybench.experiments.report.material import Material, Point

Floats = NDArray[np.float64]

_POLICY: Final = ("value", "action", "path", "greedy")


@dataclass(frozen=True)
class StateAxis:
    """A state that surfaces are drawn over, physical."""

    name: str
    unit: str
    low: float
    high: float
    periodic: bool
    initial: float
    reference: float


@dataclass(frozen=True)
class ActionAxis:
    """An action and its range, physical."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class SnapshotFacts:
    """What a file of snapshots says of the policy in it."""

    seed: int
    states: tuple[StateAxis, ...]
    actions: tuple[ActionAxis, ...]


@dataclass(frozen=True)
class SnapshotCell:
    """What it says of its cell: the fingerprint of its plant, by which dynamic programming is found."""

    fingerprint: str


@dataclass(frozen=True)
class PolicySnapshots:
    """One run's policy along the way; K snapshots.

    Attributes:
        facts: whose it is, and over which axes.
        value, action: `[K, X, Y]` and `[K, X, Y, A]`.
        path: `[K, T + 1, 2]`; greedy: mean reward per step of these episodes `[K]`.
    """

    facts: SnapshotFacts
    value: NDArray[np.float32]
    action: NDArray[np.float32]
    path: NDArray[np.float32]
    greedy: Floats


@dataclass(frozen=True)
class Kept:
    """The snapshots of one cell.

    Attributes:
        point, series: where it stands in the study.
        cell: what it is.
        rounds: after which rounds `[K]`.
        origin: stored experiences by the tenth of the run that they come from, all members pooled, `[K, 10]`.
        collected: experiences collected in each tenth, pooled, `[10]`.
        exploration: mean exploration of what is stored `[K]`.
        policy: None where none was kept.
    """

    point: Point
    series: Series
    cell: SnapshotCell
    rounds: list[int]
    origin: NDArray[np.int64]
    collected: NDArray[np.int64]
    exploration: Floats
    policy: PolicySnapshots | None


def read_snapshots(material: Material) -> Iterator[Kept]:
    """Yield what there is of the first block of seeds of each series at each condition, in the order of the study.

    Raises:
        UserError: a file is damaged, or holds something else.
    """
    if material.folder is None or "cell" not in material.data.coords:
        return
    cells = material.data["cell"].isel(block=0)
    for point in material.points():
        for series in material.series:
            kept = _read(material, material.folder, cells, point, series)
            if kept is not None:
                yield kept


def of_first_block(material: Material) -> str:
    """Return what is to be said where a cell's seeds ran in several blocks, of which `read_snapshots` has the first."""
    return ", in the first block of seeds" if material.data.sizes.get("block", 1) > 1 else ""


def share_out(kept: Sequence[Kept], most: int) -> list[Kept]:
    """Return at most so many, as many of each plant, and one at least, in the order of the study."""
    plants = list(dict.fromkeys(one.point.plant for one in kept))
    each = max(1, most // max(1, len(plants)))
    return [one for plant in plants for one in [other for other in kept if other.point.plant == plant][:each]]


def _read(material: Material, folder: RunFolder, cells: xr.DataArray, point: Point, series: Series) -> Kept | None:
    learner, strategy = material.place(series)
    name = str(cells.isel(point._asdict() | {"learner": learner, "strategy": strategy}).item())
    path = folder.cell(name) / "snapshots.h5"
    if not name.isalnum() or not path.is_file():
        return None
    with open_record(path, "snapshots") as record:
        facts, shapes = record.header.facts, record.header.shapes
        told = facts.get("cell")
        cell = build(SnapshotCell, told if isinstance(told, dict) else {}, f"the cell of {path}", others=True)
        rounds = facts.get("rounds")
        if not isinstance(rounds, list) or not rounds or not all(isinstance(each, int) for each in rounds):
            raise UserError(f"{path} does not say when its snapshots were taken")
        members, count = (*shapes.get("origin", ()), 0, 0)[:2]
        due: dict[str, tuple[int, ...]] = {
            "origin": (members, len(rounds), 10), "collected": (members, 10), "exploration": (members, count),
        }  # fmt: skip
        policy = None
        if "value" in shapes:
            policy = build(SnapshotFacts, facts, f"the facts of {path}", others=True)
            pixels = shapes["value"][2:3] * 2
            due |= {"value": (1, count, *pixels), "action": (1, count, *pixels, len(policy.actions))}
            due |= {"path": (1, count, *shapes.get("path", ())[2:3], 2), "greedy": (1, count)}
            if len(policy.states) != 2 or not policy.actions:
                raise UserError(f"{path}: a policy must be over two states")
        for array, shape in due.items():
            if shapes.get(array) != shape:
                raise UserError(f"{path}: {array} is not of shape {shape}")
        arrays = {array: record.read(array) for array in due}
    exploration = arrays["exploration"]
    known = np.isfinite(exploration)
    mean = np.where(known, exploration, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return Kept(
        point,
        series,
        cell,
        rounds,
        arrays["origin"].sum(axis=0),
        np.diff(arrays["collected"].sum(axis=0), prepend=0),
        np.where(known.any(axis=0), mean, np.nan),
        None if policy is None else PolicySnapshots(policy, *(arrays[name][0] for name in _POLICY)),
    )
