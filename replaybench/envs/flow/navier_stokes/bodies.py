"""Bodies in a flow by Brinkman penalisation: fixed obstacles, and an ellipse that moves freely.

A body is represented by its volume fractions χ on the cell faces. Each step forces the fluid inside to follow the body,
implicitly in time (Angot, Bruneau & Fabrie, 1999). The change of momentum is the force on the body. A free body has the
fluid's density and moves as the fluid inside would if the fluid were rigid (Coquerelle & Cottet, 2008).
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from replaybench.envs.flow.navier_stokes.solver import Array, Grid
from replaybench.envs.flow.plant import SEMI_MAJOR, SEMI_MINOR
from replaybench.runtime.kernel import kernel

STIFFNESS: Final = 1e4
"""Penalisation rate λ [U/D]. A step dt reduces the fluid's velocity relative to the body by the factor 1 / (1 + λ
dt)."""


class Obstacle:
    """A fixed body in the flow.

    Args:
        grid: The grid.
        distance: Function of x `[n, 1]` and y `[m]` that returns the signed distances `[n, m]` from the surface.
            Distances inside the body are negative.
        center: Reference point of torques, in cylinder diameters.
    """

    def __init__(
        self, grid: Grid, distance: Callable[[Array, Array], Array], center: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        h, (left, bottom) = grid.h, grid.corner
        x: Array = left + h * np.arange(grid.shape[0], dtype=np.float64)[:, None]
        y: Array = bottom + h * np.arange(grid.shape[1], dtype=np.float64)
        fractions = [fraction(distance(x, y + h / 2), h), fraction(distance(x + h / 2, y), h)]
        inside = np.argwhere((fractions[0] > 0.0) | (fractions[1] > 0.0))
        first, last = inside.min(axis=0), inside.max(axis=0) + 1
        window = slice(first[0], last[0]), slice(first[1], last[1])
        self.first = int(first[0]), int(first[1])
        self.u_fraction, self.v_fraction = (np.ascontiguousarray(field[window]) for field in fractions)
        self._offset = left + first[0] * h - center[0], bottom + first[1] * h - center[1]
        self._h = h

    def stop(self, u: Array, v: Array, dt: float) -> Array:
        """Stop the fluid inside, in place, and return mean force along x and y and torque on the body, `[3]`."""
        impulse = np.zeros(3)
        stop_inside(u, v, self.u_fraction, self.v_fraction, *self.first, *self._offset, self._h, share(dt), impulse)
        force: Array = impulse * (self._h**2 / dt)
        return force


class FreeEllipse:
    """An ellipse that the fluid and an external force move."""

    def __init__(self, grid: Grid) -> None:
        self._h, self._corner = grid.h, grid.corner
        width = 2 * math.ceil(SEMI_MAJOR * grid.cells) + 5
        self._fractions = np.zeros((2, width, width))

    def move(self, u: Array, v: Array, body: Array, force: Array, dt: float) -> None:
        """Move the ellipse and the fluid inside as one rigid body for a time step, in place.

        Units are the cylinder's diameter D, the stream's speed U and the density ρ.

        Args:
            u, v: Velocities along x and y [U].
            body: Position x, y [D], angle θ [rad], velocities [U] and angular velocity [U/D] of the ellipse, `[6]`.
            force: External force along x and y [ρU²D] and torque [ρU²D²] per unit of depth, `[3]`.
            dt: The time step [D/U].
        """
        move_inside(u, v, body, force, self._fractions, *self._corner, self._h, dt, share(dt))


def share(dt: float) -> float:
    """Return the fraction by which the penalisation reduces the velocity relative to a body in a time step `dt`."""
    return STIFFNESS * dt / (1.0 + STIFFNESS * dt)


def fraction(distance: Array, h: float) -> Array:
    """Return the fraction of a grid cell that lies inside a body.

    `distance` is the signed distance of the cell's centre from the edge of the body. The edge is approximated by a
    straight line parallel to a side of the cell. `h` is the length of the side.
    """
    return np.clip(0.5 - distance / h, 0.0, 1.0)


def circle(x: Array, y: Array) -> Array:
    """Return the distance of points (x, y) from a cylinder of diameter 1 at the origin, negative inside."""
    return np.hypot(x, y) - 0.5


def half_circle(x: Array, y: Array) -> Array:
    """Return the distance of points from a D-section, the half x < 0 of a cylinder of diameter 1, negative inside."""
    return np.maximum(np.hypot(x, y) - 0.5, x)


def ellipse_at(pose: Sequence[float] | Array) -> Callable[[Array, Array], Array]:
    """Return a function that computes the signed distance of points from an ellipse at a pose (x, y, θ)."""

    def distance(x: Array, y: Array) -> Array:
        out = np.empty(np.broadcast_shapes(x.shape, y.shape))
        ellipse_distances(x.ravel(), y.ravel(), pose[0], pose[1], pose[2], out)
        return out

    return distance


@kernel
def ellipse_distances(x: Array, y: Array, center_x: float, center_y: float, angle: float, out: Array) -> None:
    """Write the signed distances of all points of x `[n]` and y `[m]` from an ellipse to `out` `[n, m]`."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = ellipse_distance(x[i], y[j], center_x, center_y, angle)


