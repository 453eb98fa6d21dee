"""Figures of policies and values over the state space, of learners and of dynamic programming.

Plants must have two states. Learners are rebuilt from their policy files. For each strategy, the run with the median
final reward is shown. It is neither the luckiest run nor, in general, a collapsed one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from replaybench.baselines.fuzzy_q_iteration import Solution
from replaybench.data.policy_file import read_policy
from replaybench.data.run_folder import RunFolder
from replaybench.envs.ode.plant import OdePlant
from replaybench.experiments.cell import make_agent
from replaybench.experiments.dataset import rule_of
from replaybench.experiments.snapshots import follow, has_surfaces, median_seed, pixel_states, solved_surfaces
from replaybench.experiments.study import Cell
from replaybench.reports.figures import style
from replaybench.reports.figures.style import GREY, Series
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError

MOST_STRATEGIES: Final = 3
_PIXELS: Final = 161
_MOST_ACTIONS: Final = 4
_TITLE_WIDTH: Final = 34
"""Largest number of characters in a line above a panel."""


class Surface(NamedTuple):
    """The value, policy and trajectory of one controller of a plant with two states.

    The range of the states is divided into X × Y pixels.

    Attributes:
        title: Name of the controller.
        value: Value times 1 − γ, which is the discounted mean reward per step; shape `[X, Y]`.
        action: Actions in physical units; shape `[X, Y, A]`.
        path: States of a trajectory of T steps in physical units; shape `[T + 1, 2]`.
    """

    title: str
    value: Floats
    action: Floats
    path: Floats


def policy_surfaces(data: xr.Dataset, folder: RunFolder, cells: Sequence[Cell]) -> Figure | None:
    """Draw value, policy and a trajectory for dynamic programming and for up to three strategies on one plant.

    The result is None if there is no policy file. The plant must have two states and a grid for dynamic programming,
    and score episodes by mean reward. Otherwise, the result is None, too.
    """
    cells = [cell for cell in cells if cell.plant == data["plant"].item()]
    plant = cells[0].make_plant() if cells else None  # results of another study may lie in the folder
    if not isinstance(plant, OdePlant) or not has_surfaces(plant):
        return None
    scored = data["reward"].notnull().any(["learner", "strategy", "seed", "episode"]).transpose("noise", "frequency")
    row, column = np.argwhere(scored.values)[0]
    data = data.isel(noise=row, frequency=column)
    noise, frequency = data["noise"].item(), data["frequency"].item()
    cells = [cell for cell in cells if cell.noise == noise and cell.frequency == frequency]
    surfaces = [_learned(data.sel(one.where), one, folder, cells, plant) for one in style.all_series(data)]
    learned = [surface for surface in surfaces if surface is not None][:MOST_STRATEGIES]
    if not learned:
        return None
    solved = solved_surfaces(plant, frequency, rule_of(data), _PIXELS)
    assert solved is not None  # the plant has surfaces
    title = f"dynamic programming\ngreedy: {_number(solved.reward)}"
    return _draw(data, plant, [Surface(title, solved.value, solved.action, solved.path), *learned])


def _learned(
    data: xr.Dataset, series: Series, folder: RunFolder, cells: Sequence[Cell], plant: OdePlant
) -> Surface | None:
    """Evaluate the policy of the run with the median final reward, or return None if the policy cannot be drawn."""
    seed = median_seed(data["reward"].values)
    fitting = [
        cell
        for cell in cells
        if (cell.learner, cell.strategy) == (series.learner, series.strategy)
        and seed in cell.seeds
        and (folder.cell(cell.id) / "policy.safetensors").is_file()
    ]
    if seed is None or not fitting:
        return None
    cell = fitting[0]
    _, weights = read_policy(folder.cell(cell.id) / "policy.safetensors")
    row = slice(seed - cell.first_member, seed - cell.first_member + 1)
    agent = make_agent(dataclasses.replace(cell, first_member=seed, members=1), plant)
    agent.load_weights({name: array[row] for name, array in weights.items()})
    if agent.greedy() is not agent or tuple(cell.observe or plant.state_names) != plant.state_names:
        return None  # the action depends on more, or on less, than the present state
    if not hasattr(agent, "value"):
        return None  # learners in users' files may lack the method `value`
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
        "Above: value of the greedy policy, (1 − γ) Q(s, π(s)). Below: the policy π(s). Lines: its trajectory from the "
        "start (circle) towards the reference (cross).\n"
        "Titles: mean reward per step of that greedy episode without noise, of the run of median final reward."
    )
    title = f"value and policy, {style.condition(data['noise'].item(), data['frequency'].item())}"
    size = 2.45 * columns + 1.4, (2.1 if actions == 1 else 1.6) * rows + 0.5
    figure, panels = style.new_panels(data, title, caption, size, (rows, columns), sharex=True, sharey=True)
    extent = np.ravel(list(zip(plant.grid_low, plant.grid_high, strict=True))).tolist()
    names = [f"{name} [{unit}]" for name, unit in zip(plant.state_names, plant.state_units, strict=True)]
    values = value_range(np.concatenate([surface.value.ravel() for surface in surfaces]), surfaces[0].value)
    for row in range(rows):
        for axes, surface in zip(panels[row], surfaces, strict=True):
            shown = surface.value if row == 0 else surface.action[..., row - 1]
            image = _draw_surface(axes, plant, shown, extent, row - 1 if row else None, values)
            _draw_path(axes, surface.path, plant.periodic, plant.initial_state, plant.reference_state)
            axes.set(xlim=extent[:2], ylim=extent[2:])
        label = "value" if row == 0 else f"{plant.action_names[row - 1]} [{plant.action_units[row - 1]}]"
        figure.colorbar(image, ax=panels[row], label=label, extend="both" if row == 0 else "neither", pad=0.015)
        panels[row, 0].set_ylabel(names[1])
    for axes, surface in zip(panels[0], surfaces, strict=True):
        axes.set_title("\n".join(style.broken(line, _TITLE_WIDTH) for line in surface.title.splitlines()), color=GREY)
    for axes in panels[-1]:
        axes.set_xlabel(names[0])
        style.label_angle(axes, plant.periodic[0], 4)
    return figure


def _draw_surface(
    axes: Axes,
    plant: OdePlant,
    surface: NDArray[np.floating[Any]],
    extent: Sequence[float],
    action: int | None,
    values: tuple[float, float] | tuple[None, None] = (None, None),
) -> AxesImage:
    """Draw values or, if `action` is an index, values of that action, given over X × Y pixels; shape `[X, Y]`."""
    (low, high), colors = values, "viridis"
    if action is not None:
        low, high = plant.action_low[action], plant.action_high[action]
        colors = "RdBu_r" if low < 0 < high else "cividis"
    place: dict[str, Any] = {"origin": "lower", "aspect": "auto", "interpolation": "nearest", "extent": extent}
    return axes.imshow(surface.T, vmin=low, vmax=high, cmap=colors, **place)


def _draw_path(
    axes: Axes,
    path: NDArray[np.floating[Any]],
    periodic: Sequence[bool],
    start: Sequence[float] | Floats,
    reference: Sequence[float] | Floats,
) -> None:
    line = cut_path(path, [2 * np.pi if around else np.inf for around in periodic[:2]]).T
    axes.plot(*line, color="black", linewidth=2.0)
    axes.plot(*line, color="white", linewidth=0.9)
    draw_ends(axes, start, reference)


def value_range(learned: NDArray[np.floating[Any]], solved: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Return the colour range for learned values, limited to little more than that of dynamic programming."""
    low, high = float(solved.min()), float(solved.max())
    least, most = np.nanpercentile(learned, (1, 99))
    return max(float(least), low - 0.5 * (high - low)), min(float(most), high + 0.25 * (high - low))


