"""Fuzzy Q-iteration (Buşoniu et al. 2010): the dynamic-programming reference of de Bruin et al. (2018, appendix C).

The value of action j at grid node i is θ[i, j]; between nodes it is interpolated by the weights Φ. With the successor
x′ and reward R of every node and action known from the plant's own noise-free simulation, sweeps of
`θ ← R + γ max_j Φ(x′) θ` contract by γ to the one fixed point. Solutions are kept on disk by the content of all they
depend on. Which rate and grid a score is measured against is decided in `replaybench.baselines.references`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from replaybench import NUMERICS_VERSION
from replaybench.baselines import fuzzy_sweeps
from replaybench.baselines.grid import Float64Array, Grid, Int32Array, plant_grid
from replaybench.baselines.solution import Solution
from replaybench.data.cache import cache_dir
from replaybench.data.errors import UserError, unknown
from replaybench.data.records.record import read_record, write_record
from replaybench.envs.interface.checks import whole_steps
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant

Variant = Literal["synchronous", "asynchronous"]

TOLERANCE: Final = 5e-6
"""‖Δθ‖∞ at which the sweeps stop, as a part of the largest |R|.

1.0e-3 on the pendulum, where 198 sweeps reach it, and 4.5e-5 on magman."""

_KIND: Final = "dynamic programming"
_SIMULATED_AT_ONCE: Final = 200_000


def reference_discount(plant: Plant, frequency: float) -> float:
    """Return γ per sample at the plant's own horizon in seconds: its discount^(its frequency / f)."""
    return float(plant.discount ** (plant.frequency / frequency))


def suboptimality(projection_error: float, tolerance: float, discount: float) -> tuple[float, float]:
    """Return the bounds on ‖Q* − Q̂‖∞ and on the loss of the greedy policy's value (Buşoniu et al. 2010).

    They are `(2ε + γ ε_QI) / (1 − γ)` and `2γ (2ε + γ ε_QI) / (1 − γ)²`.

    Args:
        projection_error: ε, the distance from Q* to the nearest function that the grid can represent.
        tolerance: ε_QI, the last ‖Δθ‖∞.
        discount: γ.
    """
    numerator = 2.0 * projection_error + discount * tolerance
    return numerator / (1.0 - discount), 2.0 * discount * numerator / (1.0 - discount) ** 2


def action_grid(plant: OdePlant) -> Float64Array:
    """Return all combinations of a plant's action levels, normalised float64 `[U, A]`, the last action fastest."""
    levels = [np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(1) for count in plant.action_levels]
    return np.array(list(itertools.product(*levels)))


def solve(
    plant: OdePlant,
    frequency: float = 50.0,
    *,
    grid: Grid | None = None,
    discount: float | None = None,
    variant: Variant = "synchronous",
    tolerance: float = TOLERANCE,
    store: bool = True,
) -> Solution:
    """Solve a plant, or fetch its solution from the cache.

    Args:
        plant: the plant.
        frequency: control rate [Hz].
        grid: the nodes; the plant's own grid if not given.
        discount: γ per sample; that of the plant's own horizon if not given (`reference_discount`).
        variant: "synchronous" sweeps from the values of the last sweep, "asynchronous" ones in place.
        tolerance: the sweeps stop at ‖Δθ‖∞ ≤ `tolerance` max|R|.
        store: put a new solution into the cache.

    Raises:
        UserError: the plant declares no grid, or a setting is out of its range.
    """
    whole_steps(plant.name, plant.episode_seconds, frequency)
    grid = plant_grid(plant) if grid is None else grid
    discount = reference_discount(plant, frequency) if discount is None else discount
    if variant not in get_args(Variant):
        raise unknown("variant of fuzzy Q-iteration", variant, get_args(Variant))
    if not 0.0 < discount < 1.0:
        raise UserError(f"the discount is {discount}; fuzzy Q-iteration needs one between 0 and 1")
    if not 0.0 < tolerance < 1.0:
        raise UserError(f"the tolerance is {tolerance}; give a part of the largest reward, such as {TOLERANCE:g}")
    actions = action_grid(plant)
    depends_on = _depends_on(plant, frequency, grid, discount, variant, tolerance)
    kept = _load(_path(depends_on), (grid.size, len(actions)))
    if kept is None:
        kept = _iterate(plant, frequency, grid, actions, discount, variant, tolerance)
        if store:
            _store(depends_on, kept)
    return Solution(plant, float(frequency), discount, variant, grid, actions, *kept)


