"""The choice of the grid for dynamic programming, and estimates of the time and memory of scores.

Rule `paper` uses the declared grid, which follows de Bruin et al. (2018). How fine a grid must be depends on the
control rate. Therefore rule `converged` refines the grid until the return of greedy control no longer changes.
"""

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from replaybench.baselines import fuzzy_q_iteration
from replaybench.baselines.controllers import Controller, RandomController, run_episode
from replaybench.baselines.fuzzy_q_iteration import TOLERANCE, Solution, action_grid, most_sweeps, reference_discount
from replaybench.baselines.grid import Grid, grid_facts, plant_grid
from replaybench.data.record import read_header
from replaybench.envs.interface.channel_of_plant import check_channel
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.version import NUMERICS_VERSION

Rule = Literal["converged", "paper"]

FACTOR: Final = 1.4
"""Factor on the number of nodes of each axis in a refinement."""
CLOSE: Final = 0.005
"""The grid is fine enough if a refinement changes the return r by less than this fraction of max r − r_random."""
MOST_PAIRS: Final = 10_000_000
"""Largest number of pairs of node and action on a refined grid. So many pairs take about 600 MB of memory."""
MOST_SUBSTEPS: Final = 200_000_000
"""Limit on the Runge-Kutta steps for one control period of all pairs of node and action: about ten seconds."""
SMALLEST_SPAN: Final = 0.2
"""Smallest difference between the rewards r_dp of dynamic programming and r_random of random control that defines a
normalised score, relative to |r_random|."""

_KIND: Final = "refinement"
_SEED: Final = 2018


@dataclass(frozen=True, eq=False)
class Refinement:
    """The solution of dynamic programming that defines the normalised score 1, and the choice of its grid.

    Attributes:
        solution: The solution.
        rule: Rule that chose the grid, "converged" or "paper".
        change: Change of the return of greedy control by the last refinement, as a fraction of the best return minus
            that of random control. NaN if no two grids gave returns that are `apart` from random control.
    """

    solution: Solution
    rule: Rule
    change: float


def rule_for(plant: OdePlant, asked: Rule | None = None) -> Rule:
    """Return the rule that chooses the grid of a plant: `asked`, or the plant's own rule if `asked` is None."""
    if asked is not None and asked not in get_args(Rule):
        raise unknown("reference", asked, get_args(Rule))
    return asked or ("converged" if plant.refine_grid else "paper")


def reference_solution(plant: OdePlant, frequency: float, rule: Rule | None = None) -> Refinement:
    """Compute a plant's action values at a control rate in Hz, on the grid that a rule chooses.

    Rule `converged` refines the grid by `FACTOR` per axis, with a node on the reference state. It stops when the greedy
    return without noise changes by less than `CLOSE`, or before the grid exceeds `MOST_PAIRS` or `MOST_SUBSTEPS`. The
    solution with the highest return is the result.
    """
    rule, grid, plant = rule_for(plant, rule), plant_grid(plant), plant.nominal()
    if rule == "paper":
        return Refinement(fuzzy_q_iteration.solve(plant, frequency), rule, math.nan)
    depends_on = [plant.fingerprint(), grid_facts(plant), float(frequency), NUMERICS_VERSION, *refinement_key(plant)]
    path = fuzzy_q_iteration.cached_at("dp/refined-", depends_on)
    if (kept := _load(path)) is not None:
        nodes, change = kept
        grid = dataclasses.replace(grid, nodes=nodes)
        return Refinement(fuzzy_q_iteration.solve(plant, frequency, grid=grid), rule, change)
    refined = _refine(plant, frequency, grid)
    fuzzy_q_iteration.keep(refined.solution)
    fuzzy_q_iteration.write_cached(path, _KIND, {"nodes": refined.solution.grid.nodes, "change": refined.change})
    return refined


def _load(path: Path) -> tuple[tuple[int, ...], float] | None:
    """Read the nodes and the change of a cached refinement, or return None if the file is missing or damaged."""
    with contextlib.suppress(OSError, UserError, KeyError, TypeError, ValueError):  # absent, or damaged
        facts = read_header(path, _KIND).facts
        return tuple(facts["nodes"]), float(facts["change"])
    return None


def refinement_key(plant: Plant) -> list[float]:
    """Return the settings on which the refinement of a grid depends. Cached results are identified by these."""
    return [TOLERANCE, FACTOR, CLOSE, MOST_PAIRS, MOST_SUBSTEPS, SMALLEST_SPAN, plant.reference_episodes]


def apart(reward: float, random: float) -> bool:
    """Return whether a reward exceeds that of random control by at least `SMALLEST_SPAN · |random|`."""
    return reward > random and reward - random >= SMALLEST_SPAN * abs(random)


def _refine(plant: OdePlant, frequency: float, grid: Grid) -> Refinement:
    members = range(plant.reference_episodes)
    random = _reward(RandomController(plant, members, _SEED).act, plant, frequency, len(members))
    count = len(members) if plant.random_episodes else 1
    best, highest, last, change = None, -math.inf, math.nan, math.nan
    while True:
        solution = fuzzy_q_iteration.solve(plant, frequency, grid=grid, store=False)
        reward = _reward(solution.greedy, plant, frequency, count)
        if best is None or reward > highest:
            best, highest = solution, reward
        # Equal returns of two grids without any success are no convergence.
        if apart(reward, random):
            change, last = abs(reward - last) / (highest - random), reward
        grid = grid.refined(FACTOR, plant.reference_state)
        pairs = grid.size * len(solution.actions)
        too_large = pairs > MOST_PAIRS or pairs * rk4.substeps(plant, 1.0 / frequency) > MOST_SUBSTEPS
        if change < CLOSE or too_large:
            return Refinement(best, "converged", change)


