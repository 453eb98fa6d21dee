"""The contract of every plant, whatever moves it: the registered ones and the examples a user would start from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from replaybench.data.errors import UserError
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, missing, plant_names
from replaybench.envs.single import SingleEnv

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"
NOISE: dict[str, Any] = {"sensor_noise": 0.02, "actuator_noise": 0.05}
CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in plant_names() if not missing(name)}
CASES |= {
    "CartPole": (f"{EXAMPLES / 'cart_pole.py'}:CartPole", {}),
    "Segway": (f"{EXAMPLES / 'segway.py'}:Segway", {}),
    "TwoTank": (f"{EXAMPLES / 'two_tank.py'}:TwoTank", {}),
    "Gymnasium": ("gymnasium:Pendulum-v1", {}),
    "GymnasiumChoices": ("gymnasium:CartPole-v1", {}),
    "DraftingFreeWake": (
        "Drafting",
        {"fidelity": "free-wake", "load_spread": 0.2, "phase_noise": 0.03, "reading_noise": 0.2},
    ),
    "DraftingNavierStokes": ("Drafting", {"fidelity": "navier-stokes", "cells": 8}),
}

Rollout = dict[str, np.ndarray]


@pytest.fixture(params=CASES)
def plant(request: pytest.FixtureRequest) -> Plant:
    name, parameters = CASES[request.param]
    return make_plant(name, **parameters)


@pytest.fixture
def populations(plant: Plant) -> Iterator[Any]:
    """Makes populations of the plant and closes them."""
    made: list[PopulationEnv] = []

    def make(*args: Any, **settings: Any) -> PopulationEnv:
        made.append(PopulationEnv(plant, *args, **settings))
        return made[-1]

    yield make
    for env in made:
        env.close()


def random_actions(env: PopulationEnv, steps: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(7))
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)


def rollout(env: PopulationEnv, actions: np.ndarray) -> Rollout:
    """Step without looking at ends; return observations, rewards, flags and infos by name, `[T, M, ...]`."""
    steps = [env.step(action) for action in actions]
    names = ("observation", "reward", "terminated", "truncated")
    found = {
        name: np.array(column) for name, column in zip(names, zip(*(s[:4] for s in steps), strict=True), strict=True)
    }
    return found | {name: np.array([step[4][name] for step in steps]) for name in steps[0][4]}


def fresh(env: PopulationEnv, actions: np.ndarray, **reset: Any) -> Rollout:
    env.reset(**reset)
    return rollout(env, actions)


def almost_over(env: PopulationEnv, left: list[int]) -> None:
    """Tell members that their episodes have so many steps left."""
    state = env.get_state()
    state["elapsed"][:] = env.steps_per_episode - np.array(left)
    env.set_state(state)


def assert_equal(left: Rollout, right: Rollout) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def test_declarations_are_sound(plant: Plant) -> None:
    assert (np.array(plant.state_scale) > 0).all()
    assert (np.array(plant.action_low) < np.array(plant.action_high)).all()
    assert (np.array(plant.observation_limit) > 0).all()
    assert np.isfinite(plant.observation_limit).all()
    np.testing.assert_allclose(
        plant.normalise_action([plant.action_low, plant.action_high]),
        [[-1] * len(plant.action_low), [1] * len(plant.action_low)],
    )
    assert (abs(plant.normalise_action(plant.zero_action)) <= 1).all()
    assert len(set(plant.state_names)) == len(plant.state_names)
    assert plant.steps_per_episode(plant.frequency) >= 2
    assert plant.fingerprint() == type(plant)(**vars(plant)).fingerprint()


def test_the_checker_finds_nothing(plant: Plant) -> None:
    """Gymnasium's own checker; its warnings are errors here."""
    env = SingleEnv(plant, **NOISE)
    check_env(env, skip_render_check=True)
    env.close()


def test_members_equal_single_runs_bit_for_bit(plant: Plant, populations: Any) -> None:
    env = populations(3, members=[4, 0, 7], **NOISE)
    actions = random_actions(env, 25)
    together = fresh(env, actions)
    for row, member in enumerate(env.members):
        alone = fresh(populations(1, members=[member], **NOISE), actions[:, [row]])
        assert_equal({name: many[:, [row]] for name, many in together.items()}, alone)


