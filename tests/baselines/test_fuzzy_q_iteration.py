"""Fuzzy Q-iteration against NumPy, a closed form, its own theory, and the golden values of its plants."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from episodes import episode_rewards
from numpy.typing import NDArray

from replaybench.baselines import fuzzy_q_iteration, fuzzy_sweeps
from replaybench.baselines.controllers import GreedyController
from replaybench.baselines.fuzzy_q_iteration import (
    TOLERANCE,
    Solution,
    Variant,
    action_grid,
    iterate,
    reference_discount,
    solve,
    transitions,
)
from replaybench.baselines.grid import Grid, plant_grid
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.registry import make_plant
from replaybench.runtime.errors import UserError

GAMMA = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Five(Pendulum):
    action_levels = (5,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Walk(OdePlant):
    """A step to the left or right or none, at a cost of 1, until 0 is reached."""

    name = "Walk"
    state_names, state_units = ("place",), ("m",)
    action_names, action_units = ("speed",), ("m/s",)
    state_center, state_scale = (0.0,), (10.0,)
    action_low, action_high = (-1.0,), (1.0,)
    initial_state, reference_state = (6.0,), (0.0,)
    grid_nodes, grid_low, grid_high = (11,), (0.0,), (10.0,)
    action_levels = (3,)
    max_substep = 1.0

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        return (u[0],)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -1.0

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return x_next[0] < 0.5  # type: ignore[no-any-return]


def small(plant: OdePlant, *nodes: int) -> dict[str, Any]:
    """Return the arrays of a small problem."""
    grid = plant_grid(plant, nodes)
    cell, weight, reward = transitions(plant, 50.0, grid, action_grid(plant))
    return {"grid": grid, "cell": cell, "weight": weight, "reward": reward, "actions": action_grid(plant)}


def naive_sweep(theta: NDArray[np.float64], problem: dict[str, Any]) -> NDArray[np.float64]:
    """`R + γ max_j Φ(x′) θ` with a dense Φ, as it is written."""
    grid, pairs = problem["grid"], len(problem["cell"])
    phi = np.zeros((pairs, grid.size))
    for pair in range(pairs):
        for corner, weight in zip(grid.corners[problem["cell"][pair]], problem["weight"][pair], strict=True):
            phi[pair, corner] += weight
    dense: NDArray[np.float64] = (problem["reward"] + GAMMA * (phi @ theta).max(axis=1)).reshape(theta.shape)
    return dense


def synchronous_sweep(theta: NDArray[np.float64], problem: dict[str, Any]) -> tuple[NDArray[np.float64], float]:
    """One sweep by the kernels, from a table that is too small at first."""
    grid, after = problem["grid"], theta.copy()
    best, start = np.zeros(grid.size, np.int32), np.zeros(len(grid.corners) + 1, np.int64)
    room = np.empty(1, np.int32), np.empty((1, grid.corners.shape[1]))
    _, table = fuzzy_sweeps.contenders(after, grid.corners, best, start, *room)
    transition = problem["cell"], problem["weight"], problem["reward"]
    change = fuzzy_sweeps.synchronous(after, *transition, GAMMA, start, table)
    return after, change


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("plant", "nodes"), [(Pendulum(), (12, 9)), (Magman(), (7, 5))])
def test_a_synchronous_sweep_equals_dense_numpy(plant: OdePlant, nodes: tuple[int, ...], seed: int) -> None:
    problem = small(plant, *nodes)
    theta = np.random.default_rng(seed).normal(size=(problem["grid"].size, len(problem["actions"])))
    theta[:: seed + 1] = np.round(theta[:: seed + 1])  # equal values, too
    for _ in range(4):
        after, change = synchronous_sweep(theta, problem)
        np.testing.assert_allclose(after, naive_sweep(theta, problem), rtol=1e-13, atol=1e-12)
        assert change == np.abs(after - theta).max()
        theta = after


def test_an_asynchronous_sweep_uses_each_value_at_once() -> None:
    problem = small(Pendulum(), 8, 7)
    grid, U = problem["grid"], len(problem["actions"])
    theta = np.random.default_rng(0).normal(size=(grid.size, U))
    naive, best = theta.copy(), theta.argmax(axis=1).astype(np.int32)
    for _ in range(3):
        for pair in range(grid.size * U):
            corner, weight = grid.corners[problem["cell"][pair]], problem["weight"][pair]
            naive[divmod(pair, U)] = problem["reward"][pair] + GAMMA * (weight @ naive[corner]).max()
        transition = problem["cell"], problem["weight"], problem["reward"]
        fuzzy_sweeps.asynchronous(theta, *transition, GAMMA, grid.corners, best)
        np.testing.assert_allclose(theta, naive, rtol=1e-12)
        np.testing.assert_array_equal(theta[np.arange(grid.size), best], theta.max(axis=1))


@pytest.mark.parametrize(("plant", "nodes"), [(Pendulum(), (12, 9)), (Magman(), (7, 5))])
def test_evaluation_converges_among_the_contenders(plant: OdePlant, nodes: tuple[int, ...]) -> None:
    """A sweep with no other contenders than before then changes none of their values."""
    problem = small(plant, *nodes)
    grid, after = problem["grid"], [problem[name] for name in ("cell", "weight", "reward")]
    theta = np.random.default_rng(0).normal(size=(grid.size, len(problem["actions"])))
    best, start = np.zeros(grid.size, np.int32), np.zeros(len(grid.corners) + 1, np.int64)
    room = np.empty(1, np.int32), np.empty((1, grid.corners.shape[1]))
    choice, table = fuzzy_sweeps.contenders(theta, grid.corners, best, start, *room)
    pairs, first, where = fuzzy_sweeps.places(grid.corners, start, choice, count := np.zeros(theta.shape, np.int32))
    assert not count.any()
    assert 0 < len(pairs) < theta.size
    rows = start[-1]
    standing = grid.corners[np.repeat(np.arange(len(grid.corners)), np.diff(start))] * theta.shape[1]
    np.testing.assert_array_equal(np.unique(standing + choice[:rows, None]), pairs)
    np.testing.assert_array_equal(table[:rows], theta.reshape(-1)[standing + choice[:rows, None]])
    for sweep in range(800):
        cell, weight, reward = (array[pairs] for array in after)
        change = fuzzy_sweeps.evaluate(cell, weight, reward, GAMMA, start, table, first, where, sweep % 2 == 1)
    assert change < 1e-9
    values = table.reshape(-1)[where]
    np.testing.assert_array_equal(values, np.repeat(values[first[:-1]], np.diff(first)))
    cell, weight, reward = after
    fuzzy_sweeps.synchronous(theta, cell, weight, reward, GAMMA, start, table)
    np.testing.assert_allclose(theta.reshape(-1)[pairs], values[first[:-1]], rtol=0, atol=1e-8)


def test_values_of_a_walk_to_the_end_are_the_closed_form() -> None:
    plant = Walk()
    solution = solve(plant, 1.0, discount=0.9)
    steps = np.arange(11)
    # Node 0 still has a step to make: the episode ends with a step, not with a place.
    closed = -(1 - 0.9 ** np.maximum(steps, 1)) / (1 - 0.9)
    np.testing.assert_allclose(solution.value_surface(), closed, rtol=1e-12)
    left = solution.greedy(np.linspace(0.2, 1, 9, dtype=np.float32)[:, None])
    np.testing.assert_array_equal(left, -1.0)
    reward = episode_rewards(GreedyController(solution), plant, 1.0, members=range(2))
    np.testing.assert_array_equal(reward, -1.0)  # four steps are all the episode has


@pytest.mark.parametrize("frequency", [10.0, 50.0])
@pytest.mark.parametrize("plant", [Five(), PendulumDCSC(), Magman()])
def test_all_variants_reach_the_same_values(plant: OdePlant, frequency: float) -> None:
    """Each to within what the stopping threshold leaves open, `2 γ ε / (1 − γ)`."""
    grid, discount = plant_grid(plant, (41, 41)), reference_discount(plant, frequency)
    one, other, fast = (solve(plant, frequency, grid=grid, variant=variant) for variant in get_args(Variant)[::-1])
    assert (one.variant, other.variant, fast.variant) == ("asynchronous", "synchronous", "modified")
    largest = np.abs(transitions(plant, frequency, grid, one.actions)[2]).max()
    apart = 2 * discount * TOLERANCE * largest / (1 - discount)
    np.testing.assert_allclose(one.theta, other.theta, rtol=0, atol=apart)
    np.testing.assert_allclose(fast.theta, other.theta, rtol=0, atol=apart)
    assert one.sweeps <= other.sweeps
    assert fast.convergence[-1] <= TOLERANCE * largest
    assert fast.sweeps < other.sweeps / 2


def test_sweeps_contract_by_the_discount_and_stop_at_the_tolerance() -> None:
    solution = solve(Five(), grid=plant_grid(Five(), (40, 41)), variant="synchronous")
    largest = np.abs(transitions(Five(), 50.0, solution.grid, solution.actions)[2]).max()
    change = solution.convergence
    np.testing.assert_array_less(change, GAMMA ** np.arange(len(change)) * largest * (1 + 1e-12))
    np.testing.assert_array_less(change[1:], GAMMA * change[:-1] * (1 + 1e-9))
    assert change[-1] <= TOLERANCE * largest < change[-2]


def test_policies_and_values_between_nodes_equal_numpy() -> None:
    solution = solve(Magman(), grid=plant_grid(Magman(), (41, 31)))
    observation = np.random.default_rng(0).normal(0.0, 0.6, (20, 25, 2)).astype(np.float32)
    states = Magman().denormalise_state(observation).reshape(-1, 2)
    cell, weight = solution.grid.memberships(states)
    corner = solution.grid.corners[cell]
    mixed = np.einsum("pk,pku->pu", weight, solution.theta[corner])
    greedy, value = solution.greedy(observation), solution.value(observation)
    assert greedy.shape == (20, 25, 4)
    assert greedy.dtype == np.float32
    np.testing.assert_allclose(value.reshape(-1), mixed.max(axis=1), rtol=1e-12)
    chosen = [np.flatnonzero((solution.actions == action).all(axis=1))[0] for action in greedy.reshape(-1, 4)]
    np.testing.assert_allclose(mixed[np.arange(500), chosen], mixed.max(axis=1), rtol=1e-12)
    blend = np.einsum("pk,pka->pa", weight, solution.actions[solution.best[corner]])
    np.testing.assert_allclose(solution.interpolated(observation).reshape(-1, 4), blend, atol=1e-6)


def test_a_solution_is_computed_once_per_content(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid((9, 9), (-math.pi, -15.0), (math.pi, 15.0), (True, False))
    calls: list[OdePlant] = []

    def counted(plant: OdePlant, *rest: Any) -> Any:
        calls.append(plant)
        return iterate(plant, *rest)

    monkeypatch.setattr(fuzzy_q_iteration, "iterate", counted)

    def again(**settings: Any) -> Solution:
        inertia = settings.pop("inertia", 9.41e-4)
        return solve(Pendulum(inertia=inertia), settings.pop("frequency", 50.0), **{"grid": grid} | settings)

    first, second = again(), again()
    assert len(calls) == 1
    np.testing.assert_array_equal(first.theta, second.theta)
    np.testing.assert_array_equal(first.convergence, second.convergence)
    other = dataclasses.replace(grid, nodes=(10, 9))
    for changed in (
        {"inertia": 1e-3},
        {"frequency": 25.0},
        {"discount": 0.9},
        {"variant": "asynchronous"},
        {"tolerance": 1e-3},
        {"grid": other},
    ):
        again(**changed)
    assert len(calls) == 7


@pytest.mark.parametrize("damage", [b"", b"not a record", None])
def test_a_damaged_cache_entry_is_computed_again(empty_cache: Path, damage: bytes | None) -> None:
    grid = plant_grid(Pendulum(), (9, 9))
    first = solve(Pendulum(), grid=grid)
    (entry,) = (empty_cache / "dp").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-100] + bytes(100) if damage is None else damage)
    np.testing.assert_array_equal(solve(Pendulum(), grid=grid).theta, first.theta)
    assert entry.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(empty_cache: Path) -> None:
    (empty_cache / "dp").write_text("a file where the folder should be")
    assert solve(Pendulum(), grid=plant_grid(Pendulum(), (9, 9))).sweeps > 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "synchronus"}, "did you mean synchronous"),
        ({"discount": 1.0}, "between 0 and 1"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"frequency": 33.3}, "use 33.25 or 33.5 Hz"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        solve(Pendulum(), **settings)


def test_a_plant_without_equations_is_refused() -> None:
    told = "^MujocoHopper is not given by equations, which dynamic programming needs; Pendulum, .* OdePlant are$"
    with pytest.raises(UserError, match=told):
        solve(make_plant("MujocoHopper"))  # type: ignore[arg-type]


def test_a_plant_without_a_grid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "grid_nodes", ())
    with pytest.raises(UserError, match="declares no grid"):
        solve(Walk(), 1.0)
