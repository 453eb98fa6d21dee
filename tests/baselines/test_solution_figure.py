"""The figure of a solution: one labelled panel for the value and one per action."""

from __future__ import annotations

import dataclasses
import io
import math
from typing import Any

import numpy as np
import pytest

from replaybench.baselines.fuzzy_q_iteration import solve
from replaybench.baselines.grid import plant_grid
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.ode.plant import OdePlant
from replaybench.reports.figures.surfaces import solution_figure


@pytest.mark.parametrize("plant", [Pendulum(), Magman()], ids=lambda plant: plant.name)
def test_panels_show_the_surfaces_in_physical_units(plant: OdePlant) -> None:
    solution = solve(plant, grid=plant_grid(plant, (41, 31)))
    figure = solution_figure(solution)
    figure.savefig(io.BytesIO())
    title = figure.get_suptitle()
    assert f"modified policy iteration, the last {solution.sweeps} improvements on these nodes" in title
    assert "sweeps" not in title, "those of plain fuzzy Q-iteration are many more"
    images: list[tuple[Any, Any]] = [(axes, axes.images[0]) for axes in figure.axes if axes.images]
    assert len(images) == 1 + len(plant.action_names)
    np.testing.assert_allclose(images[0][1].get_array(), solution.value_surface().T)
    np.testing.assert_allclose(images[1][1].get_array(), solution.policy_surface()[..., 0].T)
    assert images[0][0].get_ylabel() == f"{plant.state_names[1]} [{plant.state_units[1]}]"
    labels = [axes.get_title() for axes, _ in images]
    assert labels[0] == "value of the best action", "above its panel: beside the bar it would stand at the next one"
    assert labels[1:] == [f"{n} [{u}]" for n, u in zip(plant.action_names, plant.action_units, strict=True)]
    assert not any(axes.get_ylabel() for axes in figure.axes if not axes.images)
    left, right, bottom, top = images[0][1].get_extent()
    assert left < plant.grid_low[0] < plant.grid_high[0] <= right + 1e-9 + solution.grid.spacing[0]
    assert bottom < plant.grid_low[1] < plant.grid_high[1] < top


def test_plain_sweeps_are_counted_as_such_and_the_title_fits() -> None:
    solution = solve(Pendulum(), grid=plant_grid(Pendulum(), (21, 21)), variant="asynchronous")
    figure = solution_figure(solution)
    assert f"{len(solution.convergence)} asynchronous sweeps" in figure.get_suptitle()
    figure.draw_without_rendering()
    (title,) = figure.texts
    assert 0 < title.get_window_extent().x0 < title.get_window_extent().x1 < figure.bbox.width


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullTurn(Pendulum):
    name = "FullTurn"
    grid_low = (0.0, -15.0)
    grid_high = (2 * math.pi, 15.0)


def test_an_axis_of_angles_shows_the_turn_of_its_grid() -> None:
    figure = solution_figure(solve(FullTurn(), grid=plant_grid(FullTurn(), (20, 21))))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "π/2", "π", "3π/2", "2π"]
    drawn = np.concatenate([np.asarray(line.get_xdata()) for line in axes.lines])
    assert np.nanmin(drawn) >= 0.0
    assert axes.get_xlim()[1] == pytest.approx(2 * math.pi)
