"""The iterations of fuzzy Q-iteration.

Two are the sweeps of Buşoniu et al. (2010). The third, by which references are solved, is modified policy iteration
(Puterman and Shin 1978), from coarse to fine: it starts from the solution on half the nodes per axis, and after each
synchronous sweep it iterates only the values that can be best somewhere. All stop by ‖Δθ‖∞ of a sweep over all values.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, Literal, NamedTuple

import numpy as np

from replaybench.baselines import fuzzy_sweeps
from replaybench.baselines.fuzzy_sweeps import Int64Array
from replaybench.baselines.grid import Float64Array, Grid, Int32Array
from replaybench.data.errors import UserError
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant

Variant = Literal["modified", "synchronous", "asynchronous"]

_SIMULATED_AT_ONCE: Final = 200_000
_FEWEST_NODES: Final = 20  # on each axis of a grid that a finer one starts from
_MOST_EVALUATIONS: Final = 10  # sweeps over the best actions between two sweeps over all
_RESTED: Final = 0.05  # part of the last ‖Δθ‖∞ at which they end early


def action_grid(plant: OdePlant) -> Float64Array:
    """Return all combinations of a plant's action levels, normalised float64 `[U, A]`, the last action fastest."""
    levels = [np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(1) for count in plant.action_levels]
    return np.array(list(itertools.product(*levels)))


class Transitions(NamedTuple):
    """One sample from each of P pairs of a node and an action."""

    cell: Int32Array  # of the successor `[P]`
    weight: Float64Array  # of the corners of that cell `[P, 2^S]`, zero where the episode ends there
    reward: Float64Array  # `[P]`


def transitions(plant: OdePlant, frequency: float, grid: Grid, actions: Float64Array) -> Transitions:
    """Simulate one sample from every node under every action, `P = N U` pairs, the action fastest."""
    points, inputs = grid.points(), plant.denormalise_action(actions)
    pairs = len(points) * len(inputs)
    cell, reward = np.empty(pairs, np.int32), np.empty(pairs)
    weight = np.empty((pairs, 1 << len(grid.nodes)))
    nodes_at_once = max(1, _SIMULATED_AT_ONCE // len(inputs))
    for first in range(0, len(points), nodes_at_once):
        block = points[first : first + nodes_at_once, None]
        where = slice(first * len(inputs), (first + len(block)) * len(inputs))
        after, gained, terminated = rk4.simulate(plant, block, inputs, 1.0 / frequency)
        cell[where], weight[where] = grid.memberships(after.reshape(-1, points.shape[1]))
        weight[where][terminated.reshape(-1)] = 0.0
        reward[where] = gained.reshape(-1)
        if not (np.isfinite(after).all() and np.isfinite(gained).all()):
            raise UserError(
                f"{plant.name} goes to infinity within one sample at {frequency:g} Hz from its grid; "
                "narrow grid_low and grid_high, or shorten max_substep"
            )
    return Transitions(cell, weight, reward)


def most_sweeps(discount: float, tolerance: float) -> int:
    """Return the sweeps after which ‖Δθ‖∞ ≤ γ^(k-1) max|R| is at most `tolerance` max|R|, with some for rounding."""
    return math.ceil(math.log(tolerance) / math.log(discount)) + 50


def iterate(
    plant: OdePlant, frequency: float, grid: Grid, actions: Float64Array, discount: float, variant: Variant,
    tolerance: float,
) -> tuple[Float64Array, Float64Array]:  # fmt: skip
    """Iterate until the values converge; return θ `[N, U]` and ‖Δθ‖∞ of every sweep over all values of this grid."""
    theta = np.zeros((grid.size, len(actions)))
    coarse = grid.refined(0.5, plant.reference_state)
    if variant == "modified" and min(coarse.nodes) >= _FEWEST_NODES:
        half, _ = iterate(plant, frequency, coarse, actions, discount, variant, tolerance)
        theta = coarse.interpolate(half, grid.points())
    after = transitions(plant, frequency, grid, actions)
    scale = max(float(np.abs(after.reward).max()), float(np.finfo(np.float64).tiny))
    longest = most_sweeps(discount, tolerance)
    best, start = np.zeros(grid.size, np.int32), np.zeros(len(grid.corners) + 1, np.int64)
    choice, table = np.empty(2 * len(grid.corners), np.int32), np.empty((2 * len(grid.corners), after.weight.shape[1]))
    count = np.zeros(theta.shape if variant == "modified" else (0, 0), np.int32)
    convergence: list[float] = []
    for sweep in range(2 * longest):
        if variant == "asynchronous":
            change = fuzzy_sweeps.asynchronous(theta, *after, discount, grid.corners, best)
        else:
            choice, table = fuzzy_sweeps.contenders(theta, grid.corners, best, start, choice, table)
            change = fuzzy_sweeps.synchronous(theta, *after, discount, start, table)
        convergence.append(change)
        if change <= tolerance * scale or (variant != "modified" and sweep + 1 == longest):
            break
        if variant == "modified" and sweep < longest:  # beyond, plain sweeps contract from wherever they are
            rest = max(_RESTED * change, 0.3 * tolerance * scale)
            _evaluate(after, discount, start, table, rest, *fuzzy_sweeps.places(grid.corners, start, choice, count))
            fuzzy_sweeps.synchronous(theta, *after, discount, start, table)
    return theta, np.array(convergence)


def _evaluate(
    after: Transitions, discount: float, start: Int64Array, table: Float64Array, rest: float, pairs: Int64Array,
    first: Int64Array, where: Int32Array,
) -> None:  # fmt: skip
    """Iterate the values in the table by sweeps in both directions, until they change by at most `rest`."""
    own = after.cell[pairs], after.weight[pairs], after.reward[pairs]
    for sweep in range(_MOST_EVALUATIONS):
        if fuzzy_sweeps.evaluate(*own, discount, start, table, first, where, sweep % 2 == 1) <= rest:
            return
