"""Estimates of the work and memory of a reference; what would take hours is refused beforehand."""

from __future__ import annotations

from typing import Final

from replaybench.baselines.fuzzy_q_iteration import TOLERANCE, reference_discount
from replaybench.baselines.grid import plant_grid
from replaybench.baselines.grid_choice import FACTOR, MOST_PAIRS, Rule, rule_for
from replaybench.baselines.iteration import action_grid, most_sweeps
from replaybench.data.errors import UserError
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant

REPETITIONS: Final = 50
"""Repetitions over which appendix C averages the best of `reference_episodes` episodes."""

MOST_SWEPT: Final = 3e10
"""Limit on pairs of node and action on the declared grid, times sweeps: some minutes."""
MOST_SUBSTEPS: Final = 1e10
"""Limit on Runge-Kutta steps of one sample from all pairs: some minutes."""
MOST_STEPS: Final = 3e9
"""Limit on samples of all episodes under one controller: some ten minutes."""
_PAIR_BYTES: Final = 40
"""Memory of a pair, without the weights of its successor's corners."""


def check_effort(plant: Plant, frequency: float, noise: float = 0.0) -> None:
    """Raise `UserError` for a reference at `frequency` [Hz] and `noise` that would take hours."""
    where = f"the reference of {plant.name} at {frequency:g} Hz would take hours:"
    repetitions = 1
    if isinstance(plant, OdePlant) and plant.grid_nodes:
        pairs = plant_grid(plant).size * len(action_grid(plant))
        discount = reference_discount(plant, frequency)
        sweeps = most_sweeps(discount, TOLERANCE) if 0.0 < discount < 1.0 else 0  # else refused where it is solved
        if pairs * sweeps > MOST_SWEPT:
            raise UserError(
                f"{where} up to {sweeps:,} sweeps (γ = {discount:.7g}) over {pairs:,} pairs of node and action; "
                "lower the frequency, the plant's discount or its grid_nodes"
            )
        substeps = rk4.substeps(plant, 1.0 / frequency)
        if pairs * substeps > MOST_SUBSTEPS:
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
"""Seconds of a sweep over a pair of node and action on one core."""
_SUBSTEP: Final = 2e-8
_GREEDY: Final = 3e-7
_SWEPT: Final = 0.3
"""Usual share of `most_sweeps` until values converge."""


def reference_seconds(plant: Plant, frequency: float, noise: float, rule: Rule | None, step: float) -> float:
    """Return roughly the seconds of a reference on one core; `step` is those of a step of a plant without equations."""
    steps = plant.steps_per_episode(frequency) * plant.reference_episodes
    if not isinstance(plant, OdePlant):
        return 2 * steps * step  # random control and doing nothing
    substeps = rk4.substeps(plant, 1.0 / frequency)
    step = substeps * _SUBSTEP
    if not plant.grid_nodes:
        return steps * step * (3 if noise else 1)
    pairs: float = plant_grid(plant).size * len(action_grid(plant))
    if rule_for(plant, rule) == "converged":  # after two refinements, most often
        finer = FACTOR ** len(plant.grid_nodes)
        pairs = sum(min(pairs * finer**n, MOST_PAIRS) for n in range(3))
    sweeps = _SWEPT * most_sweeps(reference_discount(plant, frequency), TOLERANCE)
    episodes = steps * (step + _GREEDY) * (REPETITIONS + 6 if noise else 1)
    return pairs * (step + sweeps * _PAIR_SWEEP) + episodes


def reference_bytes(plant: Plant, rule: Rule | None) -> int:
    """Return the most bytes that a reference may need at once."""
    if not isinstance(plant, OdePlant) or not plant.grid_nodes:
        return 0
    pairs = plant_grid(plant).size * len(action_grid(plant))
    if rule_for(plant, rule) == "converged":
        pairs = max(pairs, MOST_PAIRS)
    return pairs * (_PAIR_BYTES + (8 << len(plant.grid_nodes)))
