"""Snapshots of a cell, read and checked: the composition of its buffers and its policies over the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.configuration import build
from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import open_record
from replaybench.experiments.figures.style import Series
from replaybench.experiments.report.material import Material, Point

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ActionAxis:
    """An action and its range, physical."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class StateAxis(ActionAxis):
    """A state and its range, with its initial and reference value, physical."""

    periodic: bool
    initial: float
    reference: float


@dataclass(frozen=True)
class SnapshotFacts:
    """Facts of a file of snapshots about the policy in it."""

    seed: int
    states: tuple[StateAxis, ...]
    actions: tuple[ActionAxis, ...]


@dataclass(frozen=True)
class _Cell:
    fingerprint: str


@dataclass(frozen=True)
class PolicySnapshots:
    """One run's policy at K times.

    Attributes:
        facts: seed and axes.
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
    """The snapshots of one cell, at K times.

    Attributes:
        point, series: place of the cell in the study.
        fingerprint: of the plant.
        rounds: number of finished rounds at each time `[K]`.
        origin: stored experiences by the tenth of the run that they come from, all members pooled, `[K, 10]`.
        collected: experiences collected in each tenth, pooled, `[10]`.
        exploration: mean exploration of the stored experiences `[K]`.
        policy: None if the run kept none.
    """

    point: Point
    series: Series
    fingerprint: str
    rounds: list[int]
    origin: NDArray[np.int64]
    collected: NDArray[np.int64]
    exploration: Floats
    policy: PolicySnapshots | None


def read_snapshots(material: Material) -> Iterator[Kept]:
    """Yield the snapshots of the first block of seeds of each series at each condition, in the order of the study.

    Raises:
        UserError: a file is damaged, or holds something else.
    """
    if material.folder is None or "cell" not in material.data.coords:
        return
    cells = material.data["cell"].isel(block=0)
    for point in material.points():
        for series in material.series:
            name = str(cells.isel(material.places(series, point)).item())
            if name.isalnum() and (kept := _read(material.folder, name, point, series)) is not None:
                yield kept


def of_first_block(material: Material) -> str:
    """Return a text for captions if seeds ran in several blocks, of which only the first is shown."""
    return ", in the first block of seeds" if material.data.sizes.get("block", 1) > 1 else ""


def share_out(kept: Sequence[Kept], most: int) -> list[Kept]:
    """Return at most `most` cells, equally many of each plant and at least one, in the order of the study."""
    plants = list(dict.fromkeys(one.point.plant for one in kept))
    each = max(1, most // max(1, len(plants)))
    return [one for plant in plants for one in [other for other in kept if other.point.plant == plant][:each]]


def _read(folder: RunFolder, name: str, point: Point, series: Series) -> Kept | None:
    path = folder.cell(name) / "snapshots.h5"
    if not path.is_file():
        return None
    with open_record(path, "snapshots") as record:
        facts, shapes = record.header.facts, record.header.shapes
        about = facts.get("cell")
        cell = build(_Cell, about if isinstance(about, dict) else {}, f"the cell of {path}", others=True)
        rounds = facts.get("rounds")
        if not isinstance(rounds, list) or not rounds or not all(isinstance(each, int) for each in rounds):
            raise UserError(f"{path} does not state when its snapshots were taken")
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
        arrays: dict[str, Any] = {array: record.read(array) for array in due}
    explored = np.ma.masked_invalid(arrays["exploration"]).mean(axis=0).filled(np.nan)
    surfaces = [arrays[array][0] for array in ("value", "action", "path", "greedy") if policy is not None]
    return Kept(
        point,
        series,
        cell.fingerprint,
        rounds,
        arrays["origin"].sum(axis=0),
        np.diff(arrays["collected"].sum(axis=0), prepend=0),
        explored,
        None if policy is None else PolicySnapshots(policy, *surfaces),
    )
