"""The Navier–Stokes time step against closed forms."""

import math

import numpy as np
import pytest

from replaybench.envs.flow.navier_stokes.solver import (
    Grid,
    Solver,
    fill_pads,
    forward,
    momentum_across,
    momentum_along,
    transport,
)


def noise(*shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(3)).normal(size=shape)


def test_the_pressure_equation_is_solved_to_round_off() -> None:
    solver = Solver(Grid(8, 3.0, 2.0, 1.0), 400.0)
    pressure = noise(*solver.grid.size)
    around = np.pad(pressure, 1, mode="edge")
    source = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2] - 4 * pressure
    found = solver.poisson(source)
    np.testing.assert_allclose(found - found.mean(), pressure - pressure.mean(), atol=1e-12)


@pytest.mark.parametrize("speed", [0.7, -0.7])
def test_advection_carries_quadratics_exactly(speed: float) -> None:
    """Across a face at 0, with the values of q(x) = 2 + 3x + 5x² at ±1/2 and ±3/2, the mean speed times q(0)."""
    a, b, c, d = (np.full(3, 2 + 3 * x + 5 * x * x) for x in (-1.5, -0.5, 0.5, 1.5))
    out = np.zeros(3)
    transport(a, b, c, d, np.full(3, speed + 0.1), np.full(3, speed - 0.1), 0.25, out)
    np.testing.assert_allclose(out, speed * 2.0 - 0.25 * 3.0, rtol=1e-14)


def test_steps_of_changing_length_are_of_second_order() -> None:
    """A rate that grows linearly in time is integrated exactly: from t = 0.3 by 0.2, the step before being 0.05."""
    out, before = np.zeros(1), np.array([0.25])
    zero, rate = np.zeros(1), np.array([0.3])
    forward(zero, rate, before, zero, zero, 0.2, 0.5 * 0.2 / 0.05, 1.0, out)
    assert out[0] == pytest.approx((0.5**2 - 0.3**2) / 2, rel=1e-14)
    assert before[0] == 0.3


def between_walls(u: np.ndarray, v: np.ndarray) -> None:
    """Make all four sides slip walls: mirror images beyond them."""
    nx = u.shape[0] - 5
    fill_pads(u, v)
    for k in range(2):
        u[1 - k], u[nx + 3 + k] = -u[3 + k], -u[nx + 1 - k]
        v[1 - k], v[nx + 2 + k] = v[2 + k], v[nx + 1 - k]
    u[2] = u[nx + 2] = 0.0


def test_taylor_green_vortices_decay_with_second_order_accuracy() -> None:
    """u = sin πx cos πy e^(−2π²νt), v alike, is a solution in a box with slip walls; its pressure is known too."""

    def error(cells: int) -> tuple[float, float]:
        grid, viscosity, end, steps = Grid(cells, 1.0, 1.0, 0.0), 0.01, 0.5, 4 * cells
        solver = Solver(grid, 1.0 / viscosity)
        fields = np.zeros((5, *grid.shape))
        face = (np.arange(grid.shape[0])[:, None] - 2) * np.pi / cells
        middle = face + 0.5 * np.pi / cells
        fields[0], fields[1] = np.sin(face) * np.cos(middle.T), -np.cos(middle) * np.sin(face.T)
        start, (u, v), rows = fields.copy(), np.zeros((2, *grid.shape)), np.zeros((4, grid.shape[1]))
        between_walls(fields[0], fields[1])
        dt = end / steps
        for step in range(steps):
            ratio = 0.5 if step else 0.0
            momentum_along(fields, u, rows, dt, ratio, viscosity, grid.h)
            momentum_across(fields, v, rows, dt, ratio, viscosity, grid.h)
            u[2], u[cells + 2], v[:, 2], v[:, cells + 2] = 0.0, 0.0, 0.0, 0.0
            solver.project(fields, u, v, dt)
            between_walls(fields[0], fields[1])
        inside = slice(2, cells + 2), slice(2, cells + 2)
        decay = math.exp(-2 * np.pi**2 * viscosity * end)
        pressure = 0.25 * decay**2 * (np.cos(2 * middle) + np.cos(2 * middle.T))[inside]
        found = fields[2][inside] - fields[2][inside].mean()
        return float(abs(fields[0] - decay * start[0])[inside].max()), float(abs(found - pressure).max())

    coarse, fine = error(16), error(32)
    assert 1.8 < math.log2(coarse[0] / fine[0]) < 3.0  # the upstream part of the interpolation errs by h³
    assert math.log2(coarse[1] / fine[1]) > 1.8
    assert fine[0] < 1e-4
    assert fine[1] < 4e-4


def test_steps_are_shorter_where_something_is_fast() -> None:
    solver = Solver(Grid(16), 400.0)
    assert solver.steps(1.0, 0.0) == solver.steps(1.0, 2.2) == 68
    assert solver.steps(1.0, 4.4) == 136
    assert solver.steps(1.0, math.inf) == solver.steps(1.0, math.nan) == 68 * 32
    assert Solver(Grid(64), 10.0).longest_step == pytest.approx(0.2 * 10 / 64**2)
