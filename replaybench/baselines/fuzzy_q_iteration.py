"""Fuzzy Q-iteration: dynamic programming on a grid (Buşoniu et al., 2010).

The value of action j at grid node i is θ[i, j]. Between nodes, values are interpolated with weights Φ. The next state
x′ and the reward R of every node and action come from a noise-free simulation of the plant. Each sweep θ ← R + γ max_j
Φ(x′) θ contracts by γ towards the fixed point. Solutions are cached on disk.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from replaybench.baselines import fuzzy_sweeps
from replaybench.baselines.grid import Grid, plant_grid
from replaybench.data.record import read_record, write_record
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant, with_equations
from replaybench.runtime.arrays import Floats, Floats32, Integers, Integers32
from replaybench.runtime.errors import UserError, unknown
from replaybench.runtime.kernel import cache_dir, kernel
from replaybench.runtime.version import NUMERICS_VERSION

Variant = Literal["modified", "synchronous", "asynchronous"]

_SIMULATED_AT_ONCE: Final = 200_000
_FEWEST_NODES: Final = 20  # on each axis of a coarse grid whose values start a finer one
_MOST_EVALUATIONS: Final = 10  # sweeps over the best actions between two sweeps over all actions
_RESTED: Final = 0.05  # fraction of the last ‖Δθ‖∞ at which the sweeps over the best actions end early


def action_grid(plant: OdePlant) -> Floats:
    """Return all U combinations of the levels of a plant's A actions, normalised `[U, A]`. The last varies fastest."""
    levels = [np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(1) for count in plant.action_levels]
    return np.array(list(itertools.product(*levels)))


class Transitions(NamedTuple):
    """The simulated results of one control period for P pairs of a grid node and an action.

    Attributes:
        cell: Grid cell of the next state, shape `[P]`.
        weight: Interpolation weights of the corners of that cell, shape `[P, 2^S]`; 0 if the next state is terminal.
        reward: Reward, shape `[P]`.
    """

    cell: Integers32
    weight: Floats
    reward: Floats


def transitions(plant: OdePlant, frequency: float, grid: Grid, actions: Floats) -> Transitions:
    """Simulate one control period from each node i with each of U normalised actions j. Their pair is i·U + j."""
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
    """Return the number of sweeps after which fuzzy Q-iteration has converged in every case.

    Then no action value changes by more than `tolerance` times the largest |reward|. The number includes 50 additional
    sweeps because of rounding errors.
    """
    return math.ceil(math.log(tolerance) / math.log(discount)) + 50


