"""Grids: interpolation against SciPy, periodic axes, edges, refinement."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from replaybench.baselines.grid import Grid, plant_grid
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.registry import make_plant
from replaybench.runtime.errors import UserError

BOX = Grid((4, 7, 5), (-1.0, 0.0, 2.0), (1.0, 3.0, 2.5), (False, False, False))
RING = Grid((6, 5), (-math.pi, -2.0), (math.pi, 2.0), (True, False))


def test_interpolation_equals_scipy_in_three_dimensions() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(BOX.size, 2))
    points = rng.uniform(BOX.low, BOX.high, (500, 3))
    oracle = RegularGridInterpolator(BOX.axes(), table.reshape(*BOX.nodes, 2))
    np.testing.assert_allclose(BOX.interpolate(table, points), oracle(points), rtol=0, atol=1e-12)


def test_points_outside_the_box_are_clipped() -> None:
    table = np.random.default_rng(3).normal(size=(BOX.size, 1))
    points = np.random.default_rng(4).uniform(-5, 5, (300, 3))
    inside = np.clip(points, BOX.low, BOX.high)
    np.testing.assert_array_equal(BOX.interpolate(table, points), BOX.interpolate(table, inside))


def test_a_periodic_axis_goes_round() -> None:
    rng = np.random.default_rng(5)
    table = rng.normal(size=(RING.size, 1))
    surface = table.reshape(RING.nodes)
    angle, speed = RING.axes()
    closed = RegularGridInterpolator(((*angle, math.pi), speed), np.vstack([surface, surface[:1]]))
    points = rng.uniform(RING.low, RING.high, (500, 2))
    np.testing.assert_allclose(RING.interpolate(table, points)[:, 0], closed(points), rtol=0, atol=1e-12)
    turns = np.array([2 * math.pi, 0.0]) * rng.integers(-3, 4, (500, 1))
    np.testing.assert_allclose(RING.interpolate(table, points + turns), RING.interpolate(table, points), atol=1e-12)


def test_both_names_of_upright_are_one_node() -> None:
    cell, weight = RING.memberships([[-math.pi, 0.0], [math.pi, 0.0]])
    nodes = [RING.corners[c][w > 1e-12] for c, w in zip(cell, weight, strict=True)]
    assert nodes[0].tolist() == nodes[1].tolist() == [2]


def test_nan_and_infinite_points_stay_inside_the_grid() -> None:
    odd = [[value, other] for value in (math.nan, math.inf, -math.inf, 1e300) for other in (math.nan, -math.inf, 1e300)]
    cell, weight = RING.memberships(odd)
    assert ((cell >= 0) & (cell < len(RING.corners))).all()
    np.testing.assert_allclose(weight.sum(axis=1), 1.0)


def test_refinement_without_a_fitting_number_of_nodes_still_refines() -> None:
    grid = Grid((10,), (0.0,), (1.0,), (False,))
    assert grid.refined(1.4, (1 / math.pi,)).nodes == (14,)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (((1, 3), (0.0, 0.0), (1.0, 1.0), (False, False)), "2 or more"),
        (((3,), (1.0,), (1.0,), (False,)), "rising order"),
        (((3,), (0.0, 0.0), (1.0,), (False,)), "one per state"),
    ],
)
def test_impossible_grids_are_refused(grid: tuple[object, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Grid(*grid)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Pendulum", "PendulumDCSC", "Magman"])
def test_grids_of_plants_and_their_refinements_have_nodes_on_the_reference_and_both_ends(name: str) -> None:
    """To the last bit: a node one ulp behind Magman's wall is a collision that no state inside the track has."""
    plant = make_plant(name)
    assert isinstance(plant, OdePlant)
    grid = plant_grid(plant)
    for _ in range(4):
        _, weight = grid.memberships([plant.reference_state])
        assert weight.max() == pytest.approx(1.0, abs=1e-9)
        for axis, low, high, periodic in zip(grid.axes(), grid.low, grid.high, grid.periodic, strict=True):
            assert axis[0] == low
            assert axis[-1] < high if periodic else axis[-1] == high
        finer = grid.refined(1.4, plant.reference_state)
        growth = np.array(finer.nodes) / np.array(grid.nodes)
        assert ((growth > 1.35) & (growth < 1.45)).all()
        grid = finer