def cut_path(path: NDArray[np.floating[Any]], turns: Sequence[float]) -> NDArray[np.floating[Any]]:
    """Insert NaN into a trajectory of shape `[T, 2]` where an angle jumps by more than half a turn.

    `turns` contains the period of each state, which is infinite for a state that is not periodic.
    """
    for axis, turn in enumerate(turns):
        jumps = np.abs(np.diff(path[:, axis])) > turn / 2
        path = np.insert(path, np.flatnonzero(jumps) + 1, np.nan, axis=0)
    return path


def draw_ends(axes: Axes, start: Sequence[float] | Floats, reference: Sequence[float] | Floats) -> None:
    """Mark a start state with a circle and a reference state with a cross, by the first two values of each."""
    ends: dict[str, Any] = {"markeredgecolor": "black", "markerfacecolor": "white", "clip_on": False, "zorder": 5}
    axes.plot(start[0], start[1], marker="o", markersize=5.0, **ends)
    axes.plot(reference[0], reference[1], marker="X", markersize=6.5, **ends)


def _number(value: float) -> str:
    return style.minus(f"{value:.3g}")


_PANEL = (4.3, 3.5)  # width and height [inch]


def solution_figure(solution: Solution) -> Figure:
    """Draw the value surface of fuzzy Q-iteration, and one policy map per action, over the first two states of a plant.

    Units are physical. Any further states are fixed at the grid nodes that are nearest to the reference state. A line
    shows the noise-free greedy episode from the initial state (circle). A cross marks the reference state.

    Raises:
        UserError: The plant has fewer than two states.
    """
    plant, grid = solution.plant, solution.grid
    if len(grid.nodes) < 2:
        raise UserError(f"{plant.name} has {len(grid.nodes)} state; a map needs two")
    count = 1 + len(plant.action_names)
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.7), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    nodes = grid.axes()
    pairs = zip(nodes[2:], plant.reference_state[2:], strict=True)
    here: tuple[Any, ...] = slice(None), slice(None), *(int(np.abs(axis - at).argmin()) for axis, at in pairs)
    surfaces = [solution.value_surface()[here], *np.moveaxis(solution.policy_surface()[here], -1, 0)]
    labels = [f"{name} [{unit}]" for name, unit in zip(plant.action_names, plant.action_units, strict=True)]
    half = grid.spacing[:2] / 2  # a node's colour fills the half spacing around it
    low, high = np.array(grid.low[:2]), np.array(grid.high[:2])
    extent = np.ravel([low - half, [axis[-1] for axis in nodes[:2]] + half], "F").tolist()

    def within(states: Any) -> Floats:
        """Return the first two states of `[T, S]`, with angles shifted by whole turns into the range of the grid."""
        first: Floats = np.atleast_2d(states)[:, :2]
        outside = np.array(plant.periodic[:2]) & ((first < low - 1e-9) | (first > high + 1e-9))
        return np.where(outside, first - 2 * np.pi * np.floor((first - low) / (2 * np.pi)), first)

    path = within(follow(plant, solution.frequency, 1, solution.greedy).states[0])
    ends = within([plant.initial_state, plant.reference_state])
    for place, (axes, surface) in enumerate(zip(panels.flat, surfaces, strict=False)):
        image = _draw_surface(axes, plant, surface, extent, place - 1 if place else None)
        _draw_path(axes, path, plant.periodic, *ends)
        turn = (min(extent[0], low[0]), max(extent[1], high[0])) if plant.periodic[0] else extent[:2]
        axes.set(xlim=turn, ylim=extent[2:])
        style.label_angle(axes, plant.periodic[0], 6)
        axes.set_title(labels[place - 1] if place else "value of the best action")
        figure.colorbar(image, ax=axes, pad=0.02)
    for spare in panels.flat[count:]:
        spare.remove()
    for axes in panels[:, 0]:
        axes.set_ylabel(f"{plant.state_names[1]} [{plant.state_units[1]}]")
    for column in range(columns):
        lowest = panels[(count - 1 - column) // columns, column]
        lowest.set_xlabel(f"{plant.state_names[0]} [{plant.state_units[0]}]")
        lowest.tick_params(labelbottom=True)
    effort = f"{solution.sweeps} {solution.variant} sweeps"
    if solution.variant == "modified":  # the number of sweeps is not comparable
        effort = f"modified policy iteration, the last {solution.sweeps} improvements on these nodes"
    figure.suptitle(
        f"{plant.name} at {solution.frequency:g} Hz: fuzzy Q-iteration, γ = {solution.discount:.4g}, "
        f"{' × '.join(map(str, grid.nodes))} nodes, {len(solution.actions)} actions\n{effort}\n"
        "line: greedy episode without noise, from its start (dot); cross: the reference",
        fontsize="medium",
    )
    return figure
