"""Learned policies and values over the state space, next to dynamic programming (de Bruin et al. 2018, Figure 4).

For plants of two states. Learners are rebuilt from their policy files. Of each strategy the run of median final reward
is shown, which is neither the luckiest nor a collapsed one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.formats.policy_file import read_policy
from replaybench.data.formats.run_folder import RunFolder
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.figures.style import (
    GREY,
    Series,
    all_series,
    broken,
    condition,
    label_angle,
    minus,
    new_panels,
)
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
        title: name of the controller.
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

    None without any policy, or if the plant has no two states, no grid, or returns as its rewards.
    """
    cells = [cell for cell in cells if cell.plant == data["plant"].item()]
    plant = cells[0].make_plant()
    if not isinstance(plant, OdePlant) or not has_surfaces(plant):
        return None
    scored = data["reward"].notnull().any(["learner", "strategy", "seed", "episode"]).transpose("noise", "frequency")
    row, column = np.argwhere(scored.values)[0]
    data = data.isel(noise=row, frequency=column)
    noise, frequency = data["noise"].item(), data["frequency"].item()
    cells = [cell for cell in cells if cell.noise == noise and cell.frequency == frequency]
    found = [_learned(data.sel(one.where), one, folder, cells, plant) for one in all_series(data)]
    learned = [surface for surface in found if surface is not None][:MOST_STRATEGIES]
    if not learned:
        return None
    solved = solved_surfaces(plant, frequency, rule_of(data), _PIXELS)
    assert solved is not None  # the plant has surfaces
    title = f"dynamic programming\ngreedy: {_number(solved.reward)}"
    return _draw(data, plant, [Surface(title, solved.value, solved.action, solved.path), *learned])


def _learned(
    data: xr.Dataset, series: Series, folder: RunFolder, cells: Sequence[Cell], plant: OdePlant
) -> Surface | None:
    """Evaluate the median run of one strategy, as a population of one; return None without its policy file."""
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
    cell = found[0]
    _, weights = read_policy(folder.cell(cell.id) / "policy.safetensors")
    row = slice(seed - cell.first_member, seed - cell.first_member + 1)
    agent = make_agent(dataclasses.replace(cell, first_member=seed, members=1), plant)
    agent.load_weights({name: array[row] for name, array in weights.items()})
    if agent.greedy() is not agent or tuple(cell.observe or plant.state_names) != plant.state_names:
        return None  # its action does not depend on the whole present state alone
    if not hasattr(agent, "value"):
        return None  # a user's learner need not return values
    states = pixel_states(plant, _PIXELS).reshape(1, -1, 2).astype(np.float32)
    paths = follow(plant, cell.frequency, 1, agent.act)
    value = (1 - agent.task.discount) / agent.task.reward_scale * agent.value(states)[0]
    action = plant.denormalise_action(agent.policy(states)[0]).reshape(_PIXELS, _PIXELS, -1)
    title = f"{series.label}\nmedian run (seed {seed}): {_number(paths.reward[0])}"
    return Surface(title, value.astype(np.float64).reshape(_PIXELS, _PIXELS), action, paths.states[0])


def _draw(data: xr.Dataset, plant: OdePlant, surfaces: Sequence[Surface]) -> Figure:
    actions = min(_MOST_ACTIONS, len(plant.action_names))
    columns, rows = len(surfaces), 1 + actions
    caption = (
        "Above: value of the greedy policy as discounted mean reward per step, (1 − γ) Q(s, π(s)). Below: π(s). "
        "Lines: its trajectory without noise from the start (circle) towards the reference (cross); "
        "the titles give its mean reward per step."
    )
    title = f"value and policy, {condition(data['noise'].item(), data['frequency'].item())}"
    size = 2.45 * columns + 1.4, (2.1 if actions == 1 else 1.6) * rows + 0.5
    figure, panels = new_panels(data, title, caption, size, (rows, columns), sharex=True, sharey=True)
    (left, bottom), (right, top) = plant.grid_low, plant.grid_high
    extent = left, right, bottom, top
    names = [f"{name} [{unit}]" for name, unit in zip(plant.state_names, plant.state_units, strict=True)]
    look: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    for row in range(rows):
        learned = np.concatenate([surface.value.ravel() for surface in surfaces])
        low, high = plant.action_low[row - 1], plant.action_high[row - 1]
        if row == 0:
            low, high = value_range(learned, surfaces[0].value)
        for axes, surface in zip(panels[row], surfaces, strict=True):
            values = surface.value if row == 0 else surface.action[..., row - 1]
            colors = "viridis" if row == 0 else "RdBu_r" if low < 0 < high else "cividis"
            image = axes.imshow(values.T, extent=extent, vmin=low, vmax=high, cmap=colors, **look)
            line = cut_path(surface.path, [2 * np.pi if around else np.inf for around in plant.periodic]).T
            axes.plot(*line, color="black", linewidth=2.0)
            axes.plot(*line, color="white", linewidth=0.9)
            draw_ends(axes, plant)
            axes.set(xlim=extent[:2], ylim=extent[2:])
        label = "value" if row == 0 else f"{plant.action_names[row - 1]} [{plant.action_units[row - 1]}]"
        figure.colorbar(image, ax=panels[row], label=label, extend="both" if row == 0 else "neither", pad=0.015)
        panels[row, 0].set_ylabel(names[1])
    for axes, surface in zip(panels[0], surfaces, strict=True):
        axes.set_title("\n".join(broken(line, _TITLE_WIDTH) for line in surface.title.splitlines()), color=GREY)
    for axes in panels[-1]:
        axes.set_xlabel(names[0])
        label_angle(axes, plant.periodic[0], 4)
    return figure


def value_range(learned: NDArray[np.floating[Any]], solved: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Return the range of colours of values: that of all values, but little more than that of dynamic programming."""
    low, high = float(solved.min()), float(solved.max())
    least, most = np.nanpercentile(learned, (1, 99))
    return max(float(least), low - 0.5 * (high - low)), min(float(most), high + 0.25 * (high - low))


def cut_path(path: NDArray[np.floating[Any]], turns: Sequence[float]) -> NDArray[np.floating[Any]]:
    """Insert NaN into a trajectory `[T, 2]` at jumps of more than half a turn; a turn is inf for other states."""
    for axis, turn in enumerate(turns):
        jumps = np.abs(np.diff(path[:, axis])) > turn / 2
        path = np.insert(path, np.flatnonzero(jumps) + 1, np.nan, axis=0)
    return path


def draw_ends(axes: Axes, plant: OdePlant, states: tuple[int, int] = (0, 1)) -> None:
    """Mark the plant's start with a circle and its reference with a cross in the plane of two states."""
    ends: dict[str, Any] = {"markeredgecolor": "black", "markerfacecolor": "white", "clip_on": False, "zorder": 5}
    for state, marker, size in ((plant.initial_state, "o", 5.0), (plant.reference_state, "X", 6.5)):
        axes.plot(*(state[s] for s in states), marker=marker, markersize=size, **ends)


def _number(value: float) -> str:
    return minus(f"{value:.3g}")
