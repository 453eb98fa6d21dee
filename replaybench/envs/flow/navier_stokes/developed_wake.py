"""The developed wake of the cylinder, in which episodes start, at equal parts of its shedding period.

It is computed once for a grid and kept in the cache folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.cache import cache_dir
from replaybench.data.errors import UserError
from replaybench.data.kernels import elementwise
from replaybench.data.records.record import open_record, write_record
from replaybench.envs.flow.navier_stokes.bodies import Obstacle, half_circle
from replaybench.envs.flow.navier_stokes.solver import Grid, Solver
from replaybench.envs.flow.navier_stokes.sweeps import Array, V, fill_pads

REYNOLDS: Final = 400.0
PHASES: Final = 32
"""Snapshots per period, 0.14 D/U apart."""
SOLVER: Final = "eae897ff5330e14f9c89d51fdf8374fe8f721032bddbe1721f8161e291861a68"
"""Identifies the solver in cell ids and cached wakes. Replace it when a change moves numbers of the flow."""
SETTLING: Final = 60.0
"""When shedding has become regular, in D/U after a start with `stirred`."""


@dataclass(frozen=True)
class Wake:
    """A period of shedding."""

    snapshots: NDArray[np.float32]  # u, v, pressure `[PHASES, 3, nx + 5, ny + 5]`, from where the lift rises through 0
    period: float  # [D/U]
    drag: float  # mean force on the cylinder along the stream [ρU²D]


@functools.cache
def developed_wake(grid: Grid) -> Wake:
    """Return the wake on a grid, from the cache folder if it is there."""
    key = hashlib.sha256(f"{grid} {REYNOLDS} {PHASES} {SETTLING} {SOLVER}".encode()).hexdigest()
    path = cache_dir() / "flow" / f"{key[:32]}.h5"
    with contextlib.suppress(UserError):  # none yet, or a damaged one
        return _read(path)
    print(f"replaybench: computing the wake at {grid.cells} cells per D, once", file=sys.stderr, flush=True)
    wake = _develop(grid)
    with contextlib.suppress(UserError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"period": wake.period, "drag": wake.drag}
        write_record(path, "wake", facts, {"snapshots": wake.snapshots})
    return wake


def stirred(solver: Solver) -> Array:
    """Return the undisturbed stream with a weak cross-stream jet behind the origin, which starts the shedding."""
    grid, fields = solver.grid, solver.undisturbed()
    (left, bottom), h = grid.corner, grid.h
    x, y = left + h * (np.arange(grid.shape[0])[:, None] + 0.5), bottom + h * np.arange(grid.shape[1])
    fields[V] += 0.2 * elementwise.exp(-((x - 1.0) ** 2 + y**2) / 0.25)
    fill_pads(fields[0], fields[1])
    return fields


def rises(signal: Array) -> NDArray[np.float64]:
    """Return where, in samples, a signal `[n]` rises through its mean; a fraction, by linear interpolation."""
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


def _read(path: Path) -> Wake:
    with open_record(path, "wake") as record:
        facts = record.header.facts
        return Wake(record.read("snapshots"), float(facts["period"]), float(facts["drag"]))
