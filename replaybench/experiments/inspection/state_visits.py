"""Counts of experiences over each state and over planes of two states.

Coverage is defined as for imported recordings: the share of 21 equal bins over the plant's range that hold a state. The
counts are three times finer, for pictures.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import state_range
from replaybench.experiments.exchange.summary import STATE_BINS, Dimension, around, unvisited

FINE: Final = 3
BINS: Final = FINE * STATE_BINS
MOST_PLANES: Final = 6


@dataclass(frozen=True)
class Axis:
    """One state: its range [low, high] in `unit`, and centre and scale of its normalisation."""

    name: str
    unit: str
    low: float = -1.0
    high: float = 1.0
    center: float = 0.0
    scale: float = 1.0
    periodic: bool = False

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def plant_axes(plant: Plant) -> list[Axis] | None:
    """Return the states of a plant, over its grid or else [−1, 1] normalised; None if that range is impossible."""
    center, scale = np.array(plant.state_center, np.float64), np.array(plant.state_scale, np.float64)
    with np.errstate(all="ignore"):  # parameters may be those of a file
        limits = state_range(plant)
    if not (np.isfinite([*limits, center, scale]).all() and (limits[0] < limits[1]).all()):
        return None
    columns = (plant.state_names, plant.state_units, *(part.tolist() for part in (*limits, center, scale)))
    return [Axis(*column) for column in zip(*columns, plant.periodic, strict=True)]


def nameless_axes(states: int) -> list[Axis]:
    """Return the axes of the normalised states of an unknown plant."""
    return [Axis(f"state {number}", "normalised") for number in range(states)]


class Visits:
    """Counts of states.

    Attributes:
        axes: S of them.
        planes: pairs of axes: all if there are at most six, else the first neighbours.
        along: int64 `[S, BINS]`; plane: int64 `[P, BINS, BINS]`; outside: int64 `[S]`, states beyond an axis's range.
        least, most: float64 `[S]`, range of the finite states, physical; least > most without any.
        total: number of states.
    """

    def __init__(self, axes: list[Axis]) -> None:
        self.axes, states = axes, len(axes)
        pairs = list(itertools.combinations(range(states), 2))
        self.planes = pairs if len(pairs) <= MOST_PLANES else [(s, s + 1) for s in range(states - 1)][:MOST_PLANES]
        self.along, self.outside = np.zeros((states, BINS), np.int64), np.zeros(states, np.int64)
        self.plane = np.zeros((len(self.planes), BINS, BINS), np.int64)
        self.least, self.most = np.full(states, np.inf), np.full(states, -np.inf)
        self.total = 0

    def add(self, observation: NDArray[np.float32]) -> None:
        """Count normalised states `[n, S]`."""
        states = []
        for s, axis in enumerate(self.axes):
            x = axis.center + axis.scale * observation[:, s].astype(np.float64)
            x = np.where(np.isfinite(x), x, np.nan)
            states.append(around(x, axis.low) if axis.periodic else x)
            finite = states[-1][np.isfinite(x)]
            self.least[s], self.most[s] = finite.min(initial=self.least[s]), finite.max(initial=self.most[s])
            self.along[s] += np.histogram(finite, BINS, (axis.low, axis.high))[0]
            self.outside[s] += ((finite < axis.low) | (finite > axis.high)).sum()
        for counts, (a, b) in zip(self.plane, self.planes, strict=True):
            ranges = [(self.axes[s].low, self.axes[s].high) for s in (a, b)]
            counts += np.histogram2d(states[a], states[b], BINS, ranges)[0].astype(np.int64)
        self.total += len(observation)

    def dimensions(self) -> list[Dimension]:
        """Return range and coverage of each state, in physical units."""
        found = []
        for s, axis in enumerate(self.axes):
            edges = np.linspace(axis.low, axis.high, STATE_BINS + 1)
            counts = self.along[s].reshape(STATE_BINS, FINE).sum(axis=1)
            extent = float(self.least[s]), float(self.most[s])
            visited = float((counts > 0).mean())
            found.append(Dimension(axis.name, axis.unit, *extent, visited, unvisited(counts, edges)))
        return found

    def plane_coverage(self) -> float | None:
        """Return the share of visited bins of the plane; None unless there are two states."""
        if len(self.axes) != 2:
            return None
        coarse = self.plane[0].reshape(STATE_BINS, FINE, STATE_BINS, FINE).sum(axis=(1, 3))
        return float((coarse > 0).mean())
