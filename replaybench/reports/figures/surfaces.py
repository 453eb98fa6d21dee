"""Policies and values over the state space, of learners and of dynamic programming.

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

from replaybench.baselines.fuzzy_q_iteration import Solution
from replaybench.data.policy_file import read_policy
from replaybench.data.run_folder import RunFolder
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.experiments.cell import make_agent
from replaybench.experiments.dataset import rule_of
from replaybench.experiments.snapshots import follow, has_surfaces, median_seed, pixel_states, solved_surfaces
from replaybench.experiments.study import Cell
from replaybench.reports.figures.style import (
    GREY,
    Series,
    all_series,
    broken,
    condition,
    label_angle,
    minus,
    new_panels,
)
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_STRATEGIES: Final = 3
_PIXELS: Final = 161
_MOST_ACTIONS: Final = 4
_TITLE_WIDTH: Final = 34
"""Characters of a line above a panel."""


class Surface(NamedTuple):
    """A controller's value, policy and trajectory over the state space; X and Y pixels along the two states.

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
    """Return the colour range of values: that of all values, limited to slightly more than dynamic programming's."""
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


_PANEL = (4.3, 3.5)  # width and height [inch]


def solution_figure(solution: Solution) -> Figure:
    """Draw the value surface and one policy map per action over the first two states, in physical units.

    Further states are at the nodes nearest to the reference. The line is the noise-free greedy episode from the initial
    state (dot); the cross is the reference.

    Raises:
        UserError: the plant has fewer than two states.
    """
    from matplotlib.figure import Figure

    plant, grid = solution.plant, solution.grid
    if len(grid.nodes) < 2:
        raise UserError(f"{plant.name} has {len(grid.nodes)} state; a map needs two")
    panels = 1 + len(plant.action_names)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    path = _greedy_path(solution)
    here = _slice(solution)
    value, policy = solution.value_surface()[here], solution.policy_surface()[here]
    _map(figure, axes.flat[0], solution, path, value, "value of the best action", cmap="viridis")
    for a, name in enumerate(plant.action_names):
        low, high = plant.action_low[a], plant.action_high[a]
        colors = "RdBu_r" if low < 0.0 < high else "cividis"
        label = f"{name} [{plant.action_units[a]}]"
        _map(figure, axes.flat[1 + a], solution, path, policy[..., a], label, cmap=colors, vmin=low, vmax=high)
    for spare in axes.flat[panels:]:
        spare.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel(f"{plant.state_names[1]} [{plant.state_units[1]}]")
    for column in range(columns):
        lowest = axes[(panels - 1 - column) // columns, column]
        lowest.set_xlabel(f"{plant.state_names[0]} [{plant.state_units[0]}]")
        lowest.tick_params(labelbottom=True)
    nodes = " × ".join(map(str, grid.nodes))
    figure.suptitle(
        f"{plant.name} at {solution.frequency:g} Hz: fuzzy Q-iteration, γ = {solution.discount:.4g}, "
        f"{nodes} nodes, {len(solution.actions)} actions\n{_effort(solution)}\n"
        "line: greedy episode without noise, from its start (dot); cross: the reference",
        fontsize="medium",
    )
    return figure


def _effort(solution: Solution) -> str:
    if solution.variant == "modified":  # far fewer than by sweeps alone, since policies are evaluated in between
        return f"modified policy iteration, the last {solution.sweeps} improvements on these nodes"
    return f"{solution.sweeps} {solution.variant} sweeps"


def _map(
    figure: Figure, axes: Axes, solution: Solution, path: NDArray[np.float64], surface: Any, label: str, **colors: Any
) -> None:
    """Draw one surface `[n₁, n₂]` with its colour bar, the greedy path, and the two ends of the task."""
    plant, grid = solution.plant, solution.grid
    # A node's colour fills the half spacing around it.
    half = grid.spacing[:2] / 2
    first, last = np.array(grid.low[:2]), np.array([axis[-1] for axis in grid.axes()[:2]])
    (left, bottom), (right, top) = first - half, last + half
    image = axes.imshow(
        surface.T,
        extent=(left, right, bottom, top),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        **colors,
    )
    axes.plot(*path.T, color="black", linewidth=2.2)
    axes.plot(*path.T, color="white", linewidth=1.0)
    ends: dict[str, Any] = {"markeredgecolor": "black", "markerfacecolor": "white", "clip_on": False, "zorder": 5}
    for state, marker, size in ((plant.initial_state, "o", 6), (plant.reference_state, "X", 8)):
        axes.plot(*_shown(solution, np.array([state])).T, marker=marker, markersize=size, **ends)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    if plant.periodic[0]:
        low, high = grid.low[0], grid.high[0]
        quarters = np.arange(np.ceil(low / (np.pi / 2) - 1e-3), high / (np.pi / 2) + 1e-3)
        axes.set_xticks(quarters * np.pi / 2, [_in_pi(int(quarter)) for quarter in quarters])
        axes.set_xlim(min(left, low), max(right, high))
    axes.set_title(label)
    figure.colorbar(image, ax=axes, pad=0.02)


def _in_pi(quarters: int) -> str:
    """Write a multiple of π/2."""
    factor, half = (quarters // 2, "") if quarters % 2 == 0 else (quarters, "/2")
    return f"{factor}π{half}".replace("-", "−").replace("0π", "0").replace("1π", "π")


def _shown(solution: Solution, states: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first two of physical states `[T, S]`, `[T, 2]`, angles within the turn that the grid covers."""
    low, high = np.array(solution.grid.low[:2]), np.array(solution.grid.high[:2])
    first = states[:, :2]
    outside = np.array(solution.plant.periodic[:2]) & ((first < low - 1e-9) | (first > high + 1e-9))
    return np.where(outside, first - 2 * np.pi * np.floor((first - low) / (2 * np.pi)), first)


def _slice(solution: Solution) -> tuple[Any, ...]:
    """Return the index of the map: the first two axes whole, the others at the node nearest to the reference."""
    axes = solution.grid.axes()
    pairs = zip(axes[2:], solution.plant.reference_state[2:], strict=True)
    return slice(None), slice(None), *(int(np.abs(axis - at).argmin()) for axis, at in pairs)


def _greedy_path(solution: Solution) -> NDArray[np.float64]:
    """Return the first two physical states of the greedy episode `[T, 2]`, with NaN where an angle wraps."""
    plant = solution.plant
    env = PopulationEnv(plant, frequency=solution.frequency)
    observation, infos = env.reset()
    states = [infos["true_state"][0]]
    stopped = False
    while not stopped:
        observation, _, terminated, truncated, infos = env.step(solution.greedy(observation))
        states.append(infos["true_state"][0])
        stopped = bool(terminated[0] or truncated[0])
    path = _shown(solution, plant.denormalise_state(np.array(states)))
    wraps = (np.abs(np.diff(path, axis=0)) > np.pi) & np.array(plant.periodic)[:2]
    gap = np.flatnonzero(wraps.any(axis=1)) + 1
    return np.insert(path, gap, np.nan, axis=0)
