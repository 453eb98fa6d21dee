"""Pictures of a dynamic-programming solution: what every state is worth, and what to do there.

Figures are plain matplotlib objects without a window or any global state; matplotlib is imported when one is drawn.
"""

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

    Further states, if there are any, stand at the nodes nearest to the reference. The line is the noise-free greedy
    episode from the initial state (dot); the cross is the reference.

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
    """Say how the values came to rest: what counts as a sweep depends on the variant."""
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
    axes.plot(*plant.initial_state[:2], marker="o", markersize=6, **ends)
    axes.plot(*plant.reference_state[:2], marker="X", markersize=8, **ends)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    if plant.periodic[0]:
        axes.set_xticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]), ["−π", "−π/2", "0", "π/2", "π"])
        axes.set_xlim(min(left, -np.pi), max(right, np.pi))
    axes.set_title(label)
    figure.colorbar(image, ax=axes, pad=0.02)


def _slice(solution: Solution) -> tuple[Any, ...]:
    """Return the index of the map through the reference: the first two axes whole, the others at one node."""
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
    path = plant.denormalise_state(np.array(states))[:, :2]
    wraps = (np.abs(np.diff(path, axis=0)) > np.pi) & np.array(plant.periodic)[:2]
    gap = np.flatnonzero(wraps.any(axis=1)) + 1
    return np.insert(path, gap, np.nan, axis=0)
