"""The simulator of M ellipses, each in its own two-dimensional Navier–Stokes solution behind a cylinder.

This simulator takes ten thousand times as long as that of the tabulated wake. It needs 1.3 MB of memory per ellipse at
16 cells per cylinder diameter. Units are the cylinder's diameter D and the stream's speed U.
"""

import contextlib
import functools
import hashlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.record import open_record, write_record
from replaybench.envs.flow.navier_stokes.bodies import FreeEllipse, Obstacle, ellipse_at, half_circle
from replaybench.envs.flow.navier_stokes.solver import Array, Grid, Solver, V, fill_pads
from replaybench.envs.flow.plant import LEFT, SENSORS, Drafting, DraftingEngine, half_turn, outside, step_reward
from replaybench.runtime import elementwise
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import cache_dir, kernel
from replaybench.runtime.streams import Stream

REYNOLDS: Final = 400.0
PHASES: Final = 32
"""Number of snapshots of the wake in a period, 0.14 D/U apart."""
SOLVER: Final = "eae897ff5330e14f9c89d51fdf8374fe8f721032bddbe1721f8161e291861a68"
"""Identifier of the solver, on which ids of results and cached wakes depend. Replace it when numbers change."""
SETTLING: Final = 60.0
"""Time [D/U] after which vortex shedding is regular if the flow starts with the result of `stirred`."""


@dataclass(frozen=True)
class Wake:
    """The wake of the cylinder over one period of vortex shedding."""

    snapshots: NDArray[np.float32]  # u, v, pressure, `[PHASES, 3, nx + 5, ny + 5]`; first: lift rises through its mean
    period: float  # period of shedding [D/U]
    drag: float  # mean force on the cylinder along the stream [ρU²D]


@functools.cache
def developed_wake(grid: Grid) -> Wake:
    """Return the wake of the cylinder on a grid. The wake is computed once, and later read from the cache folder."""
    key = hashlib.sha256(f"{grid} {REYNOLDS} {PHASES} {SETTLING} {SOLVER}".encode()).hexdigest()
    path = cache_dir() / "flow" / f"{key[:32]}.h5"
    with contextlib.suppress(UserError), open_record(path, "wake") as record:  # missing or damaged
        facts = record.header.facts
        return Wake(record.read("snapshots"), float(facts["period"]), float(facts["drag"]))
    print(f"replaybench: computing the wake at {grid.cells} cells per D, once", file=sys.stderr, flush=True)
    wake = _develop(grid)
    with contextlib.suppress(UserError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"period": wake.period, "drag": wake.drag}
        write_record(path, "wake", facts, {"snapshots": wake.snapshots})
    return wake


def stirred(solver: Solver) -> Array:
    """Return fields of a stream with a weak cross-stream jet 1 D behind the origin, which starts vortex shedding."""
    grid, fields = solver.grid, solver.undisturbed()
    (left, bottom), h = grid.corner, grid.h
    x, y = left + h * (np.arange(grid.shape[0])[:, None] + 0.5), bottom + h * np.arange(grid.shape[1])
    fields[V] += 0.2 * elementwise.exp(-((x - 1.0) ** 2 + y**2) / 0.25)
    fill_pads(fields[0], fields[1])
    return fields


def rises(signal: Array) -> NDArray[np.float64]:
    """Return the fractional indices at which a signal `[n]` rises through its mean, by linear interpolation."""
    around = signal - signal.mean()
    before = np.flatnonzero((around[:-1] < 0.0) & (around[1:] >= 0.0))
    crossings: NDArray[np.float64] = before - around[before] / (around[before + 1] - around[before])
    return crossings