def iterate(
    plant: OdePlant, frequency: float, grid: Grid, actions: Floats, discount: float, variant: Variant,
    tolerance: float,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Sweep until the action values θ of N grid nodes and U actions converge.

    Returns:
        theta: Action values θ, shape `[N, U]`.
        convergence: Largest change ‖Δθ‖∞ of an action value in each sweep.
    """
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
        if variant == "modified" and sweep < longest:  # later sweeps are plain: they contract from any values
            rest = max(_RESTED * change, 0.3 * tolerance * scale)
            pairs, first, where = fuzzy_sweeps.places(grid.corners, start, choice, count)
            own = after.cell[pairs], after.weight[pairs], after.reward[pairs]
            for evaluation in range(_MOST_EVALUATIONS):  # forwards and backwards in turn
                backwards = evaluation % 2 == 1
                if fuzzy_sweeps.evaluate(*own, discount, start, table, first, where, backwards) <= rest:
                    break
            fuzzy_sweeps.synchronous(theta, *after, discount, start, table)
    return theta, np.array(convergence)


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of fuzzy Q-iteration for a plant, on a grid of N nodes with U actions."""

    plant: OdePlant
    frequency: float  # control rate in Hz
    discount: float  # γ per control step
    variant: str  # "modified", "synchronous" or "asynchronous"
    grid: Grid
    actions: Floats  # normalised, shape `[U, A]`
    theta: Floats  # action values θ of the unscaled reward, shape `[N, U]`
    convergence: Floats  # ‖Δθ‖∞ of each sweep over all values

    @property
    def sweeps(self) -> int:
        """Number of sweeps until the values converged."""
        return len(self.convergence)

    @functools.cached_property
    def best(self) -> Integers32:
        """Index of the best action at each of N grid nodes, int32 `[N]`."""
        best: Integers32 = self.theta.argmax(axis=1).astype(np.int32)
        return best

    def greedy(self, observation: ArrayLike) -> Floats32:
        """Return the normalised greedy actions, float32 `[..., A]`, at normalised states `[..., S]`."""
        choice, _ = self._maximum(observation)
        lead = np.shape(observation)[:-1]
        return self.actions[choice].astype(np.float32).reshape(*lead, -1)

    def interpolated(self, observation: ArrayLike) -> Floats32:
        """Return the best actions at nodes, interpolated to normalised states `[..., S]`, as float32 `[..., A]`."""
        mixed = self.grid.interpolate(self.actions[self.best], self._points(observation))
        return mixed.astype(np.float32).reshape(*np.shape(observation)[:-1], -1)

    def value(self, observation: ArrayLike) -> Floats:
        """Return the values of the greedy actions at normalised states `[..., S]`, as float64 `[...]`."""
        _, value = self._maximum(observation)
        return value.reshape(np.shape(observation)[:-1])

    def value_surface(self) -> Floats:
        """Return the value of the best action at each node, as an array with one axis per state."""
        surface: Floats = self.theta.max(axis=1).reshape(self.grid.nodes)
        return surface

    def policy_surface(self) -> Floats:
        """Return the best action at each node in physical units, with one axis per state and a last axis `[A]`."""
        return self.plant.denormalise_action(self.actions[self.best]).reshape(*self.grid.nodes, -1)

    def _points(self, observation: ArrayLike) -> Floats:
        states = np.asarray(observation)
        return self.plant.denormalise_state(states).reshape(-1, states.shape[-1])

    def _maximum(self, observation: ArrayLike) -> tuple[Integers, Floats]:
        cell, weight = self.grid.memberships(self._points(observation))
        choice, value = np.empty(len(cell), np.int64), np.empty(len(cell))
        _greedy(self.theta, self.best, self.grid.corners, cell, weight, choice, value)
        return choice, value


@kernel
def _greedy(
    theta: Floats, best: Integers32, corners: Integers32, cell: Integers32, weight: Floats,
    choice: Integers, value: Floats,
) -> None:  # fmt: skip
    mixed = np.empty(theta.shape[1])
    for p in range(cell.shape[0]):
        corner = corners[cell[p]]
        leader = best[corner[0]]
        agree = True
        total = 0.0
        for k in range(corners.shape[1]):
            agree &= best[corner[k]] == leader
            total += weight[p, k] * theta[corner[k], leader]
        if agree:
            choice[p], value[p] = leader, total
            continue
        mixed[:] = 0.0
        for k in range(corners.shape[1]):
            share = weight[p, k]
            i = corner[k]
            for a in range(theta.shape[1]):
                mixed[a] += share * theta[i, a]
        choice[p] = np.argmax(mixed)
        value[p] = mixed[choice[p]]


TOLERANCE: Final = 5e-6
"""Largest change of an action value in the last sweep, as a fraction of the largest |reward|."""

_KIND: Final = "dynamic programming"


def reference_discount(plant: Plant, frequency: float) -> float:
    """Convert a plant's discount factor to another control rate in Hz, with the same horizon in seconds."""
    return float(plant.discount ** (plant.frequency / frequency))


def solve(
    plant: OdePlant, frequency: float = 50.0, *, grid: Grid | None = None, discount: float | None = None,
    variant: Variant = "modified", tolerance: float = TOLERANCE, store: bool = True,
) -> Solution:  # fmt: skip
    """Compute the action values of a plant by fuzzy Q-iteration, or read them from the cache.

    Args:
        plant: The plant, which must have equations. Its channel is left out.
        frequency: Control rate in Hz.
        grid: The grid. By default this is the grid that the plant declares.
        discount: Discount factor γ per control step. By default this is the result of `reference_discount`.
        variant: `synchronous` sweeps use the values of the last sweep, and `asynchronous` sweeps work in place.
            `modified` is modified policy iteration, which converges faster to the same values.
        tolerance: The sweeps stop if no action value changes by more than `tolerance` times the largest |reward|.
        store: Whether a new solution is stored in the cache.

    Raises:
        UserError: The plant has no equations or no grid, or a setting is out of its range.
    """
    plant = with_equations(plant, "dynamic programming").nominal()
    plant.steps_per_episode(frequency)  # raises `UserError` for an unsupported rate
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
    kept = _load(cached_at("dp/", depends_on), (grid.size, len(actions)))
    if kept is None:
        kept = iterate(plant, frequency, grid, actions, discount, variant, tolerance)
        if store:
            _store(depends_on, kept)
    return Solution(plant, float(frequency), discount, variant, grid, actions, *kept)


def keep(solution: Solution) -> None:
    """Store a solution of fuzzy Q-iteration, which was computed with `TOLERANCE`, in the cache."""
    key = solution.plant, solution.frequency, solution.grid, solution.discount, solution.variant, TOLERANCE
    _store(_depends_on(*key), (solution.theta, solution.convergence))


def _depends_on(
    plant: OdePlant, frequency: float, grid: Grid, discount: float, variant: str, tolerance: float
) -> dict[str, Any]:
    return {
        "plant": plant.fingerprint(), "frequency": float(frequency), "discount": discount,
        "grid": dataclasses.asdict(grid), "levels": plant.action_levels, "variant": variant, "tolerance": tolerance,
        "numerics": NUMERICS_VERSION,
    }  # fmt: skip


def cached_at(folder: str, depends_on: Any) -> Path:
    """Return the path of a cached result: `folder`, then a hash of the JSON values on which the result depends."""
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return cache_dir() / f"{folder}{key[:32]}.h5"


def write_cached(path: Path, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
    """Write metadata and arrays to the cache. Errors are ignored, because the cache is optional."""
    with contextlib.suppress(OSError, UserError):
        write_record(path, kind, facts, arrays or {})


def _store(depends_on: Mapping[str, Any], values: tuple[Floats, Floats]) -> None:
    # θ is one row, because records are written row by row of the first axis.
    arrays = {"theta": values[0][None], "convergence": values[1]}
    write_cached(cached_at("dp/", depends_on), _KIND, depends_on, arrays)


def _load(path: Path, shape: tuple[int, int]) -> tuple[Floats, Floats] | None:
    """Read a cached solution. Return None if the file is missing or damaged."""
    try:
        _, arrays = read_record(path, _KIND)
        theta, convergence = arrays["theta"], arrays["convergence"]
    except (OSError, UserError, KeyError):
        return None
    return (theta[0], convergence) if theta.shape == (1, *shape) and convergence.ndim == 1 else None
