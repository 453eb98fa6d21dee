"""Rectangular grids over a plant's states, with multilinear interpolation between their nodes.

The weights are the triangular membership functions of fuzzy Q-iteration (Buşoniu et al., 2010).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.runtime.arrays import Bools, Floats, Integers, Integers32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True)
class Grid:
    """A grid of equidistant nodes over the S states of a plant.

    A grid has N nodes in C order (the last axis varies fastest), and its cells have 2^S corners each. The last node of
    a periodic axis is one spacing below `high`, and one more cell leads back to the first node. On other axes, points
    outside of the grid are moved to its edge, and NaN to the lower edge.

    Attributes:
        nodes: Number of nodes on each axis, at least 2.
        low: First node of each axis, in units of the state.
        high: Upper end of each axis, in units of the state.
        periodic: Whether each axis is an angle.
    """

    nodes: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    periodic: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len({len(self.nodes), len(self.low), len(self.high), len(self.periodic)}) != 1 or not self.nodes:
            raise UserError(f"a grid of {self.nodes} nodes needs as many lower and upper ends; give one per state")
        if min(self.nodes) < 2:
            raise UserError(f"a grid of {self.nodes} nodes has nothing to interpolate; give 2 or more per state")
        for low, high in zip(self.low, self.high, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise UserError(f"a grid axis from {low} to {high} is empty; give finite ends in rising order")

    @property
    def size(self) -> int:
        """Number of nodes N of the grid."""
        return math.prod(self.nodes)

    @property
    def cells(self) -> tuple[int, ...]:
        """Number of cells on each axis."""
        return tuple(n if around else n - 1 for n, around in zip(self.nodes, self.periodic, strict=True))

    @property
    def spacing(self) -> Floats:
        """Distance between neighbouring nodes on each axis."""
        spacing: Floats = (np.array(self.high) - np.array(self.low)) / np.array(self.cells)
        return spacing

    def axes(self) -> list[Floats]:
        """Return the coordinates of the nodes on each axis."""
        ends = zip(self.nodes, self.low, self.high, self.cells, strict=True)
        # The last node is exactly `high`: one ulp further, the plant would hit a wall.
        return [np.linspace(low, high, cells + 1)[:count] for count, low, high, cells in ends]

    def points(self) -> Floats:
        """Return the coordinates of all N nodes, float64 `[N, S]`."""
        return np.stack(np.meshgrid(*self.axes(), indexing="ij"), axis=-1).reshape(self.size, -1)

    @functools.cached_property
    def corners(self) -> Integers32:
        """Indices of the nodes at the 2^S corners of each of C cells, int32 `[C, 2^S]`; both axes are in C order."""
        first = np.indices(self.cells).reshape(len(self.nodes), -1)
        sides = itertools.product((0, 1), repeat=len(self.nodes))
        count = np.array(self.nodes)[:, None]
        nodes = [np.ravel_multi_index(tuple((first + np.array(side)[:, None]) % count), self.nodes) for side in sides]
        return np.stack(nodes, axis=1).astype(np.int32)

    def memberships(self, points: ArrayLike) -> tuple[Integers32, Floats]:
        """Return the cells, int32 `[P]`, of points `[P, S]`, and the weights of their corners, float64 `[P, 2^S]`."""
        states = np.ascontiguousarray(points, np.float64)
        cell = np.empty(len(states), np.int32)
        weight = np.empty((len(states), 1 << len(self.nodes)))
        cells, periodic = np.array(self.cells, np.int64), np.array(self.periodic, np.bool_)
        _memberships(states, np.array(self.low, np.float64), self.spacing, cells, periodic, cell, weight)
        return cell, weight

    def interpolate(self, table: Floats, points: ArrayLike) -> Floats:
        """Interpolate the D values at each node, `table` `[N, D]`, to points `[P, S]`, and return them, `[P, D]`."""
        out = np.empty((len(np.asarray(points)), table.shape[1]))
        _interpolate(table, self.corners, *self.memberships(points), out)
        return out

    def refined(self, factor: float, reference: Sequence[float]) -> Grid:
        """Return a grid over the same box with about `factor` times the nodes on each axis.

        Where the state `reference` `[S]` lies on a node of an axis, the number of nodes keeps it on one if possible.
        """
        axes = zip(self.nodes, self.low, self.high, self.periodic, reference, strict=True)
        return Grid(tuple(_refined(*axis, factor) for axis in axes), self.low, self.high, self.periodic)


def plant_grid(plant: OdePlant, nodes: Sequence[int] | None = None) -> Grid:
    """Return the grid that a plant declares for dynamic programming, with other numbers of nodes if `nodes` is given.

    Raises:
        UserError: The plant declares no grid.
    """
    if not (plant.grid_low and plant.grid_high and plant.action_levels and (nodes or plant.grid_nodes)):
        raise UserError(
            f"{plant.name} declares no grid for dynamic programming; "
            "give the plant grid_nodes, grid_low, grid_high and action_levels"
        )
    return Grid(tuple(nodes or plant.grid_nodes), plant.grid_low, plant.grid_high, plant.periodic)


def grid_facts(plant: Plant) -> list[tuple[float, ...]]:
    """Return a plant's settings of dynamic programming. Cached results are identified by these settings."""
    if not isinstance(plant, OdePlant) or not plant.grid_nodes:
        return []
    return [plant.grid_nodes, plant.grid_low, plant.grid_high, plant.action_levels]


def _refined(nodes: int, low: float, high: float, periodic: bool, reference: float, factor: float) -> int:
    def misses(count: int) -> bool:
        place = (reference - low) / (high - low) * (count if periodic else count - 1)
        return abs(place - round(place)) > 1e-9 * count

    target = max(2, round(factor * nodes))
    near = sorted(range(max(2, target - nodes // 8), target + nodes // 8 + 1), key=lambda n: abs(n - factor * nodes))
    fitting = [count for count in near if not misses(count)]
    return target if misses(nodes) or not fitting else fitting[0]


@kernel
def _memberships(
    points: Floats, low: Floats, spacing: Floats, cells: Integers,
    periodic: Bools, cell: Integers32, weight: Floats,
) -> None:  # fmt: skip
    for p in range(points.shape[0]):
        number = 0
        corners = 1
        weight[p, 0] = 1.0
        for i in range(points.shape[1]):
            place = (points[p, i] - low[i]) / spacing[i]
            if periodic[i]:
                place -= cells[i] * np.floor(place / cells[i])
            # This form makes NaN 0, too: as an integer, NaN would be an index out of bounds.
            place = min(place, float(cells[i])) if place > 0.0 else 0.0
            index = min(int(place), cells[i] - 1)
            place -= index
            number = number * cells[i] + index
            for corner in range(corners - 1, -1, -1):
                weight[p, 2 * corner + 1] = weight[p, corner] * place
                weight[p, 2 * corner] = weight[p, corner] * (1.0 - place)
            corners *= 2
        cell[p] = number


@kernel
def _interpolate(table: Floats, corners: Integers32, cell: Integers32, weight: Floats, out: Floats) -> None:
    for p in range(out.shape[0]):
        for d in range(out.shape[1]):
            total = 0.0
            for k in range(corners.shape[1]):
                total += weight[p, k] * table[corners[cell[p], k], d]
            out[p, d] = total
