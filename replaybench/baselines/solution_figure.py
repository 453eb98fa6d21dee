"""Figures of a dynamic-programming solution: its value surface and policy maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replaybench.baselines.reference_controllers import GreedyController
from replaybench.baselines.solution import Solution
from replaybench.data.errors import UserError
from replaybench.envs.population import PopulationEnv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    controller, states = GreedyController(solution), [infos["true_state"][0]]
    stopped = False
    while not stopped:
        observation, _, terminated, truncated, infos = env.step(controller.act(observation))
        states.append(infos["true_state"][0])
        stopped = bool(terminated[0] or truncated[0])
    path = _shown(solution, plant.denormalise_state(np.array(states)))
    wraps = (np.abs(np.diff(path, axis=0)) > np.pi) & np.array(plant.periodic)[:2]
    gap = np.flatnonzero(wraps.any(axis=1)) + 1
    return np.insert(path, gap, np.nan, axis=0)
