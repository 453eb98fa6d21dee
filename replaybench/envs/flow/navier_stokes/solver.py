"""A solver for incompressible two-dimensional flow past bodies in a channel, on a staggered grid.

Velocities are on the faces of square cells, pressure in their middles. Advection uses the upstream quadratic
interpolation of Leonard (1979). Viscosity is explicit. The second-order Adams-Bashforth method advances both, with an
incremental pressure projection (Van Kan, 1986). Units are the cylinder's diameter D, the stream's speed U, and D/U.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, idct

from replaybench.runtime import elementwise
from replaybench.runtime.kernel import kernel

PAD: Final = 2
"""Layers of cells beyond each side of the channel, which the interpolation needs."""
U, V, P, U_RATE, V_RATE = range(5)
"""Indices of velocities, pressure divided by density, and rates of the velocities on the first axis of `fields`."""

Array = NDArray[np.float64]


@kernel
def transport(a: Array, b: Array, c: Array, d: Array, speed: Array, other: Array, friction: float, out: Array) -> None:
    """Write the flux by advection and viscosity through each of n cell faces to `out` `[n]`.

    The arrays a, b, c and d contain the transported quantity at four points in a row, with the face between b and c.
    The speed through the face is the mean of `speed` and `other`. If the speed is positive, advection transports `(6b +
    3c − a) / 8`, otherwise `(6c + 3b − d) / 8`. `friction` is the viscosity divided by the side of a cell.
    """
    for j in range(out.shape[0]):
        w = 0.5 * (speed[j] + other[j])
        central = 9.0 * (b[j] + c[j]) - (a[j] + d[j])
        upstream = 3.0 * (b[j] - c[j]) - (a[j] - d[j])
        out[j] = 0.0625 * (w * central + abs(w) * upstream) - friction * (c[j] - b[j])


@kernel
def forward(
    now: Array, rate: Array, before: Array, low: Array, high: Array, dt: float, ratio: float, scale: float, out: Array
) -> None:
    """Compute a row of velocities after a time step with the old pressure, and write the velocities to `out`.

    `now` contains the old velocities, and `rate` their rates. `low` and `high` are the pressures on both sides before
    the step. `before` contains the rates of the last step, and is overwritten with `rate`.
    """
    for j in range(out.shape[0]):
        out[j] = now[j] + dt * (rate[j] + ratio * (rate[j] - before[j]) - scale * (high[j] - low[j]))
    for j in range(out.shape[0]):
        before[j] = rate[j]


@kernel
def balance(left: Array, right: Array, below: Array, above: Array, scale: float, out: Array) -> None:
    """Write the net flux into each cell of a row to `out`, multiplied by `scale`."""
    for j in range(out.shape[0]):
        out[j] = scale * (left[j] - right[j] + below[j] - above[j])


@kernel
def momentum_along(fields: Array, new: Array, rows: Array, dt: float, ratio: float, viscosity: float, h: float) -> None:
    """Write the provisional velocity along the stream to `new`, from advection, viscosity and the old pressure.

    The effect of the new pressure is not included. `ratio` is the weight of the old rates, 0.5 times this time step
    divided by the last time step. `rows` are scratch arrays.
    """
    nx, ny = fields.shape[1] - 5, fields.shape[2] - 5
    u, v, p, rates = fields[0], fields[1], fields[2], fields[3]
    friction, scale = viscosity / h, 1.0 / h
    side, rate = rows[2, : ny + 1], rows[3, :ny]
    end = ny + 2
    for i in range(2, nx + 2):
        left, right = rows[i % 2, :ny], rows[(i + 1) % 2, :ny]
        row, after = u[i, 2:end], u[i + 1, 2:end]
        transport(u[i - 1, 2:end], row, after, u[i + 2, 2:end], row, after, friction, right)
        if i == 2:
            continue
        below, above = u[i, 1:end], u[i, 2 : end + 1]
        transport(u[i, :end], below, above, u[i, 3:], v[i - 1, 2:], v[i, 2:], friction, side)
        balance(left, right, side, side[1:], scale, rate)
        forward(row, rate, rates[i, 2:], p[i - 1, 2:], p[i, 2:], dt, ratio, scale, new[i, 2:end])


@kernel
def momentum_across(
    fields: Array, new: Array, rows: Array, dt: float, ratio: float, viscosity: float, h: float
) -> None:
    """Write the provisional velocity across the stream, as `momentum_along` does for the velocity along it."""
    nx, ny = fields.shape[1] - 5, fields.shape[2] - 5
    u, v, p, rates = fields[0], fields[1], fields[2], fields[4]
    friction, scale = viscosity / h, 1.0 / h
    side, rate = rows[2, :ny], rows[3, : ny - 1]
    end = ny + 2
    for i in range(2, nx + 3):
        left, right = rows[i % 2, : ny - 1], rows[(i + 1) % 2, : ny - 1]
        row, before = v[i, 3:end], v[i - 1, 3:end]
        transport(v[i - 2, 3:], before, row, v[i + 1, 3:], u[i, 2:], u[i, 3:], friction, right)
        if i == 2:
            continue
        below, above = v[i - 1, 2:end], v[i - 1, 3 : end + 1]
        transport(v[i - 1, 1:], below, above, v[i - 1, 4:], below, above, friction, side)
        balance(left, right, side, side[1:], scale, rate)
        forward(before, rate, rates[i - 1, 3:], p[i - 1, 2:], p[i - 1, 3:], dt, ratio, scale, new[i - 1, 3:end])


@kernel
def outflow(fields: Array, u_new: Array, v_new: Array, dt: float, h: float) -> None:
    """Write the velocities on the boundaries: the stream at the inflow, and convected velocities at the outflow.

    The speed of convection is that of the stream. A constant is then added to the velocities at the outflow, so that
    the outflow equals the inflow.
    """
    nx, ny = fields.shape[1] - 5, fields.shape[2] - 5
    u, v = fields[0], fields[1]
    courant = dt / h
    total = 0.0
    for j in range(2, ny + 2):
        u_new[2, j] = 1.0
        u_new[nx + 2, j] = u[nx + 2, j] - courant * (u[nx + 2, j] - u[nx + 1, j])
        total += u_new[nx + 2, j]
    for j in range(2, ny + 2):
        u_new[nx + 2, j] += 1.0 - total / ny
    for j in range(2, ny + 3):
        v_new[nx + 2, j] = v[nx + 2, j] - courant * (v[nx + 2, j] - v[nx + 1, j])
    for i in range(2, nx + 3):
        v_new[i, 2] = 0.0
        v_new[i, ny + 2] = 0.0


@kernel
def divergence(u: Array, v: Array, out: Array, scale: float) -> None:
    """Write the net outflow of each cell, multiplied by `scale`, to `out` `[nx, ny]`."""
    nx, ny = out.shape
    for i in range(nx):
        for j in range(ny):
            out[i, j] = scale * (u[i + 3, j + 2] - u[i + 2, j + 2] + v[i + 2, j + 3] - v[i + 2, j + 2])


@kernel
def correct(fields: Array, u_new: Array, v_new: Array, increment: Array, scale: float) -> float:
    """Subtract the gradient of a pressure increment from the velocities, and return the largest velocity component.

    The velocities are written to `fields`. The increment `[nx, ny]` is added to the pressure. `scale` is the time step
    divided by the side of a cell.
    """
    nx, ny = increment.shape
    u, v, p = fields[0], fields[1], fields[2]
    fastest = 0.0
    for j in range(2, ny + 2):
        u[2, j] = u_new[2, j]
        u[nx + 2, j] = u_new[nx + 2, j]
    for i in range(nx):
        for j in range(ny):
            p[i + 2, j + 2] += increment[i, j]
        if i > 0:
            for j in range(ny):
                u[i + 2, j + 2] = u_new[i + 2, j + 2] - scale * (increment[i, j] - increment[i - 1, j])
        for j in range(1, ny):
            v[i + 2, j + 2] = v_new[i + 2, j + 2] - scale * (increment[i, j] - increment[i, j - 1])
        for j in range(ny):
            fastest = max(fastest, max(abs(u[i + 2, j + 2]), abs(v[i + 2, j + 2])))
    for j in range(2, ny + 3):
        v[nx + 2, j] = v_new[nx + 2, j]
    fill_pads(u, v)
    return fastest


@kernel
def fill_pads(u: Array, v: Array) -> None:
    """Write the velocities in the cells beyond the boundaries of the channel.

    These are the velocity of the stream at the inflow, mirror images at the sides, and copies at the outflow.
    """
    nx, ny = u.shape[0] - 5, u.shape[1] - 5
    for j in range(ny + 5):
        for k in range(2):
            u[k, j] = 1.0
            v[k, j] = 0.0
            u[nx + 3 + k, j] = u[nx + 2, j]
        v[nx + 3, j] = v[nx + 2, j]
        v[nx + 4, j] = v[nx + 2, j]
    for i in range(nx + 5):
        for k in range(2):
            u[i, 1 - k] = u[i, 2 + k]
            u[i, ny + 2 + k] = u[i, ny + 1 - k]
            v[i, 1 - k] = -v[i, 3 + k]
            v[i, ny + 3 + k] = -v[i, ny + 1 - k]


@dataclass(frozen=True)
class Grid:
    """A channel of nx × ny square cells with the origin on its centre line, in units of the cylinder's diameter D."""

    cells: int  # number of cells per D
    width: float = 12.0  # [D]
    height: float = 10.0  # [D]
    upstream: float = 4.0  # distance of the origin from the inflow [D]

    @property
    def h(self) -> float:
        """Side of a cell in cylinder diameters."""
        return 1.0 / self.cells

    @property
    def size(self) -> tuple[int, int]:
        """Numbers nx and ny of cells along and across the stream."""
        return round(self.width * self.cells), round(self.height * self.cells)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of an array with the values at all cell faces, including `PAD` layers of cells beyond each side."""
        nx, ny = self.size
        return nx + 2 * PAD + 1, ny + 2 * PAD + 1

    @property
    def corner(self) -> tuple[float, float]:
        """Position (x, y) of the lower left corner of the cell with the indices [0, 0], in cylinder diameters."""
        return -self.upstream - PAD * self.h, -self.height / 2 - PAD * self.h


class Solver:
    """A solver that advances flows on one grid at one Reynolds number, one flow at a time."""

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
        """Return the fields `[5, nx + 5, ny + 5]` of the undisturbed stream on nx × ny cells."""
        fields = np.zeros((5, *self.grid.shape))
        fields[U] = 1.0
        return fields

    def steps(self, seconds: float, fastest: float) -> int:
        """Return the number of equal time steps in `seconds` that a flow with velocities up to `fastest` needs."""
        # Up to 2.2 U the Courant number stays below 0.52, well within the stability limit. The number of steps is
        # at most 32 times as large, because more steps would be wasted on a diverging flow or NaN.
        longest = self.longest_step * min(1.0, max(1.0 / 32.0, 2.2 / max(fastest, 1e-9)))
        return max(1, math.ceil(seconds / longest - 1e-9))

    def step(self, fields: Array, dt: float, before: float, bodies: Callable[[Array, Array, float], Any]) -> float:
        """Advance a flow in place by one time step, and return the largest velocity component.

        Args:
            fields: Velocities, pressure and rates, float64 `[5, nx + 5, ny + 5]` for nx × ny cells.
            dt: The time step [D/U].
            before: The last time step [D/U]. If it is 0, this step is an Euler step.
            bodies: Function of the provisional velocities u and v and of `dt`. It changes u and v inside the bodies.
        """
        h, (u, v) = self.grid.h, self._new
        ratio = 0.5 * dt / before if before > 0.0 else 0.0
        momentum_along(fields, u, self._rows, dt, ratio, self.viscosity, h)
        momentum_across(fields, v, self._rows, dt, ratio, self.viscosity, h)
        bodies(u, v, dt)
        outflow(fields, u, v, dt, h)
        return self.project(fields, u, v, dt)

    def project(self, fields: Array, u: Array, v: Array, dt: float) -> float:
        """Write the divergence-free part of (u, v) and the pressure to `fields`, and return the largest component."""
        h = self.grid.h
        divergence(u, v, self._divergence, h / dt)
        increment = self.poisson(self._divergence)
        return float(correct(fields, u, v, increment, dt / h))

    def poisson(self, source: Array) -> Array:
        """Return the solution φ `[nx, ny]` of `Σ(neighbours − φ) = source` with no flux through the walls.

        A cosine transform across the stream reduces the equation to ny tridiagonal systems along the stream. `source`
        is overwritten.
        """
        waves = dct(source, type=2, axis=1, overwrite_x=True, workers=1)
        tridiagonal(waves, self._pivots)
        solution: Array = idct(waves, type=2, axis=1, overwrite_x=True, workers=1)
        return solution


def pivots(nx: int, ny: int) -> Array:
    """Return the reciprocal pivots `[nx, ny]` of the Gauss elimination in `tridiagonal`, for all wave numbers."""
    diagonal = -2.0 - 4.0 * elementwise.sin(np.pi * np.arange(ny) / (2 * ny)) ** 2
    reciprocal = np.zeros((nx, ny))
    reciprocal[0] = 1.0 / (diagonal + 1.0)
    for i in range(1, nx - 1):
        reciprocal[i] = 1.0 / (diagonal - reciprocal[i - 1])
    # The mean of φ is free. A reciprocal pivot of 0 in place of an infinite one fixes it.
    reciprocal[-1, 1:] = 1.0 / (diagonal[1:] + 1.0 - reciprocal[-2, 1:])
    return reciprocal


@kernel
def tridiagonal(x: Array, reciprocal: Array) -> None:
    """Solve `x[i−1] + diagonal · x[i] + x[i+1] = right-hand side` in place for each column of x `[nx, ny]`.

    `reciprocal` contains the reciprocal pivots from `pivots`.
    """
    nx, ny = x.shape
    for j in range(ny):
        x[0, j] *= reciprocal[0, j]
    for i in range(1, nx):
        for j in range(ny):
            x[i, j] = (x[i, j] - x[i - 1, j]) * reciprocal[i, j]
    for i in range(nx - 2, -1, -1):
        for j in range(ny):
            x[i, j] -= x[i + 1, j] * reciprocal[i, j]