def _develop(grid: Grid) -> Wake:
    solver = Solver(grid, REYNOLDS)
    cylinder, fields = Obstacle(grid, half_circle), stirred(solver)
    settling = solver.steps(SETTLING, 1.0)
    dt = SETTLING / settling
    forces: list[Array] = []

    def advance(until: float) -> None:
        while len(forces) < until:
            before = dt if forces else 0.0
            solver.step(fields, dt, before, lambda u, v, dt: forces.append(cylinder.stop(u, v, dt)))

    advance(settling)
    late = np.array(forces[settling // 2 :])
    passed = settling // 2 + rises(late[:, 1])
    period = float(passed[-1] - passed[0]) / (len(passed) - 1)  # in steps
    snapshots = np.zeros((PHASES, 3, *grid.shape), np.float32)
    for phase in range(PHASES):
        advance(passed[-1] + (1.0 + phase / PHASES) * period)
        snapshots[phase] = fields[:3]
    return Wake(snapshots, period * dt, float(late[:, 0].mean()))


HELD: Final = 0.25
"""Time before the start of an episode at which the ellipse is put into the wake [D/U]."""
MARGIN: Final = 1.0
"""Smallest distance of an ellipse from the ends of the grid, even after the ellipse has left the box [D]."""


class NavierStokes(DraftingEngine):
    """The engine that simulates M free ellipses, each in the flow past its own cylinder.

    Lengths are in cylinder diameters D, and speeds in units of the stream's speed U. The channel is 12 D long and 10 D
    wide. The flat face of the D-section cylinder is 4 D downstream of the inflow. At Re = 400, the Strouhal number is
    0.222 and the drag coefficient 2.55. In a channel of 20 × 20 D, whose walls are farther away, these numbers are
    0.205 and 2.25 (`benchmarks/results/flow/validation.md`).

    Attributes:
        fields: Velocities u and v, pressure, and the rates of u and v in the last step, float64 `[M, 5, nx + 5, ny +
            5]` for nx × ny cells (see `Grid.shape`).
        body: Position x, y [D], angle θ [rad], velocities [U] and angular velocity [U/D] of each ellipse, float64 `[M,
            6]`.
    """

    def __init__(self, plant: Drafting, num_envs: int, frequency: float) -> None:
        super().__init__(plant, num_envs, frequency)
        self.grid = Grid(int(plant.cells))
        self.fields = np.zeros((num_envs, 5, *self.grid.shape))
        self.body = np.zeros((num_envs, 6))
        self._pace = np.zeros((num_envs, 2))  # the last time step [T] and the fastest flow [U]
        self._solver, self._ellipse = Solver(self.grid, REYNOLDS), FreeEllipse(self.grid)
        self._cylinder = Obstacle(self.grid, half_circle)

    @staticmethod
    def made_of() -> str:
        return SOLVER

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        poses, phases = self.plant.start(draws, chosen)
        wake = developed_wake(self.grid)
        for member, pose, phase in zip(np.flatnonzero(chosen).tolist(), poses, phases, strict=True):
            self.fields[member, :3] = wake.snapshots[int(phase * PHASES)]
            self.fields[member, 3:] = 0.0
            self.body[member, :3] = pose
            self.body[member, 3:] = 0.0
            self._pace[member] = 0.0, np.abs(wake.snapshots[0, :2]).max()
            self.applied[member] = 0.0
            self._hold(member)
            self._observe(member)

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        sample, actuation = 1.0 / self.frequency, (action**2).sum(axis=1)
        for member in np.flatnonzero(running).tolist():
            left = self._advance(member, action[member] * np.array(self.plant.forces), sample)
            self.applied[member] = action[member]
            self.terminated[member] = left
            self.event[member] = LEFT if left else 0
            self.reward[member] = step_reward(actuation[member], left, sample)
            self._observe(member)

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state from `get_state`, or raise `UserError` if an ellipse is within `MARGIN` of the edge."""
        grid, body = self.grid, np.asarray(state["body"])
        x, y = body[:, 0] + grid.upstream, body[:, 1]
        inside = (x > MARGIN) & (x < grid.width - MARGIN) & (np.abs(y) < grid.height / 2 - MARGIN)
        if not (inside.all() and np.isfinite(body).all()):
            raise UserError("this is no state of the flow: an ellipse is off the grid")
        super().set_state(state)

    def frame(self, member: int) -> NDArray[np.uint8]:
        """Return an image uint8 `[320, 640, 3]` of the vorticity around an ellipse, with the last action."""
        return self.picture().frame(*self.vorticity(member), self.body[member, :3], self.applied[member])

    def vorticity(self, member: int) -> tuple[Array, tuple[float, float, float, float]]:
        """Return the vorticity [U/D] of one flow at the inner corners of nx × ny cells, and the extent for a picture.

        The vorticity has the shape `[ny − 1, nx − 1]`, and its first row has the lowest y. The extent is lowest x,
        highest x, lowest y and highest y [D]. It reaches half a cell beyond the outermost of these corners.
        """
        u, v = self.fields[member, :2]
        curl = (v[3:-3, 3:-3] - v[2:-4, 3:-3] - u[3:-3, 3:-3] + u[3:-3, 2:-4]) / self.grid.h
        margin, left, bottom = self.grid.h / 2, -self.grid.upstream, -self.grid.height / 2
        return curl.T, (left + margin, left + self.grid.width - margin, bottom + margin, -bottom - margin)

    def changing(self) -> dict[str, NDArray[Any]]:
        return {"fields": self.fields, "body": self.body, "pace": self._pace, "applied": self.applied}

    def _hold(self, member: int) -> None:
        """Hold the ellipse at rest while the flow adapts to it."""
        ellipse = Obstacle(self.grid, ellipse_at(self.body[member, :3]))

        def bodies(u: Array, v: Array, dt: float) -> None:
            self._cylinder.stop(u, v, dt)
            ellipse.stop(u, v, dt)

        for _ in self._steps(member, HELD, bodies):
            pass

    def _advance(self, member: int, force: Array, sample: float) -> bool:
        """Advance an ellipse by a control step, or until it leaves its box, and return whether it has left."""
        body = self.body[member]

        def bodies(u: Array, v: Array, dt: float) -> None:
            self._cylinder.stop(u, v, dt)
            self._ellipse.move(u, v, body, force, dt)

        return any(outside(body[0], body[1], self.plant.box) for _ in self._steps(member, sample, bodies))

    def _steps(self, member: int, seconds: float, bodies: Callable[[Array, Array, float], None]) -> Iterator[None]:
        """Advance one flow by `seconds`, and yield after each time step."""
        pace, remaining = self._pace[member], seconds
        while remaining > 0.0:
            dt = remaining / self._solver.steps(remaining, pace[1])
            pace[1] = self._solver.step(self.fields[member], dt, pace[0], bodies)
            pace[0] = dt
            remaining -= dt
            yield

    def _observe(self, member: int) -> None:
        _observe(self.fields[member], self.body[member], *self.grid.corner, self.grid.h, self.observed[member])


@kernel
def _observe(fields: Array, body: Array, left: float, bottom: float, h: float, observed: Array) -> None:
    """Write the observation `[14]` of an ellipse: its pose and velocities, and the fluid's velocity at its sensors."""
    omega, cosine, sine = body[5], math.cos(body[2]), math.sin(body[2])
    observed[0], observed[1], observed[2] = body[0], body[1], half_turn(body[2])
    observed[3], observed[4], observed[5] = body[3], body[4], omega
    for n in range(4):
        along, across = SENSORS[n]
        dx, dy = cosine * along - sine * across, sine * along + cosine * across
        i, j = (body[0] + dx - left) / h, (body[1] + dy - bottom) / h
        observed[6 + 2 * n] = _between(fields[0], i, j - 0.5) - (body[3] - omega * dy)
        observed[7 + 2 * n] = _between(fields[1], i - 0.5, j) - (body[4] + omega * dx)


@kernel
def _between(field: Array, i: float, j: float) -> float:
    """Interpolate a field bilinearly at fractional indices, with NaN off the grid."""
    if not (i >= 0.0 and j >= 0.0 and i < field.shape[0] - 1 and j < field.shape[1] - 1):
        return math.nan
    m, n = math.floor(i), math.floor(j)
    s, t = i - m, j - n
    before = (1.0 - t) * field[m, n] + t * field[m, n + 1]
    after = (1.0 - t) * field[m + 1, n] + t * field[m + 1, n + 1]
    between: float = before + s * (after - before)
    return between
