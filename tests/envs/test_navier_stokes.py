"""Flow plants by Navier-Stokes equations: solver, bodies, plants."""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from replaybench.envs.flow.navier_stokes import bodies
from replaybench.envs.flow.navier_stokes import engine as engines
from replaybench.envs.flow.navier_stokes import solver as kernels
from replaybench.envs.flow.navier_stokes.bodies import FreeEllipse, Obstacle, ellipse_at
from replaybench.envs.flow.navier_stokes.engine import PHASES, NavierStokes, Wake, developed_wake
from replaybench.envs.flow.navier_stokes.solver import Grid, Solver
from replaybench.envs.flow.plant import LEFT, Drafting
from replaybench.envs.population import PopulationEnv
from tests.helpers.refusals import refuses


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
    kernels.transport(a, b, c, d, np.full(3, speed + 0.1), np.full(3, speed - 0.1), 0.25, out)
    np.testing.assert_allclose(out, speed * 2.0 - 0.25 * 3.0, rtol=1e-14)


def test_steps_of_changing_length_are_of_second_order() -> None:
    """A rate that grows linearly in time is integrated exactly: from t = 0.3 by 0.2, the step before being 0.05."""
    out, before = np.zeros(1), np.array([0.25])
    zero, rate = np.zeros(1), np.array([0.3])
    kernels.forward(zero, rate, before, zero, zero, 0.2, 0.5 * 0.2 / 0.05, 1.0, out)
    assert out[0] == pytest.approx((0.5**2 - 0.3**2) / 2, rel=1e-14)
    assert before[0] == 0.3


def between_walls(u: np.ndarray, v: np.ndarray) -> None:
    """Make all four sides slip walls: mirror images beyond them."""
    nx = u.shape[0] - 5
    kernels.fill_pads(u, v)
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
            kernels.momentum_along(fields, u, rows, dt, ratio, viscosity, grid.h)
            kernels.momentum_across(fields, v, rows, dt, ratio, viscosity, grid.h)
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


GRID = Grid(16, 5.0, 4.0, 2.0)
ELLIPSE_AREA = math.pi * 0.5 * 0.1


