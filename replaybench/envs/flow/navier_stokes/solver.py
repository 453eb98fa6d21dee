"""Incompressible flow past bodies in a channel, on a staggered grid: one time step, in a few compiled sweeps.

Velocities are on the faces of square cells, pressure in their middles. Advection has the upstream quadratic
interpolation of Leonard (1979), viscosity is explicit, both are advanced by the second-order Adams-Bashforth rule; the
pressure is projected incrementally (Van Kan 1986). Lengths are in D, velocities in U, times in D/U.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.fft import dct, idct

from replaybench.data.kernel import kernel
from replaybench.data.kernels import elementwise
from replaybench.envs.flow.navier_stokes.sweeps import (
    PAD,
    Array,
    U,
    correct,
    divergence,
    momentum_across,
    momentum_along,
    outflow,
)


@dataclass(frozen=True)
class Grid:
    """A box of nx × ny square cells; the origin lies on the middle line."""

    cells: int  # per D
    width: float = 12.0  # [D]
    height: float = 10.0  # [D]
    upstream: float = 4.0  # distance of the origin from the inflow [D]

    @property
    def h(self) -> float:
        """Side of a cell. [D]"""
        return 1.0 / self.cells

    @property
    def size(self) -> tuple[int, int]:
        """Cells along and across the stream."""
        return round(self.width * self.cells), round(self.height * self.cells)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one of the fields, pads included; the last face lies one beyond the last cell."""
        nx, ny = self.size
        return nx + 2 * PAD + 1, ny + 2 * PAD + 1

    @property
    def corner(self) -> tuple[float, float]:
        """Position of the corner of the element [0, 0] of all fields. [D]"""
        return -self.upstream - PAD * self.h, -self.height / 2 - PAD * self.h


class Solver:
    """The time step on a grid, with its scratch arrays, for any number of flows in turn; `reynolds` is D·U/ν."""

    def __init__(self, grid: Grid, reynolds: float) -> None:
        self.grid, self.viscosity = grid, 1.0 / reynolds
        # A Courant number of 0.4 at 1.7 U, about the fastest flow past a cylinder, and the limit of diffusion.
        self.longest_step = min(0.4 * grid.h / 1.7, 0.2 * grid.h**2 * reynolds)
        nx, ny = grid.size
        self._new = np.zeros((2, *grid.shape))
        self._rows = np.zeros((4, grid.shape[1]))
        self._pivots = pivots(nx, ny)
        self._divergence = np.zeros((nx, ny))

    def undisturbed(self) -> Array:
        """Return the fields `[5, nx + 5, ny + 5]` of the undisturbed stream."""
        fields = np.zeros((5, *self.grid.shape))
        fields[U] = 1.0
        return fields

    def steps(self, seconds: float, fastest: float) -> int:
        """Return the number of equal steps in `seconds`, for a flow no faster than `fastest` [U]."""
        # Up to 2.2 U the Courant number stays below 0.52, well within what the scheme bears. A flow that is no number,
        # or as good as none, is not worth more than the 32-fold effort.
        longest = self.longest_step * min(1.0, max(1.0 / 32.0, 2.2 / max(fastest, 1e-9)))
        return max(1, math.ceil(seconds / longest - 1e-9))

    def step(self, fields: Array, dt: float, before: float, bodies: Callable[[Array, Array, float], Any]) -> float:
        """Advance the fields float64 `[5, nx + 5, ny + 5]` in place; return the largest velocity component [U].

        Args:
            fields: the fields.
            dt: the time step.
            before: the step before, or 0 in the first one, which then is an Euler step.
            bodies: called with the provisional u and v, pads included, and `dt`; changes u and v inside the bodies.
        """
        h, (u, v) = self.grid.h, self._new
        ratio = 0.5 * dt / before if before > 0.0 else 0.0
        momentum_along(fields, u, self._rows, dt, ratio, self.viscosity, h)
        momentum_across(fields, v, self._rows, dt, ratio, self.viscosity, h)
        bodies(u, v, dt)
        outflow(fields, u, v, dt, h)
        return self.project(fields, u, v, dt)

    def project(self, fields: Array, u: Array, v: Array, dt: float) -> float:
        """Write to `fields` the divergence-free part of (u, v), and add to its pressure what that took."""
        h = self.grid.h
        divergence(u, v, self._divergence, h / dt)
        increment = self.poisson(self._divergence)
        return float(correct(fields, u, v, increment, dt / h))

    def poisson(self, source: Array) -> Array:
        """Return φ of `Σ(neighbours − φ) = source` with no flux through the walls, all `[nx, ny]`; destroys `source`.

        A cosine transform across the stream makes it ny tridiagonal systems along the stream.
        """
        waves = dct(source, type=2, axis=1, overwrite_x=True, workers=1)
        tridiagonal(waves, self._pivots)
        solution: Array = idct(waves, type=2, axis=1, overwrite_x=True, workers=1)
        return solution


def pivots(nx: int, ny: int) -> Array:
    """Return the reciprocal pivots `[nx, ny]` of Gauss elimination in `tridiagonal`, for all wave numbers."""
    diagonal = -2.0 - 4.0 * elementwise.sin(np.pi * np.arange(ny) / (2 * ny)) ** 2
    reciprocal = np.zeros((nx, ny))
    reciprocal[0] = 1.0 / (diagonal + 1.0)
    for i in range(1, nx - 1):
        reciprocal[i] = 1.0 / (diagonal - reciprocal[i - 1])
    # The mean is free; it is fixed by the last column's, whose pivot would be 0.
    reciprocal[-1, 1:] = 1.0 / (diagonal[1:] + 1.0 - reciprocal[-2, 1:])
    return reciprocal


@kernel
def tridiagonal(x: Array, reciprocal: Array) -> None:
    """Solve `x[i−1] + diagonal · x[i] + x[i+1] = right-hand side` in place, for each column of x `[nx, ny]`."""
    nx, ny = x.shape
    for j in range(ny):
        x[0, j] *= reciprocal[0, j]
    for i in range(1, nx):
        for j in range(ny):
            x[i, j] = (x[i, j] - x[i - 1, j]) * reciprocal[i, j]
    for i in range(nx - 2, -1, -1):
        for j in range(ny):
            x[i, j] -= x[i + 1, j] * reciprocal[i, j]