@kernel
def ellipse_distance(x: float, y: float, center_x: float, center_y: float, angle: float) -> float:
    """Return the distance of (x, y) from an ellipse, negative inside, accurate to first order near the surface.

    `angle` [rad] is that of the major axis. With coordinates ξ and η along the semi-axes a and b, `q = |(ξ/a, η/b)|` is
    1 on the surface. The linearised distance from the surface is `(q − 1)/|∇q|`.
    """
    cosine, sine = math.cos(angle), math.sin(angle)
    along = ((x - center_x) * cosine + (y - center_y) * sine) / SEMI_MAJOR
    across = ((y - center_y) * cosine - (x - center_x) * sine) / SEMI_MINOR
    level = math.sqrt(along * along + across * across)
    if level < 1e-6:
        return -SEMI_MINOR
    slope = math.sqrt((along / SEMI_MAJOR) ** 2 + (across / SEMI_MINOR) ** 2) / level
    return (level - 1.0) / slope


@kernel
def stop_inside(
    u: Array, v: Array, u_fraction: Array, v_fraction: Array, first_i: int, first_j: int, x: float, y: float, h: float,
    follows: float, impulse: Array,
) -> None:  # fmt: skip
    """Stop the fluid inside a fixed body, and add the momentum that the fluid loses to `impulse` `[3]`.

    `impulse` contains the momentum along x and y, and the angular momentum. The volume fractions of the body are given
    in a window around the body. (x, y) is the position of the window's first corner relative to the reference point of
    torques. `follows` is the fraction of the velocity that is removed inside the body.
    """
    for i in range(u_fraction.shape[0]):
        for j in range(u_fraction.shape[1]):
            taken = follows * u_fraction[i, j] * u[first_i + i, first_j + j]
            u[first_i + i, first_j + j] -= taken
            impulse[0] += taken
            impulse[2] -= taken * (y + (j + 0.5) * h)
            taken = follows * v_fraction[i, j] * v[first_i + i, first_j + j]
            v[first_i + i, first_j + j] -= taken
            impulse[1] += taken
            impulse[2] += taken * (x + (i + 0.5) * h)


@kernel
def move_inside(
    u: Array, v: Array, body: Array, force: Array, fractions: Array, left: float, bottom: float, h: float, dt: float,
    follows: float,
) -> None:  # fmt: skip
    """Make the motion of the fluid inside the ellipse rigid under an external force, and move the ellipse, in place.

    The three balances `Σχ·(rigid motion) = Σχ·(fluid) + force · dt` with the volume fractions χ are a symmetric system
    for the velocities u, v and the angular velocity Ω. `u`, `v`, `body`, `force` and `dt` are the arguments of
    `FreeEllipse.move`. `fractions` is a scratch array. (`left`, `bottom`) is the corner of the grid and `h` the side of
    a cell. `follows` is the fraction of the relative velocity that is removed inside the body.
    """
    x, y, angle = body[0], body[1], body[2]
    reach_x = math.hypot(SEMI_MAJOR * math.cos(angle), SEMI_MINOR * math.sin(angle)) + h
    reach_y = math.hypot(SEMI_MAJOR * math.sin(angle), SEMI_MINOR * math.cos(angle)) + h
    first_i, first_j = math.floor((x - reach_x - left) / h), math.floor((y - reach_y - bottom) / h)
    count_i = math.floor((x + reach_x - left) / h) + 1 - first_i
    count_j = math.floor((y + reach_y - bottom) / h) + 1 - first_j
    unit = dt / (h * h)
    momentum_x, momentum_y, momentum_angle = unit * force[0], unit * force[1], unit * force[2]
    mass_x, mass_y, moment_x, moment_y, inertia = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(count_i):
        for j in range(count_j):
            face_x, face_y = left + (first_i + i) * h, bottom + (first_j + j) * h
            inside = min(max(0.5 - ellipse_distance(face_x, face_y + 0.5 * h, x, y, angle) / h, 0.0), 1.0)
            arm = face_y + 0.5 * h - y
            moving = inside * u[first_i + i, first_j + j]
            fractions[0, i, j] = inside
            mass_x += inside
            moment_x -= inside * arm
            inertia += inside * arm * arm
            momentum_x += moving
            momentum_angle -= moving * arm
            inside = min(max(0.5 - ellipse_distance(face_x + 0.5 * h, face_y, x, y, angle) / h, 0.0), 1.0)
            arm = face_x + 0.5 * h - x
            moving = inside * v[first_i + i, first_j + j]
            fractions[1, i, j] = inside
            mass_y += inside
            moment_y += inside * arm
            inertia += inside * arm * arm
            momentum_y += moving
            momentum_angle += moving * arm
    spin = momentum_angle - moment_x * momentum_x / mass_x - moment_y * momentum_y / mass_y
    spin /= inertia - moment_x * moment_x / mass_x - moment_y * moment_y / mass_y
    body[3] = (momentum_x - moment_x * spin) / mass_x
    body[4] = (momentum_y - moment_y * spin) / mass_y
    body[5] = spin
    for i in range(count_i):
        for j in range(count_j):
            rigid = body[3] - spin * (bottom + (first_j + j + 0.5) * h - y)
            u[first_i + i, first_j + j] += follows * fractions[0, i, j] * (rigid - u[first_i + i, first_j + j])
            rigid = body[4] + spin * (left + (first_i + i + 0.5) * h - x)
            v[first_i + i, first_j + j] += follows * fractions[1, i, j] * (rigid - v[first_i + i, first_j + j])
    for k in range(3):
        body[k] += dt * body[3 + k]