def points(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return x of u's faces `[X, 1]` and y of v's faces `[Y]`."""
    left, bottom = grid.corner
    return left + grid.h * np.arange(grid.shape[0])[:, None], bottom + grid.h * np.arange(grid.shape[1])


def momentum(u: np.ndarray, v: np.ndarray, center: tuple[float, float]) -> np.ndarray:
    """Return the momentum and angular momentum of all fluid."""
    x, y = points(GRID)
    torque = ((x + GRID.h / 2 - center[0]) * v).sum() - ((y + GRID.h / 2 - center[1]) * u).sum()
    return np.array([u.sum(), v.sum(), torque]) * GRID.h**2


@pytest.mark.parametrize(
    ("distance", "area"),
    [
        (bodies.circle, math.pi / 4),
        (bodies.half_circle, math.pi / 8),
        *((ellipse_at((0.3, 0.11, angle)), ELLIPSE_AREA) for angle in (0.0, 0.4, 2.0)),
    ],
)
def test_volume_fractions_sum_to_the_area(distance: Any, area: float) -> None:
    body = Obstacle(GRID, distance)
    for fractions in (body.u_fraction, body.v_fraction):
        assert fractions.sum() * GRID.h**2 == pytest.approx(area, rel=0.025)
        assert fractions.max() == 1.0
        assert fractions.min() == 0.0


def test_the_distance_from_an_ellipse_is_right_near_its_surface() -> None:
    """Beside a point of the surface, a little along the normal there."""
    for parameter in np.linspace(0.0, 2 * np.pi, 9):
        surface = np.array([0.5 * math.cos(parameter), 0.1 * math.sin(parameter)])
        normal = surface / np.array([0.25, 0.01])
        normal /= np.hypot(*normal)
        for step in (-1e-4, 1e-4):
            along, across = surface + step * normal
            turned = math.cos(0.7) * along - math.sin(0.7) * across, math.sin(0.7) * along + math.cos(0.7) * across
            found = bodies.ellipse_distance(2 + turned[0], 1 + turned[1], 2.0, 1.0, 0.7)
            assert found == pytest.approx(step, rel=0.03)


def test_the_force_on_an_obstacle_is_the_momentum_taken_from_the_fluid() -> None:
    center, dt = (0.31, -0.12), 0.01
    body = Obstacle(GRID, ellipse_at((*center, 0.5)), center)
    u, v = noise(2, *GRID.shape)
    before = momentum(u, v, center)
    force = body.stop(u, v, dt)
    np.testing.assert_allclose(force * dt, before - momentum(u, v, center), atol=1e-13)
    assert abs(force).min() > 0.01
    deepest = np.unravel_index(body.u_fraction.argmax(), body.u_fraction.shape)
    assert abs(u[body.first[0] + deepest[0], body.first[1] + deepest[1]]) < 3 / (1 + 1e4 * dt)


def test_the_free_ellipse_takes_the_fluids_momentum_and_the_forces() -> None:
    """With the share that follows divided out, fluid inside gains exactly the force's impulse, about all three axes."""
    dt, pose, force = 0.01, (0.3, 0.12, 0.6), np.array([0.3, -0.2, 0.1])
    u, v = noise(2, *GRID.shape)
    before, body = momentum(u, v, pose[:2]), np.array([*pose, 0.0, 0.0, 0.0])
    FreeEllipse(GRID).move(u, v, body, force, dt)
    gained = (momentum(u, v, pose[:2]) - before) / bodies.share(dt)
    np.testing.assert_allclose(gained, force * dt, atol=1e-13)
    np.testing.assert_allclose(body[:3], pose + dt * body[3:], rtol=1e-14)


PLANT = Drafting(fidelity="navier-stokes", cells=8)
QUICK = 10.0  # actions per T: an action is then four time steps


def population(members: int) -> PopulationEnv:
    """Return members whose episode has begun."""
    env = PopulationEnv(PLANT, members, frequency=QUICK, seed=3)
    env.reset()
    return env


@pytest.fixture(scope="module")
def wake() -> Wake:
    return developed_wake(Grid(8))


def test_the_wake_sheds_periodically(wake: Wake) -> None:
    """At 16 cells per D and in a wider box St is 0.204 and Cd 2.27; a coarse grid and near walls are forgiven a lot."""
    assert 0.19 < 1.0 / wake.period < 0.27
    assert 2.0 < 2.0 * wake.drag < 2.9
    v = wake.snapshots[:, 1, 2 + 6 * 8, 2 + 5 * 8]  # on the middle line, 2 D behind the cylinder
    assert v.max() > 0.2
    assert v.min() < -0.2
    np.testing.assert_allclose(v[: PHASES // 2], -v[PHASES // 2 :], atol=0.25 * float(np.ptp(v)))


def test_wakes_are_cached_and_damaged_files_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(engines, "SETTLING", 24.0)
    grid = Grid(8, 5.0, 4.0, 1.5)
    computed = developed_wake.__wrapped__(grid)
    assert "once" in capsys.readouterr().err
    kept = developed_wake.__wrapped__(grid)
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(computed.snapshots, kept.snapshots)
    assert (computed.period, computed.drag) == (kept.period, kept.drag)
    (path,) = (tmp_path / "flow").glob("*.h5")
    path.write_bytes(path.read_bytes()[:1000])
    np.testing.assert_array_equal(developed_wake.__wrapped__(grid).snapshots, kept.snapshots)


def test_leaving_the_box_ends_the_episode_and_costs(wake: Wake) -> None:
    env = population(1)
    rewards: list[float] = []
    terminated = np.zeros(1, np.bool_)
    while not terminated[0] and len(rewards) < 60:
        _, reward, terminated, truncated, info = env.step(np.array([[1.0, 0.0, 0.0]]))
        rewards.append(reward[0])
    assert (terminated[0], truncated[0], info["event"][0], info["left"][0]) == (True, False, LEFT, True)
    assert rewards[-1] == -100.0
    np.testing.assert_allclose(rewards[:-1], -4.0 / QUICK)
    x, y = cast(NavierStokes, env._engine).body[0, :2]
    assert x > 4.0 or abs(y) > 1.0
    assert x < 4.2
    assert abs(y) < 1.2


def test_sensors_see_the_flow_past_a_moving_ellipse() -> None:
    """Velocities linear in place are interpolated exactly; the ellipse's own motion is taken off."""
    engine = NavierStokes(PLANT, 1, 1.0)
    (x, y), half = points(engine.grid), engine.grid.h / 2
    engine.fields[0, 0] = 1.0 + 0.3 * x - 0.7 * (y + half)
    engine.fields[0, 1] = 0.2 - 0.1 * (x + half) - 0.3 * y
    engine.body[0] = 2.03, -0.41, 0.5, 0.6, -0.2, 0.9
    engine._observe(0)
    np.testing.assert_allclose(engine.observed[0, :6], engine.body[0])
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    for n, place in enumerate([(-0.55, 0.0), (0.55, 0.0), (0.0, -0.15), (0.0, 0.15)]):
        dx, dy = turn @ place
        px, py = 2.03 + dx, -0.41 + dy
        own = 0.6 - 0.9 * dy, -0.2 + 0.9 * dx
        fluid = 1.0 + 0.3 * px - 0.7 * py, 0.2 - 0.1 * px - 0.3 * py
        np.testing.assert_allclose(engine.observed[0, 6 + 2 * n : 8 + 2 * n], np.subtract(fluid, own), rtol=1e-10)


def test_a_flow_that_has_blown_up_ends_its_episode(wake: Wake) -> None:
    env = population(2)
    cast(NavierStokes, env._engine).fields[1] = np.nan
    observation, reward, terminated, _, _ = env.step(np.zeros((2, 3)))
    np.testing.assert_array_equal(terminated, [False, True])
    assert reward[1] == -100.0
    assert np.isfinite(observation).all()


def test_states_off_the_grid_are_refused(wake: Wake) -> None:
    """Checkpoints may come from strangers, and the kernels check nothing."""
    env = population(1)
    for place, value in ((0, 1e6), (1, -5.0), (2, np.nan)):
        state = env.get_state()
        state["body"][0, place] = value
        refuses("an ellipse is off the grid", env.set_state, state)
    engine = cast(NavierStokes, env._engine)
    engine.body[0, :2] = 1e6
    engine._observe(0)
    assert np.isnan(engine.observed[0, 6:]).all()
