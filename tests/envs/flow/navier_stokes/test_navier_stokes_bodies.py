"""Bodies in the Navier–Stokes flow: their areas, the momentum they exchange, and how a free one moves."""

import math
from typing import Any

import numpy as np
import pytest

from replaybench.envs.flow.navier_stokes.bodies import (
    FreeEllipse,
    Obstacle,
    circle,
    ellipse_at,
    ellipse_distance,
    half_circle,
    share,
)
from replaybench.envs.flow.navier_stokes.solver import Grid

GRID = Grid(16, 5.0, 4.0, 2.0)
ELLIPSE_AREA = math.pi * 0.5 * 0.1


def points(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return x of u's faces `[X, 1]` and y of v's faces `[Y]`."""
    left, bottom = grid.corner
    return left + grid.h * np.arange(grid.shape[0])[:, None], bottom + grid.h * np.arange(grid.shape[1])


def noise(*shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(5)).normal(size=shape)


def momentum(u: np.ndarray, v: np.ndarray, center: tuple[float, float]) -> np.ndarray:
    """Return the momentum and angular momentum of all fluid."""
    x, y = points(GRID)
    torque = ((x + GRID.h / 2 - center[0]) * v).sum() - ((y + GRID.h / 2 - center[1]) * u).sum()
    return np.array([u.sum(), v.sum(), torque]) * GRID.h**2


@pytest.mark.parametrize(
    ("distance", "area"),
    [
        (circle, math.pi / 4),
        (half_circle, math.pi / 8),
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
            assert ellipse_distance(2 + turned[0], 1 + turned[1], 2.0, 1.0, 0.7) == pytest.approx(step, rel=0.03)


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
    gained = (momentum(u, v, pose[:2]) - before) / share(dt)
    np.testing.assert_allclose(gained, force * dt, atol=1e-13)
    np.testing.assert_allclose(body[:3], pose + dt * body[3:], rtol=1e-14)
