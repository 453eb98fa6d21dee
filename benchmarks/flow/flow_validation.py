"""The Navier–Stokes solver against what is known: python benchmarks/flow/flow_validation.py [CASE …]

Each case starts from the stirred stream, runs until its flow is regular, and takes means after that. A finished case is
kept in `benchmarks/results/flow/validation.json` and is not run again unless it is named; `validation.md` is the table.
`python benchmarks/flow/flow_validation.py --list` says what there is. One core; all cases take some ten minutes.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from replaybench.envs.flow.navier_stokes.bodies import FreeEllipse, Obstacle, circle, ellipse_at, half_circle
from replaybench.envs.flow.navier_stokes.engine import rises, stirred
from replaybench.envs.flow.navier_stokes.solver import Grid, Solver

RESULTS = Path(__file__).parents[1] / "results" / "flow"
SHAPES = {"circle": circle, "D-section": half_circle}


@dataclass(frozen=True)
class Case:
    """A flow, and what is expected of the force on its last body: a range of each quantity.

    Shapes are names of `SHAPES` or ellipses' poses (x, y, θ in degrees). Means are taken from `start` to `end`. [D/U]
    """

    shapes: tuple[str | tuple[float, float, float], ...]
    reynolds: float
    grid: Grid
    start: float
    end: float
    expected: dict[str, tuple[float, float]]


def around(value: float, share: float = 0.08, floor: float = 0.01) -> tuple[float, float]:
    """Return the range that is `share` of a value to both sides, at least `floor`."""
    width = max(abs(value) * share, floor)
    return value - width, value + width


def widened(low: float, high: float, share: float) -> tuple[float, float]:
    """Return a range of published values with a tolerance added to both ends."""
    return low * (1.0 - share), high * (1.0 + share)


WIDE = Grid(20, 20.0, 16.0, 6.0)


def in_stream(angle: float, force_x: float, force_y: float, torque: float, grid: Grid = Grid(20)) -> Case:  # noqa: B008 (it is frozen)
    """Return the case of a fixed ellipse in the free stream."""
    expected = {"force x": around(force_x), "force y": around(force_y), "torque": around(torque)}
    return Case(((0.0, 0.0, angle),), 400.0, grid, 40.0, 100.0, expected)


def behind(x: float, force_x: float, grid: Grid = Grid(16)) -> Case:  # noqa: B008 (it is frozen)
    """Return the case of an ellipse held edge-on behind the cylinder."""
    return Case(("D-section", (x, 0.0, 0.0)), 400.0, grid, 50.0, 150.0, {"force x": around(force_x, 0.15)})


def shedding(strouhal: tuple[float, float], drag: tuple[float, float], **more: tuple[float, float]) -> dict[str, Any]:
    """Return the ranges of a shedding body, with the tolerances: 6 % on St, 8 % on Cd and on the lift."""
    ranges = {name.replace("_", " "): widened(*known, 0.08) for name, known in more.items()}
    return {"St": widened(*strouhal, 0.06), "Cd": widened(*drag, 0.08), **ranges}


CASES = {
    "D-section, Re 400, 16 cells/D, 12 × 10 D": Case(("D-section",), 400.0, Grid(16), 50.0, 150.0, {}),
    "D-section, Re 400, 16 cells/D, 16 × 10 D": Case(
        ("D-section",), 400.0, Grid(16, 16.0, 10.0, 5.0), 50.0, 150.0, shedding((0.222, 0.222), (2.60, 2.60))
    ),
    "D-section, Re 400, 16 cells/D, 20 × 20 D": Case(
        *(("D-section",), 400.0, Grid(16, 20.0, 20.0, 6.0), 50.0, 150.0),
        shedding((0.204, 0.204), (2.27, 2.27), Cl_rms=(0.60, 0.60)),
    ),
    "ellipse at 0°, free stream, 20 cells/D, 12 × 10 D": in_stream(0.0, 0.119, 0.0, 0.0),
    "ellipse at 10°, free stream, 20 cells/D, 12 × 10 D": in_stream(10.0, 0.141, -0.171, 0.062),
    "ellipse at 30°, free stream, 20 cells/D, 12 × 10 D": in_stream(30.0, 0.397, -0.409, 0.092),
    "ellipse at (2, 0) behind the D-section, 16 cells/D, 12 × 10 D": behind(2.0, -0.085),
    "ellipse at (3, 0) behind the D-section, 16 cells/D, 12 × 10 D": behind(3.0, -0.021),
    "ellipse at 10°, free stream, 20 cells/D, 20 × 16 D": in_stream(10.0, 0.141, -0.171, 0.062, WIDE),
    "ellipse at 30°, free stream, 20 cells/D, 20 × 16 D": in_stream(30.0, 0.397, -0.409, 0.092, WIDE),
    "ellipse at (2, 0) behind the D-section, 16 cells/D, 20 × 20 D": behind(2.0, -0.085, Grid(16, 20.0, 20.0, 6.0)),
    "ellipse at (3, 0) behind the D-section, 16 cells/D, 20 × 20 D": behind(3.0, -0.021, Grid(16, 20.0, 20.0, 6.0)),
    "ellipse at (3, 0) behind the D-section, 24 cells/D, 12 × 10 D": behind(3.0, -0.021, Grid(24)),
    "circle, Re 200, 24 cells/D, 20 × 16 D": Case(
        *(("circle",), 200.0, Grid(24, 20.0, 16.0, 6.0), 70.0, 140.0),
        shedding((0.20, 0.20), (1.31, 1.39), Cl_amplitude=(0.65, 0.71)),
    ),
    "circle, Re 100, 24 cells/D, 24 × 20 D": Case(
        *(("circle",), 100.0, Grid(24, 24.0, 20.0, 8.0), 110.0, 180.0),
        shedding((0.164, 0.173), (1.33, 1.36), Cl_amplitude=(0.32, 0.33)),
    ),
}

MASS, SLIM, LONG = math.pi * 0.05, math.pi * 0.1**2, math.pi * 0.5**2
AXES = {
    "along": (0, MASS + SLIM),
    "across": (1, MASS + LONG),
    "turning": (2, MASS * (0.5**2 + 0.1**2) / 4 + math.pi / 8 * (0.5**2 - 0.1**2) ** 2),
}
"""Axes of a force on the ellipse, and its mass with that of the ideal fluid which it moves along."""
INERTIA = {f"free ellipse, {cells} cells/D": cells for cells in (16, 24, 32)}


NOTES = """\
Where it is outside: the ellipse at 30° sheds and feels the walls (0.436 between walls 10 D apart, 0.427 between 16 D);
the mean force at (3, 0) is a small difference of suction and drag, which converges with the grid (−0.037 at 16 cells
per D, −0.027 at 24).