def _reward(controller: Controller, plant: OdePlant, frequency: float, members: int) -> float:
    """Return the mean score of `members` noise-free episodes."""
    env = PopulationEnv(plant, members, frequency=frequency, seed=_SEED, role="evaluation")
    return float(run_episode(controller, env).mean())


REPETITIONS: Final = 50
"""Number of groups of episodes under noise, whose best scores are averaged (de Bruin et al., 2018, appendix C)."""

MOST_SWEPT: Final = 3e10
"""Limit on the number of sweeps times pairs of node and action on the declared grid: some minutes of computing."""
LARGEST_EFFORT: Final = 1e10
"""Limit on the Runge-Kutta steps for one control period of all pairs of node and action: some minutes."""
MOST_STEPS: Final = 3e9
"""Limit on the control steps of all episodes under one controller: about ten minutes of computing."""
_PAIR_BYTES: Final = 40
"""Memory of a pair of node and action in bytes, without the interpolation weights of its next state."""


def check_effort(plant: Plant, frequency: float, noise: float = 0.0) -> None:
    """Raise `UserError` if the scores of dynamic programming and random control would take hours of computing.

    Settings of the plant's channel that do not fit the plant are refused, too.
    """
    periods = plant.steps_per_episode(frequency)
    check_channel(plant, periods, plant.episode_seconds / periods)
    where = f"the reference of {plant.name} at {frequency:g} Hz would take hours:"
    repetitions = 1
    if isinstance(plant, OdePlant) and plant.grid_nodes:
        pairs = plant_grid(plant).size * len(action_grid(plant))
        discount = reference_discount(plant, frequency)
        sweeps = most_sweeps(discount, TOLERANCE) if 0.0 < discount < 1.0 else 0  # `solve` refuses other discounts
        if pairs * sweeps > MOST_SWEPT:
            raise UserError(
                f"{where} up to {sweeps:,} sweeps (γ = {discount:.7g}) over {pairs:,} pairs of node and action; "
                "lower the frequency, the plant's discount or its grid_nodes"
            )
        substeps = rk4.substeps(plant, 1.0 / frequency)
        if pairs * substeps > LARGEST_EFFORT:
            raise UserError(
                f"{where} {substeps:,} Runge-Kutta steps in a sample from each of {pairs:,} pairs of node and action; "
                "raise the frequency or the plant's max_substep, or lower its grid_nodes"
            )
        repetitions = REPETITIONS if noise else 1
    steps = plant.steps_per_episode(frequency) * plant.reference_episodes * repetitions
    if steps > MOST_STEPS:
        raise UserError(
            f"{where} {plant.reference_episodes * repetitions:,} episodes of {plant.steps_per_episode(frequency):,} "
            "samples; lower the frequency or the plant's reference_episodes"
        )


_PAIR_SWEEP: Final = 2e-9
"""Time in seconds that a sweep takes for each pair of node and action on one core."""
_SUBSTEP: Final = 2e-8
_GREEDY: Final = 3e-7
_SWEPT: Final = 0.3
"""Usual number of sweeps until values converge, as a fraction of `most_sweeps`."""


def reference_seconds(plant: Plant, frequency: float, noise: float, rule: Rule | None, step: float) -> float:
    """Estimate the seconds that the scores of dynamic programming and random control take on one core.

    `step` is the time of one step of a plant without equations, in seconds.
    """
    steps = plant.steps_per_episode(frequency) * plant.reference_episodes
    if not isinstance(plant, OdePlant):
        return 2 * steps * step  # random and zero control
    substeps = rk4.substeps(plant, 1.0 / frequency)
    step = substeps * _SUBSTEP
    if not plant.grid_nodes:
        return steps * step * (3 if noise else 1)
    pairs: float = plant_grid(plant).size * len(action_grid(plant))
    if rule_for(plant, rule) == "converged":  # usually after two refinements
        finer = FACTOR ** len(plant.grid_nodes)
        pairs = sum(min(pairs * finer**n, MOST_PAIRS) for n in range(3))
    sweeps = _SWEPT * most_sweeps(reference_discount(plant, frequency), TOLERANCE)
    episodes = steps * (step + _GREEDY) * (REPETITIONS + 6 if noise else 1)
    return pairs * (step + sweeps * _PAIR_SWEEP) + episodes


def reference_bytes(plant: Plant, rule: Rule | None) -> int:
    """Return the largest memory in bytes that the score of dynamic programming may need."""
    if not isinstance(plant, OdePlant) or not plant.grid_nodes:
        return 0
    pairs = plant_grid(plant).size * len(action_grid(plant))
    if rule_for(plant, rule) == "converged":
        pairs = max(pairs, MOST_PAIRS)
    return pairs * (_PAIR_BYTES + (8 << len(plant.grid_nodes)))
