"""The contract of every plant: the registered ones and the examples a user would start from."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, missing, plant_class, plant_names
from replaybench.evidence.contracts import PLANT, checked, difference, rollout
from tests.golden.plant_cases import CASES, lacking
from tests.helpers.refusals import refuses
from tests.helpers.tiers import slow

NOISE: dict[str, Any] = {"sensor_noise": 0.02, "actuator_noise": 0.05}
NAMES = [name for name in CASES if not lacking(name)]
SLOW = ("Walker", "Swimmer", "Ant", "Humanoid", "Cheetah", "Fish", "Reacher", "Navier", "AcerCartpole")
"""Parts of the names of plants with many steps to compute; hoppers, pendulums and golden numbers use all engines."""


@pytest.fixture(params=slow(NAMES, only=[name for name in NAMES if any(map(name.count, SLOW))]))
def plant(request: pytest.FixtureRequest) -> Plant:
    name, parameters = CASES[request.param]
    return make_plant(name, **parameters)


@pytest.fixture
def populations(plant: Plant) -> Iterator[Any]:
    """Makes populations of the plant, whose episode has begun, and closes them."""
    made: list[PopulationEnv] = []

    def make(*args: Any, **settings: Any) -> PopulationEnv:
        made.append(PopulationEnv(plant, *args, **settings))
        made[-1].reset()
        return made[-1]

    yield make
    for env in made:
        env.close()


def random_actions(env: PopulationEnv, steps: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(7))
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)


def almost_over(env: PopulationEnv, left: list[int]) -> None:
    """Set how many steps each member's episode has left."""
    state = env.get_state()
    state["elapsed"][:] = env.steps_per_episode - np.array(left)
    env.set_state(state)


def test_every_plant_keeps_its_promises(plant: Plant) -> None:
    disturbed = any(getattr(plant, name, 0.0) for name in ("phase_noise", "reading_noise"))  # by chance in each step
    promises = {name: check for name, check in PLANT.items() if not (disturbed and name.startswith("a held action"))}
    assert not [result for result in checked(promises, plant) if result[1]]


def test_declarations_are_sound(plant: Plant) -> None:
    assert np.isfinite(plant.observation_limit).all()
    one = np.ones(len(plant.action_low))
    np.testing.assert_allclose(plant.normalise_action([plant.action_low, plant.action_high]), [-one, one])
    assert len(set(plant.state_names)) == len(plant.state_names)
    assert plant.steps_per_episode(plant.frequency) >= 2
    assert plant.fingerprint() == type(plant)(**vars(plant)).fingerprint()


def test_the_same_seed_gives_the_same_run_and_another_another(plant: Plant, populations: Any) -> None:
    env = populations(2, **NOISE)
    actions = random_actions(env, 20)
    runs = []
    for seed in (3, 3, 4):
        env.reset(seed=seed)
        runs.append(rollout(env, actions))
    first, same, other = runs
    assert not difference(first, same)
    assert not difference(first, rollout(populations(2, seed=3, **NOISE), actions))
    assert (first["observation"][:, 0] != other["observation"][:, 0]).all()


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
    assert env.observation_space.contains(first[0])
    assert infos.keys() == first[4].keys()
    assert all(len(column) == 2 for column in first[4].values())


def test_a_member_that_has_ended_shows_its_last_observation_until_it_is_reset(plant: Plant, populations: Any) -> None:
    env = populations(3, **NOISE)
    actions = random_actions(env, 12)
    rollout(env, actions[:4])
    almost_over(env, [9, 2, 9])
    last = rollout(env, actions[4:6])
    assert last["truncated"][1].tolist() == [False, True] or last["terminated"][1].any()
    frozen = rollout(env, actions[6:8])
    np.testing.assert_array_equal(frozen["observation"][1], last["observation"][1, [-1, -1]])
    assert (frozen["reward"][1] == 0).all()
    start, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(start[[0, 2]], frozen["observation"][[0, 2], -1])
    assert (start[1] != frozen["observation"][1, -1]).any()
    assert not rollout(env, actions[8:])["truncated"][1].any()


