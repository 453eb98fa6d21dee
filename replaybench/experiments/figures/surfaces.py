"""What was learned, as surfaces over the state space, beside dynamic programming (de Bruin et al. 2018, Figure 4).

For plants of two states. A learner is rebuilt from its policy file; of each strategy the run of median final reward
is shown, so that neither the luckiest nor a dead run stands for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.baselines.grid_choice import Rule
from replaybench.controllers.learner import Learner
from replaybench.data.formats.policy_file import read_policy
from replaybench.data.formats.run_folder import RunFolder
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.figures.style import GREY, Series, all_series, broken, condition, new_figure, plant_name
from replaybench.experiments.results.dataset import rule_of
from replaybench.experiments.snapshots.snapshots import median_seed
from replaybench.experiments.snapshots.solved import solved_surfaces
from replaybench.experiments.snapshots.surfaces import follow, has_surfaces, pixel_states
from replaybench.experiments.training.cell import make_agent
from replaybench.experiments.training.study import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

MOST_STRATEGIES: Final = 3
_PIXELS: Final = 161
_MOST_ACTIONS: Final = 4
_TITLE_WIDTH: Final = 34
"""Characters of a line above a panel."""


class Surface(NamedTuple):
    """A controller over the state space and in action; X and Y pixels along the two states.

    Attributes:
        title: whose it is.
        value: (1 − γ) times the value, `[X, Y]`: discounted mean reward per step, unscaled.
        action: physical actions `[X, Y, A]`.
        path: physical states of its trajectory `[T + 1, 2]`.
    """

    title: str
    value: Floats
    action: Floats
    path: Floats


def policy_surfaces(data: xr.Dataset, folder: RunFolder, cells: Sequence[Cell]) -> Figure | None:
    """Draw value and policy of dynamic programming and of up to three strategies, each with its trajectory.

    Args:
        data: dataset of one plant.
        folder: run folder, where the policies are.
        cells: cells of the study.

    Returns:
        None where the plant has other than two states or no grid or is told by its return, or no policy is there.
    """
    cells = [cell for cell in cells if cell.plant == data["plant"].item()]
    plant = cells[0].make_plant()
    if not isinstance(plant, OdePlant) or not has_surfaces(plant):
        return None
    noise, frequency = _first_place(data)
    here = data.sel(noise=noise, frequency=frequency)
    cells = [cell for cell in cells if cell.noise == noise and cell.frequency == frequency]
    learned = [_learned(here.sel(one.where), one, folder, cells, plant) for one in all_series(here)]
    surfaces = [surface for surface in learned if surface is not None][:MOST_STRATEGIES]
    if not surfaces:
        return None
    return _draw(plant, [_solved(plant, frequency, rule_of(data)), *surfaces], condition(noise, frequency))


def _first_place(data: xr.Dataset) -> tuple[float, float]:
    """Return the first noise and control rate that have results."""
    present = data["reward"].notnull().any(["learner", "strategy", "seed", "episode"]).transpose("noise", "frequency")
    row, column = np.argwhere(present.values)[0]
    return float(data["noise"].values[row]), float(data["frequency"].values[column])


def load_member(cell: Cell, folder: RunFolder, seed: int) -> Learner:
    """Rebuild one learner of a finished cell as a population of one."""
    _, weights = read_policy(folder.cell(cell.id) / "policy.safetensors")
    row = seed - cell.first_member
    agent = make_agent(dataclasses.replace(cell, first_member=seed, members=1), cell.make_plant())
    agent.load_weights({name: array[row : row + 1] for name, array in weights.items()})
    return agent


def _learned(
    data: xr.Dataset, series: Series, folder: RunFolder, cells: Sequence[Cell], plant: OdePlant
) -> Surface | None:
    """Evaluate the median run of one strategy; None without its policy file."""
    seed = median_seed(data["reward"].values)
    found = [
        cell
        for cell in cells
        if (cell.learner, cell.strategy) == (series.learner, series.strategy)
        and seed in cell.seeds
        and (folder.cell(cell.id) / "policy.safetensors").is_file()
    ]
    if seed is None or not found:
        return None
    agent = load_member(found[0], folder, seed)
    if agent.greedy() is not agent or tuple(found[0].observe or plant.state_names) != plant.state_names:
        return None  # what it does depends on more, or less, than the state, or on its numbers in another order
    if not hasattr(agent, "value"):
        return None  # a user's learner need not tell values
    states = pixel_states(plant, _PIXELS).reshape(1, -1, 2).astype(np.float32)
    paths = follow(plant, found[0].frequency, 1, agent.act)
    value = (1 - agent.task.discount) / agent.task.reward_scale * agent.value(states)[0]
    title = f"{series.label}\nmedian run (seed {seed}): {_number(paths.reward[0])}"
    return _surface(title, value, agent.policy(states)[0], paths.states[0], plant)


def _solved(plant: OdePlant, frequency: float, rule: Rule | None) -> Surface:
    solved = solved_surfaces(plant, frequency, rule, _PIXELS)
    assert solved is not None  # as the plant has surfaces
    return Surface(f"dynamic programming\ngreedy: {_number(solved.reward)}", solved.value, solved.action, solved.path)


def _surface(title: str, value: NDArray[Any], action: NDArray[Any], path: Floats, plant: OdePlant) -> Surface:
    physical = plant.denormalise_action(action).reshape(_PIXELS, _PIXELS, -1)
    return Surface(title, value.astype(np.float64).reshape(_PIXELS, _PIXELS), physical, path)


def _draw(plant: OdePlant, surfaces: Sequence[Surface], where: str) -> Figure:
    actions = min(_MOST_ACTIONS, len(plant.action_names))
    columns, rows = len(surfaces), 1 + actions
    figure = new_figure(
        2.45 * columns + 1.4,
        (2.1 if actions == 1 else 1.6) * rows + 0.5,
        f"{plant_name(plant.name)}: value and policy, {where}",
        "Above: value of the greedy policy as discounted mean reward per step, (1 − γ) Q(s, π(s)). Below: π(s). "
        "Lines: its trajectory without noise from the start (circle) towards the reference (cross), "
        "whose mean reward per step stands in the titles.",
    )
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for row in range(rows):
        images = []
        low, high = _value_range(surfaces) if row == 0 else (plant.action_low[row - 1], plant.action_high[row - 1])
        for axes, surface in zip(panels[row], surfaces, strict=True):
            values = surface.value if row == 0 else surface.action[..., row - 1]
            colors = "viridis" if row == 0 else "RdBu_r" if low < 0 < high else "cividis"
            images.append(draw_surface(axes, plant, values, low, high, colors))
            draw_path(axes, plant, surface.path)
        label = "value" if row == 0 else f"{plant.action_names[row - 1]} [{plant.action_units[row - 1]}]"
        figure.colorbar(images[0], ax=panels[row], label=label, extend="both" if row == 0 else "neither", pad=0.015)
        panels[row, 0].set_ylabel(_axis_label(plant, 1))
    for axes, surface in zip(panels[0], surfaces, strict=True):
        axes.set_title("\n".join(broken(line, _TITLE_WIDTH) for line in surface.title.splitlines()), color=GREY)
    for axes in panels[-1]:
        axes.set_xlabel(_axis_label(plant, 0))
        if plant.periodic[0]:
            axes.set_xticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]), ["−π", "−π/2", "0", "π/2", "π"])
        else:
            axes.locator_params(axis="x", nbins=4)
    return figure


def _value_range(surfaces: Sequence[Surface]) -> tuple[float, float]:
    """Return the range of colours: that of all values, but little more than that of dynamic programming."""
    low, high = float(surfaces[0].value.min()), float(surfaces[0].value.max())
    all_values = np.concatenate([surface.value.ravel() for surface in surfaces])
    outer = np.nanpercentile(all_values, (1, 99))
    span = high - low
    return max(float(outer[0]), low - 0.5 * span), min(float(outer[1]), high + 0.25 * span)


def draw_surface(axes: Axes, plant: OdePlant, values: Floats, low: float, high: float, colors: str) -> Any:
    """Draw values `[X, Y]` over the plant's grid as colours between `low` and `high`; returns the image."""
    (left, bottom), (right, top) = plant.grid_low, plant.grid_high
    look: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    return axes.imshow(values.T, extent=(left, right, bottom, top), vmin=low, vmax=high, cmap=colors, **look)


def draw_path(axes: Axes, plant: OdePlant, path: Floats) -> None:
    """Draw a trajectory of physical states `[T + 1, 2]`, cut where an angle wraps, from its start to the reference."""
    path = path.copy()
    for axis, around in enumerate(plant.periodic):
        if around:
            jumps = np.abs(np.diff(path[:, axis])) > np.pi
            path = np.insert(path, np.flatnonzero(jumps) + 1, np.nan, axis=0)
    axes.plot(*path.T, color="black", linewidth=2.0)
    axes.plot(*path.T, color="white", linewidth=0.9)
    ends: dict[str, Any] = {"markeredgecolor": "black", "markerfacecolor": "white", "clip_on": False, "zorder": 5}
    axes.plot(*plant.initial_state, marker="o", markersize=5, **ends)
    axes.plot(*plant.reference_state, marker="X", markersize=6.5, **ends)
    axes.set(xlim=(plant.grid_low[0], plant.grid_high[0]), ylim=(plant.grid_low[1], plant.grid_high[1]))


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _axis_label(plant: OdePlant, axis: int) -> str:
    return f"{plant.state_names[axis]} [{plant.state_units[axis]}]"
