"""Which grid a plant's dynamic-programming reference is solved on, at any control rate.

Plants declare their grids for 50 Hz. At other rates a sample moves the state by another number of cells, so the grid
is refined until that no longer matters, or costs too much.
"""

from __future__ import annotations

from typing import Final

from replaybench.baselines.controllers import GreedyController, play
from replaybench.baselines.fuzzy import solve
from replaybench.baselines.grid import plant_grid
from replaybench.baselines.solution import Solution
from replaybench.envs import rk4
from replaybench.envs.ode import OdePlant
from replaybench.envs.population import PopulationEnv

OWN_GRID_AT: Final = 50.0
"""The control rate for which plants declare their grids [Hz]."""
FACTOR: Final = 1.4
"""How many times the nodes on each axis a refined grid has."""
CLOSE: Final = 0.02
"""Relative change of the greedy return below which a grid is fine enough."""
MOST_WORK: Final = 1_500_000_000
"""Updates of single values that a refined grid may take, about fifteen seconds."""

_UPDATES_PER_SUBSTEP: Final = 10  # what simulating one Runge-Kutta step costs beside updating a value


def reference_solution(plant: OdePlant, frequency: float) -> Solution:
    """Solve a plant as its reference does.

    At 50 Hz that is on the plant's own grid. At other rates it is refined by 1.4 per axis, with a node on the
    reference state, until the noise-free greedy return changes by less than 2 %, or the next grid would take more
    than `MOST_WORK`.

    Args:
        plant: the plant.
        frequency: control rate [Hz].

    Raises:
        UserError: the plant declares no grid.
    """
    grid = plant_grid(plant)
    solution = solve(plant, frequency, grid=grid)
    simulation = _UPDATES_PER_SUBSTEP * rk4.substeps(plant, 1.0 / frequency)
    while frequency != OWN_GRID_AT:
        grid = grid.refined(FACTOR, plant.reference_state)
        if grid.size * len(solution.actions) * (solution.sweeps + simulation) > MOST_WORK:
            break
        coarse, solution = _reward(solution), solve(plant, frequency, grid=grid)
        if abs(_reward(solution) - coarse) < CLOSE * abs(coarse):
            break
    return solution


def _reward(solution: Solution) -> float:
    """Return the mean reward of one noise-free greedy episode."""
    env = PopulationEnv(solution.plant, frequency=solution.frequency)
    return float(play(GreedyController(solution), env)[0])
