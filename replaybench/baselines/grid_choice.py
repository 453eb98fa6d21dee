"""The grid of a plant's dynamic-programming reference, by one rule at every control rate.

`"paper"` takes the declared grid, which follows de Bruin et al. (2018). How fine a grid must be depends on the rate, so
`"converged"` refines it until that no longer matters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from replaybench.baselines.fuzzy_q_iteration import TOLERANCE, keep, solve
from replaybench.baselines.grid import Grid, grid_facts, plant_grid
from replaybench.baselines.reference_controllers import Controller, GreedyController, RandomController, run_episode
from replaybench.baselines.solution import Solution
from replaybench.data.cache import cache_dir
from replaybench.data.errors import UserError, unknown
from replaybench.data.numerics import NUMERICS_VERSION
from replaybench.data.records.record import read_header, write_record
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv

Rule = Literal["converged", "paper"]

FACTOR: Final = 1.4
"""Growth of the nodes on each axis by refinement."""
CLOSE: Final = 0.005
"""Change of the greedy return, in parts of its distance from random control, below which a grid is fine enough."""
MOST_PAIRS: Final = 10_000_000
"""Limit on pairs of node and action on a refined grid: some 600 MB."""
MOST_SUBSTEPS: Final = 200_000_000
"""Limit on Runge-Kutta steps of one sample from all of them, about ten seconds."""
SMALLEST_SPAN: Final = 0.2
"""Least distance of a reference from random control, in parts of |r_random|."""

_KIND: Final = "refinement"
_SEED: Final = 2018


@dataclass(frozen=True, eq=False)
class Refinement:
    """The solution of a reference."""

    solution: Solution
    rule: Rule  # that chose its grid
    change: float  # of the greedy return by the last refinement, in parts of its distance from random control, or NaN


def rule_for(plant: OdePlant, asked: Rule | None = None) -> Rule:
    """Return the `asked` rule, else the plant's own; raise `UserError` for an unknown one."""
    if asked is not None and asked not in get_args(Rule):
        raise unknown("reference", asked, get_args(Rule))
    return asked or ("converged" if plant.refine_grid else "paper")


def reference_solution(plant: OdePlant, frequency: float, rule: Rule | None = None) -> Refinement:
    """Solve a plant at a control rate [Hz] as its reference does.

    `"converged"` refines the grid by `FACTOR` per axis, with a node on the reference state, until the noise-free greedy
    return changes by less than `CLOSE`, or `MOST_PAIRS` or `MOST_SUBSTEPS` would be exceeded, and keeps the best
    solution.

    Raises:
        UserError: the plant declares no grid, or the rule is unknown.
    """
    rule, grid = rule_for(plant, rule), plant_grid(plant)
    if rule == "paper":
        return Refinement(solve(plant, frequency), rule, math.nan)
    depends_on = [plant.fingerprint(), grid_facts(plant), float(frequency), NUMERICS_VERSION, *refinement_key(plant)]
    key = hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()
    path = cache_dir() / "dp" / f"refined-{key[:32]}.h5"
    if (kept := _load(path)) is not None:
        nodes, change = kept
        return Refinement(solve(plant, frequency, grid=dataclasses.replace(grid, nodes=nodes)), rule, change)
    found = _refine(plant, frequency, grid)
    keep(found.solution)
    with contextlib.suppress(OSError, UserError):  # the cache is optional
        write_record(path, _KIND, {"nodes": found.solution.grid.nodes, "change": found.change}, {})
    return found


def _load(path: Path) -> tuple[tuple[int, ...], float] | None:
    """Read nodes and change of a cached refinement; None if there is none."""
    with contextlib.suppress(OSError, UserError, KeyError, TypeError, ValueError):  # absent, or damaged
        facts = read_header(path, _KIND).facts
        return tuple(facts["nodes"]), float(facts["change"])
    return None


def refinement_key(plant: Plant) -> list[float]:
    """Return the settings of refinement, for keys of caches."""
    return [TOLERANCE, FACTOR, CLOSE, MOST_PAIRS, MOST_SUBSTEPS, SMALLEST_SPAN, plant.reference_episodes]


def apart(reward: float, random: float) -> bool:
    """Return whether a reward is far enough above that of random control to be a reference."""
    return reward > random and reward - random >= SMALLEST_SPAN * abs(random)


def _refine(plant: OdePlant, frequency: float, grid: Grid) -> Refinement:
    members = range(plant.reference_episodes)
    random = _reward(RandomController(plant, members, _SEED), plant, frequency, len(members))
    best, highest, last, change = None, -math.inf, math.nan, math.nan
    while True:
        solution = solve(plant, frequency, grid=grid, store=False)
        reward = _reward(GreedyController(solution), plant, frequency)
        if best is None or reward > highest:
            best, highest = solution, reward
        # Two grids on which nothing is achieved give the same return, too: that is no convergence.
        if apart(reward, random):
            change, last = abs(reward - last) / (highest - random), reward
        grid = grid.refined(FACTOR, plant.reference_state)
        pairs = grid.size * len(solution.actions)
        too_large = pairs > MOST_PAIRS or pairs * rk4.substeps(plant, 1.0 / frequency) > MOST_SUBSTEPS
        if change < CLOSE or too_large:
            return Refinement(best, "converged", change)


def _reward(controller: Controller, plant: OdePlant, frequency: float, members: int = 1) -> float:
    """Return the mean reward of one noise-free episode of each member."""
    env = PopulationEnv(plant, members, frequency=frequency, seed=_SEED, role="evaluation")
    return float(run_episode(controller, env).mean())
