"""The sweeps over the grid in a time step of the flow: advection, viscosity, boundaries, projection.

Fields lie on a staggered grid `[nx + 5, ny + 5]`, two layers of cells beyond each side: u is on the left side of cell
[i, j], v on its lower side, pressure in its middle. Inner loops run along contiguous rows without branches, so that
they are vectorised.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

PAD: Final = 2
"""Layers of cells beyond each side, as far as the interpolation reaches."""
U, V, P, U_RATE, V_RATE = range(5)
"""Rows of `fields`: velocities, pressure / density, and the velocities' rates of change in the step before."""

Array = NDArray[np.float64]


@kernel
def transport(a: Array, b: Array, c: Array, d: Array, speed: Array, other: Array, friction: float, out: Array) -> None:
    """Write what passes the faces between b and c, of four neighbours in a row, by advection and viscosity.

    The speed there is the mean of two. Where it is positive, advection takes `(6b + 3c − a) / 8` along, where it is
    negative the mirror image; written without a branch. All arrays are `[n]`.
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
    """Write `out`, a row of velocities a step later without the new pressure, and keep the rate in `before`."""
    for j in range(out.shape[0]):
        out[j] = now[j] + dt * (rate[j] + ratio * (rate[j] - before[j]) - scale * (high[j] - low[j]))
    for j in range(out.shape[0]):
        before[j] = rate[j]


@kernel
def balance(left: Array, right: Array, below: Array, above: Array, scale: float, out: Array) -> None:
    """Write what stays of the flows into and out of a row of cells, per time."""
    for j in range(out.shape[0]):
        out[j] = scale * (left[j] - right[j] + below[j] - above[j])


@kernel
def momentum_along(fields: Array, new: Array, rows: Array, dt: float, ratio: float, viscosity: float, h: float) -> None:
    """Write the provisional velocity along the stream, from advection, viscosity and the old pressure's gradient.

    `ratio` is half the quotient of this step and the one before: the weight of the old rates. `rows` are scratch.
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
    """Write the provisional velocity across the stream, as `momentum_along` does."""
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
    """Write the velocities on the boundaries: the stream comes in, and leaves with what it carries.

    Velocities at the outflow are carried out at the speed of the stream, then shifted so that as much leaves as enters.
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
    """Write to `out` `[nx, ny]` what leaves each cell, times `scale`."""
    nx, ny = out.shape
    for i in range(nx):
        for j in range(ny):
            out[i, j] = scale * (u[i + 3, j + 2] - u[i + 2, j + 2] + v[i + 2, j + 3] - v[i + 2, j + 2])


@kernel
def correct(fields: Array, u_new: Array, v_new: Array, increment: Array, scale: float) -> float:
    """Subtract the gradient of the pressure's increment `[nx, ny]`, times `scale`; return the largest velocity."""
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
    """Write the velocities beyond the boundaries: undisturbed upstream, slip at the sides, the same downstream."""
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
