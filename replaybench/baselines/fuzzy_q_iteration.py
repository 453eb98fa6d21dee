"""Fuzzy Q-iteration (Buşoniu et al. 2010): the dynamic-programming reference of de Bruin et al. (2018, appendix C).

The value of action j at grid node i is θ[i, j]; between nodes it is interpolated by the weights Φ. With the successor
x′ and reward R of every node and action from the plant's noise-free simulation, sweeps of `θ ← R + γ max_j Φ(x′) θ`
contract by γ to the fixed point. Solutions are cached on disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from replaybench.baselines.grid import Float64Array, Grid, plant_grid
from replaybench.baselines.iteration import Variant, action_grid, iterate
from replaybench.baselines.solution import Solution
from replaybench.data.cache import cache_dir
from replaybench.data.errors import UserError, unknown
from replaybench.data.numerics import NUMERICS_VERSION
from replaybench.data.records.record import read_record, write_record
from replaybench.envs.interface.checks import whole_steps
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant, with_equations

TOLERANCE: Final = 5e-6
"""‖Δθ‖∞ at which the sweeps stop, as a part of the largest |R|."""

_KIND: Final = "dynamic programming"


def reference_discount(plant: Plant, frequency: float) -> float:
    """Return γ per sample at the plant's own horizon in seconds: its discount^(its frequency / f)."""
    return float(plant.discount ** (plant.frequency / frequency))


def solve(
    plant: OdePlant, frequency: float = 50.0, *, grid: Grid | None = None, discount: float | None = None,
    variant: Variant = "modified", tolerance: float = TOLERANCE, store: bool = True,
) -> Solution:  # fmt: skip
    """Solve a plant, or fetch its solution from the cache.

    Args:
        plant: the plant.
        frequency: control rate [Hz].
        grid: the nodes; by default the plant's.
        discount: γ per sample; by default `reference_discount`.
        variant: "synchronous" sweeps from the values of the last sweep, "asynchronous" ones in place, or "modified"
            policy iteration to the same values (`replaybench.baselines.iteration`).
        tolerance: the sweeps stop at ‖Δθ‖∞ ≤ `tolerance` max|R|.
        store: put a new solution into the cache.

    Raises:
        UserError: the plant has no equations, or declares no grid, or a setting is out of its range.
    """
    plant = with_equations(plant, "dynamic programming")
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
        kept = iterate(plant, frequency, grid, actions, discount, variant, tolerance)
        if store:
            _store(depends_on, kept)
    return Solution(plant, float(frequency), discount, variant, grid, actions, *kept)


def keep(solution: Solution, tolerance: float = TOLERANCE) -> None:
    """Put a solution into the cache."""
    key = solution.plant, solution.frequency, solution.grid, solution.discount, solution.variant, tolerance
    _store(_depends_on(*key), (solution.theta, solution.convergence))


def _depends_on(
    plant: OdePlant, frequency: float, grid: Grid, discount: float, variant: str, tolerance: float
) -> dict[str, Any]:
    """Return the key of a solution in the cache."""
    return {
        "plant": plant.fingerprint(), "frequency": float(frequency), "discount": discount,
        "grid": dataclasses.asdict(grid), "levels": plant.action_levels, "variant": variant, "tolerance": tolerance,
        "numerics": NUMERICS_VERSION,
    }  # fmt: skip


def _path(depends_on: Mapping[str, Any]) -> Path:
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return cache_dir() / "dp" / f"{key[:32]}.h5"


def _store(depends_on: Mapping[str, Any], found: tuple[Float64Array, Float64Array]) -> None:
    with contextlib.suppress(OSError, UserError):  # the cache is optional
        # Records are written row by row of the first axis: one long row.
        write_record(_path(depends_on), _KIND, depends_on, {"theta": found[0][None], "convergence": found[1]})


def _load(path: Path, shape: tuple[int, int]) -> tuple[Float64Array, Float64Array] | None:
    """Read a cached solution; None if there is none, or it is damaged."""
    try:
        _, arrays = read_record(path, _KIND)
        theta, convergence = arrays["theta"], arrays["convergence"]
    except (OSError, UserError, KeyError):
        return None
    return (theta[0], convergence) if theta.shape == (1, *shape) and convergence.ndim == 1 else None