def test_members_are_independent(plant: Plant, populations: Any) -> None:
    env = populations(3, **NOISE)
    actions = random_actions(env, 25)
    disturbed = actions.copy()
    disturbed[:, 1] = -disturbed[:, 1]
    before, after = fresh(env, actions, seed=0), fresh(env, disturbed, seed=0)
    assert_equal(*({name: column[:, [0, 2]] for name, column in run.items()} for run in (before, after)))
    assert (before["true_state"][:, 1] != after["true_state"][:, 1]).any()


def test_the_same_seed_gives_the_same_run_and_another_another(plant: Plant, populations: Any) -> None:
    env = populations(2, **NOISE)
    actions = random_actions(env, 20)
    first, same, other = (fresh(env, actions, seed=seed) for seed in (3, 3, 4))
    assert_equal(first, same)
    assert_equal(first, fresh(populations(2, seed=3, **NOISE), actions))
    assert (first["observation"][0] != other["observation"][0]).all()


def test_observations_stay_finite_and_inside_their_space(plant: Plant, populations: Any) -> None:
    env = populations(4)
    actions = random_actions(env, min(100, env.steps_per_episode))
    actions[:, 1] = np.sign(actions[0, 1])
    actions[:, 2] = np.sign(actions[:, 2])
    env.reset()
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        assert env.observation_space.contains(observation)
        assert np.isfinite(reward).all()
        if (ended := terminated | truncated).any():
            env.reset(options={"reset_mask": ended})
    assert np.isfinite(env.single_observation_space.high).all()


def test_outputs_are_fresh_and_of_the_stated_types(plant: Plant, populations: Any) -> None:
    env = populations(2, **NOISE)
    before, infos = env.reset()
    first = env.step(random_actions(env, 1)[0])
    outputs = [before, *infos.values(), *first[:4], *first[4].values()]
    copies = [output.copy() for output in outputs]
    second = env.step(random_actions(env, 2)[1])
    env.reset()
    for output, copy in zip(outputs, copies, strict=True):
        np.testing.assert_array_equal(output, copy)
        assert not any(np.shares_memory(output, later) for later in [*second[:4], *second[4].values()])
    assert [output.dtype for output in first[:4]] == [np.float32, np.float64, np.bool_, np.bool_]
    assert before.shape == env.observation_space.shape
    assert infos.keys() == first[4].keys()
    assert all(len(column) == 2 for column in first[4].values())


def test_a_masked_reset_touches_only_the_masked(plant: Plant, populations: Any) -> None:
    """And a member that has ended shows its true successor until then, never the next episode's first observation."""
    env, other = populations(3, **NOISE), populations(3, **NOISE)
    actions = random_actions(env, 12)
    for population in (env, other):
        population.reset()
        rollout(population, actions[:4])
        almost_over(population, [9, 2, 9])
    last = rollout(env, actions[4:6])
    assert_equal(last, rollout(other, actions[4:6]))
    assert last["truncated"][:, 1].tolist() == [False, True] or last["terminated"][:, 1].any()
    frozen = rollout(env, actions[6:8])
    np.testing.assert_array_equal(frozen["observation"][:, 1], last["observation"][[-1, -1], 1])
    assert (frozen["reward"][:, 1] == 0).all()
    running = ~(frozen["terminated"] | frozen["truncated"])[-1]
    start, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(start[[0, 2]], frozen["observation"][-1, [0, 2]])
    assert (start[1] != frozen["observation"][-1, 1]).any()
    rollout(other, actions[6:8])
    mine, theirs = rollout(env, actions[8:]), rollout(other, actions[8:])
    assert_equal(*({name: column[:, [0, 2]] for name, column in run.items()} for run in (mine, theirs)))
    if running[[0, 2]].any():
        assert not mine["truncated"][0, 1]
    assert not mine["truncated"][:, 1].any()