def keep(solution: Solution, tolerance: float = TOLERANCE) -> None:
    """Put a solution that was not stored into the cache; `tolerance` is what it was solved to."""
    asked = solution.plant, solution.frequency, solution.grid, solution.discount, solution.variant, tolerance
    _store(_depends_on(*asked), (solution.theta, solution.convergence))


def transitions(
    plant: OdePlant, frequency: float, grid: Grid, actions: Float64Array
) -> tuple[Int32Array, Float64Array, Float64Array]:
    """Simulate one sample from every node under every action; P = N U pairs, the action fastest.

    Returns:
        The successor's cell int32 `[P]`, the weights of its corners float64 `[P, 2^S]`, zero where the episode
        ends there, and the reward float64 `[P]`.
    """
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
    return cell, weight, reward


def _iterate(
    plant: OdePlant,
    frequency: float,
    grid: Grid,
    actions: Float64Array,
    discount: float,
    variant: Variant,
    tolerance: float,
) -> tuple[Float64Array, Float64Array]:
    """Sweep until the values stand still; returns θ `[N, U]` and ‖Δθ‖∞ of every sweep."""
    cell, weight, reward = transitions(plant, frequency, grid, actions)
    theta = np.zeros((grid.size, len(actions)))
    best = np.zeros(grid.size, np.int32)
    start = np.zeros(len(grid.corners) + 1, np.int64)
    table = np.empty((2 * len(grid.corners), weight.shape[1]))
    scale = max(float(np.abs(reward).max()), float(np.finfo(np.float64).tiny))
    # ‖Δθ‖∞ of sweep k is at most γ^(k-1) max|R|; the spare sweeps are for a tolerance at the rounding error.
    longest = math.ceil(math.log(tolerance) / math.log(discount)) + 50
    convergence: list[float] = []
    while len(convergence) < longest and not (convergence and convergence[-1] <= tolerance * scale):
        if variant == "synchronous":
            table = fuzzy_sweeps.contenders(theta, grid.corners, best, start, table)
            convergence.append(fuzzy_sweeps.synchronous(theta, cell, weight, reward, discount, start, table))
        else:
            convergence.append(fuzzy_sweeps.asynchronous(theta, cell, weight, reward, discount, grid.corners, best))
    return theta, np.array(convergence)


def _depends_on(
    plant: OdePlant, frequency: float, grid: Grid, discount: float, variant: str, tolerance: float
) -> dict[str, Any]:
    """Return all that decides a solution: the key of the cache."""
    return {
        "plant": plant.fingerprint(),
        "frequency": float(frequency),
        "discount": discount,
        "grid": dataclasses.asdict(grid),
        "levels": plant.action_levels,
        "variant": variant,
        "tolerance": tolerance,
        "numerics": NUMERICS_VERSION,
    }


def _path(depends_on: Mapping[str, Any]) -> Path:
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return cache_dir() / "dp" / f"{key[:32]}.h5"


def _store(depends_on: Mapping[str, Any], found: tuple[Float64Array, Float64Array]) -> None:
    with contextlib.suppress(OSError, UserError):  # the cache spares time and is never needed
        # Records are written row by row of the first axis: one long row.
        write_record(_path(depends_on), _KIND, depends_on, {"theta": found[0][None], "convergence": found[1]})


def _load(path: Path, shape: tuple[int, int]) -> tuple[Float64Array, Float64Array] | None:
    """Read a kept solution; None where there is none, or what is there is damaged."""
    try:
        _, arrays = read_record(path, _KIND)
        theta, convergence = arrays["theta"], arrays["convergence"]
    except (OSError, UserError, KeyError):
        return None
    return (theta[0], convergence) if theta.shape == (1, *shape) and convergence.ndim == 1 else None