def test_noise_is_added_as_reported_and_streams_are_independent(plant: Plant, populations: Any) -> None:
    """Correlation with a false alarm below 1e-6, at a fixed seed."""
    env = populations(6, sensor_noise=0.05, actuator_noise=0.05, seed=5)
    seen: list[list[np.ndarray]] = [[], []]
    for _ in range(30):
        running = ~(env.get_state()["terminated"] | env.get_state()["truncated"])
        observation, _, terminated, _, infos = env.step(np.zeros(env.action_space.shape, np.float32))
        np.testing.assert_allclose(observation, infos["true_state"] + infos["sensor_noise"], rtol=1e-4, atol=1e-5)
        for draws, name in zip(seen, ("sensor_noise", "actuator_noise"), strict=True):
            draws.append(infos[name][running, 0])
        if terminated.any():
            env.reset(options={"reset_mask": terminated})
    first = [np.concatenate(draws) for draws in seen]
    assert abs(np.corrcoef(first)[0, 1]) < math.tanh(stats.norm.isf(5e-7) / math.sqrt(len(first[0]) - 3))


def test_terminated_and_truncated_are_different(plant: Plant, populations: Any) -> None:
    env = populations(2)
    almost_over(env, [1, env.steps_per_episode])
    _, _, terminated, truncated, _ = env.step(random_actions(env, 1)[0])
    assert truncated.tolist() == [True, False]
    assert not terminated.any()


def test_bad_actions_are_refused_and_named(plant: Plant, populations: Any) -> None:
    env = populations(2, members=[3, 8])
    action = np.zeros(env.action_space.shape, np.float32)
    for wrong in (np.pad(action, ((0, 0), (0, 1))), action[:, 0]):
        refuses("this population takes", env.step, wrong)
    action[1, -1] = np.nan
    refuses("the action of member 8 is not a number", env.step, action)


def test_impossible_rates_are_refused(plant: Plant) -> None:
    for frequency in (0.0, -1.0, math.nan, math.inf, plant.frequency * math.sqrt(2)):
        refuses("Hz", PopulationEnv, plant, 1, frequency=frequency)


OWN = [name for name in plant_names() if not missing(name) and issubclass(plant_class(name), OdePlant)]


@pytest.fixture(params=[*OWN, CASES["CartPole"][0]], ids=lambda name: name.rpartition(":")[2])
def ode_plant(request: pytest.FixtureRequest) -> OdePlant:
    made = make_plant(request.param)
    assert isinstance(made, OdePlant)
    return made


def test_start_and_reference_are_states_that_can_be_observed(ode_plant: OdePlant) -> None:
    states = [ode_plant.initial_state, ode_plant.reference_state]
    np.testing.assert_allclose(ode_plant.denormalise_state(ode_plant.normalise_state(states)), states, atol=1e-15)
    assert (abs(ode_plant.normalise_state(states)) <= ode_plant.observation_limit).all()


def test_simulate_is_the_step_without_noise(ode_plant: OdePlant) -> None:
    env = PopulationEnv(ode_plant, 4)
    env.reset()
    rng = np.random.Generator(np.random.PCG64(7))
    for action in rng.uniform(-1, 1, (20, *env.action_space.shape)).astype(np.float32):
        state = ode_plant.normalise_state(env.get_state()["observed"])
        _, reward, _, _, _ = env.step(action)
        after, expected = env.simulate(state, action)
        np.testing.assert_allclose(ode_plant.normalise_state(env.get_state()["observed"]), after, rtol=0, atol=1e-12)
        np.testing.assert_allclose(reward, expected, rtol=1e-9)


def test_a_plant_that_terminates_is_frozen_and_never_truncated() -> None:
    """A cart is pushed off its track long before the end of the episode; one that rests is truncated there."""
    env = PopulationEnv(CASES["CartPole"][0], 2)
    env.reset()
    full = np.ones((env.steps_per_episode, *env.action_space.shape), np.float32)
    full[:, 1] = env.plant.normalise_action(env.plant.zero_action)
    run = rollout(env, full)
    terminated, truncated = run["terminated"], run["truncated"]
    last = int(np.argmax(terminated[0]))
    assert 0 < last < len(full) - 1
    assert terminated[0, last:].all()
    assert (run["reward"][0, last + 1 :] == 0).all()
    assert not terminated[1].any()
    np.testing.assert_array_equal(truncated.nonzero(), [[1], [len(full) - 1]])