def test_a_saved_state_continues_bit_for_bit(plant: Plant, populations: Any) -> None:
    """In the middle of an episode, in another population, which has been elsewhere."""
    env, other = populations(2, **NOISE), populations(2, seed=9, **NOISE)
    actions = random_actions(env, 20)
    env.reset()
    rollout(env, actions[:8])
    state = env.get_state()
    fresh(other, actions[5:10])
    expected = rollout(env, actions[8:])
    other.set_state(state)
    assert_equal(expected, rollout(other, actions[8:]))
    env.set_state(state)
    assert_equal(expected, rollout(env, actions[8:]))
    assert_equal(fresh(env, actions), fresh(other, actions))


def test_noise_has_the_stated_spread_and_independent_streams(plant: Plant, populations: Any) -> None:
    """χ² for the spread, correlation for independence: false alarms below 1e-6 each, at a fixed seed."""
    sigma, steps, members = 0.05, 30, 6
    env = populations(members, sensor_noise=sigma, actuator_noise=sigma, seed=5)
    env.reset()
    seen: dict[str, list[np.ndarray]] = {"sensor_noise": [], "actuator_noise": []}
    for _ in range(steps):
        running = ~(env.get_state()["terminated"] | env.get_state()["truncated"])
        observation, _, terminated, _, infos = env.step(np.zeros(env.action_space.shape, np.float32))
        np.testing.assert_allclose(observation, infos["true_state"] + infos["sensor_noise"], rtol=1e-4, atol=1e-5)
        for name, columns in seen.items():
            columns.append(infos[name][running])
        if terminated.any():
            env.reset(options={"reset_mask": terminated})
    for columns in seen.values():
        draws = np.concatenate(columns).astype(np.float64).ravel()
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], draws.size)
        assert low < (draws**2).sum() / sigma**2 < high
    first = [np.concatenate(columns)[:, 0] for columns in seen.values()]
    count = len(first[0])
    assert abs(np.corrcoef(first)[0, 1]) < math.tanh(stats.norm.isf(5e-7) / math.sqrt(count - 3))


def test_terminated_and_truncated_are_told_apart(plant: Plant, populations: Any) -> None:
    env = populations(2)
    env.reset()
    almost_over(env, [1, env.steps_per_episode])
    _, _, terminated, truncated, _ = env.step(random_actions(env, 1)[0])
    assert truncated.tolist() == [True, False]
    assert not terminated.any()


def test_a_held_action_leads_to_the_same_place_at_another_rate(plant: Plant, populations: Any) -> None:
    """Zero-order hold: twice the steps at twice the rate are one motion, to the accuracy of the integrator."""
    if any(getattr(plant, name, 0.0) for name in ("phase_noise", "reading_noise")):
        pytest.skip("this case is disturbed by chance in each step")
    try:
        slow = populations(2, frequency=plant.frequency / 2)
    except UserError as error:
        assert "Hz" in str(error)  # a plant of a fixed rate says so
        return
    quick = populations(2, frequency=plant.frequency)
    actions = 0.3 * random_actions(slow, 4)  # gentle, so that nothing falls over
    slow.reset(seed=1)
    quick.reset(seed=1)
    here, there = rollout(slow, actions), rollout(quick, np.repeat(actions, 2, axis=0))
    alive = ~here["terminated"] & ~there["terminated"][1::2]
    assert alive.any()
    after, twice = here["true_state"][alive], there["true_state"][1::2][alive]
    np.testing.assert_allclose(after, twice, rtol=1e-3, atol=1e-3)


def test_bad_actions_are_refused_and_named(plant: Plant, populations: Any) -> None:
    env = populations(2, members=[3, 8])
    env.reset()
    width = env.action_space.shape[1]
    with pytest.raises(UserError, match="this population takes"):
        env.step(np.zeros((2, width + 1), np.float32))
    action = np.zeros((2, width), np.float32)
    action[1, -1] = np.nan
    with pytest.raises(UserError, match="the action of member 8 is not a number"):
        env.step(action)


def test_impossible_rates_are_refused(plant: Plant) -> None:
    for frequency in (0.0, -1.0, math.nan, math.inf, plant.frequency * math.sqrt(2)):
        with pytest.raises(UserError, match="Hz"):
            PopulationEnv(plant, 1, frequency=frequency)