Inertia of the free ellipse with the water around it, for a sudden force, over that in ideal fluid. Cells that lie
partly inside move along: it acts like an ellipse that is half a cell larger all round."""


def run(case: Case) -> dict[str, float]:
    """Return the measured quantities of a case."""
    solver = Solver(case.grid, case.reynolds)
    obstacles = []
    for shape in case.shapes:
        if isinstance(shape, str):
            obstacles.append(Obstacle(case.grid, SHAPES[shape]))
        else:
            pose = (shape[0], shape[1], np.deg2rad(shape[2]))
            obstacles.append(Obstacle(case.grid, ellipse_at(pose), pose[:2]))
    steps = solver.steps(case.end, 1.0)
    dt, fields, forces = case.end / steps, stirred(solver), np.zeros((steps, 3))

    def bodies(u: Any, v: Any, dt: float) -> None:
        for obstacle in obstacles:
            forces[step] = obstacle.stop(u, v, dt)

    for step in range(steps):
        solver.step(fields, dt, dt if step else 0.0, bodies)
    kept = forces[round(case.start / dt) :]
    mean, lift = kept.mean(axis=0), kept[:, 1]
    passed = rises(lift)
    regular = len(passed) > 2 and lift.std() > 1e-3
    return {
        "St": (len(passed) - 1) / ((passed[-1] - passed[0]) * dt) if regular else 0.0,
        "Cd": 2.0 * mean[0],
        "Cl rms": 2.0 * lift.std(),
        "Cl amplitude": lift.max() - lift.min(),
        "force x": mean[0],
        "force y": mean[1],
        "torque": mean[2],
    }


def inertia(cells: int) -> dict[str, float]:
    """Return how heavy the free ellipse is with the water around it: impulse over motion, 0.1 after a sudden force.

    It drifts with the stream, edge-on, so that nothing else acts on it.
    """
    found = {}
    for name, (axis, exact) in AXES.items():
        solver = Solver(Grid(cells, 10.0, 8.0, 4.0), 400.0)
        ellipse, fields, dt = FreeEllipse(solver.grid), solver.undisturbed(), solver.longest_step
        force, body = np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
        force[axis] = 0.2 * exact
        motion = []
        for step in range(round(0.1 / dt) + 1):
            solver.step(fields, dt, dt if step else 0.0, lambda u, v, dt: ellipse.move(u, v, body, force, dt))  # noqa: B023
            motion.append(body[3 + axis])
        half = len(motion) // 2
        found[name] = force[axis] * dt * (len(motion) - 1 - half) / (motion[-1] - motion[half])
    return found


def table(measured: dict[str, dict[str, float]]) -> str:
    """Return the Markdown table of all finished cases."""
    lines = [
        "# The Navier–Stokes solver against known flows",
        "",
        "Made by `python benchmarks/flow/flow_validation.py`. Coefficients are mean forces over ½ρU²D; forces are in "
        "ρU²D,",
        "torques in ρU²D², counter-clockwise. Expected: what is published, or was measured with another program,",
        "widened by 6 % for St, 15 % for an ellipse in the wake, and 8 % for all else (by 0.01 where that is more).",
        "",
        "| case | origin behind inflow | quantity | measured | expected | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, case in CASES.items():
        if name not in measured:
            continue
        found = measured[name]
        for quantity in ("St", "Cd", "Cl rms", "Cl amplitude") if "section" in name or "circle" in name else ():
            if quantity not in case.expected and case.shapes[-1] in SHAPES:
                lines.append(f"| {name} | {case.grid.upstream:g} D | {quantity} | {found[quantity]:.3f} | – | |")
        for quantity, (low, high) in case.expected.items():
            verdict = "ok" if low <= found[quantity] <= high else "**outside**"
            lines.append(
                f"| {name} | {case.grid.upstream:g} D | {quantity} | {found[quantity]:.3f} | "
                f"{low:.3f} to {high:.3f} | {verdict} |"
            )
    lines += [
        "",
        NOTES,
        "",
        f"| cells per D | {' | '.join(AXES)} |",
        "| --- |" + " --- |" * len(AXES),
    ]
    for name, cells in INERTIA.items():
        if name in measured:
            ratios = (f"{measured[name][axis] / exact:.2f}" for axis, (_, exact) in AXES.items())
            lines.append(f"| {cells} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def main(chosen: list[str]) -> None:
    """Run the named cases, or those that are missing."""
    if chosen == ["--list"]:
        print("\n".join([*CASES, *INERTIA]))
        return
    path = RESULTS / "validation.json"
    measured = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in [name for name in [*CASES, *INERTIA] if (name in chosen if chosen else name not in measured)]:
        found = run(CASES[name]) if name in CASES else inertia(INERTIA[name])
        measured[name] = {key: round(float(value), 5) for key, value in found.items()}
        print(name, measured[name], flush=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (RESULTS / "validation.md").write_text(table(measured), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
