"""The contract of every plant: the registered ones, and the example a user would start from."""

import math
from pathlib import Path

import numpy as np
import pytest

from replaybench.envs.ode import OdePlant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, plant_names

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'cart_pole.py'}:CartPole"
NOISE = {"sensor_noise": 0.02, "actuator_noise": 0.05}


@pytest.fixture(params=[*plant_names(), EXAMPLE], ids=lambda name: name.rpartition(":")[2])
def plant(request: pytest.FixtureRequest) -> OdePlant:
    return make_plant(request.param)


def random_actions(env: PopulationEnv, steps: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(7))
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)


def rollout(env: PopulationEnv, actions: np.ndarray) -> list[np.ndarray]:
    """Return observations, rewards, flags and infos, each `[T, M, ...]`."""
    env.reset()
    steps = [env.step(action) for action in actions]
    columns = [np.array(column) for column in zip(*(step[:4] for step in steps), strict=True)]
    return columns + [np.array([step[4][name] for step in steps]) for name in sorted(steps[0][4])]


def test_declarations_are_sound(plant: OdePlant) -> None:
    assert (np.array(plant.state_scale) > 0).all()
    assert (np.array(plant.action_low) < np.array(plant.action_high)).all()
    np.testing.assert_allclose(
        plant.normalise_action([plant.action_low, plant.action_high]),
        [[-1] * len(plant.action_low), [1] * len(plant.action_low)],
    )
    for vector in (plant.initial_state, plant.reference_state):
        np.testing.assert_allclose(plant.denormalise_state(plant.normalise_state(vector)), vector, atol=1e-15)
        assert (abs(plant.normalise_state(vector)) <= plant.observation_limit).all()
    assert (abs(plant.normalise_action(plant.zero_action)) <= 1).all()
    assert plant.fingerprint() == plant.fingerprint()


def test_the_grid_has_a_node_on_the_reference(plant: OdePlant) -> None:
    if not plant.grid_nodes:
        pytest.skip("declares no grid")
    for axis, nodes in enumerate(plant.grid_nodes):
        low, high = plant.grid_low[axis], plant.grid_high[axis]
        grid = np.linspace(low, high, nodes, endpoint=not plant.periodic[axis])
        distance = abs(grid - plant.reference_state[axis])
        if plant.periodic[axis]:
            assert high - low == pytest.approx(2 * math.pi)
            distance = np.minimum(distance, 2 * math.pi - distance)
        assert distance.min() < 1e-12
    assert math.prod(plant.action_levels) <= 100


def test_members_equal_single_runs_bit_for_bit(plant: OdePlant) -> None:
    for settings in ({}, NOISE):
        env = PopulationEnv(plant, 5, members=[4, 0, 7, 2, 9], **settings)
        actions = random_actions(env, 60)
        together = rollout(env, actions)
        for row, member in enumerate(env.members):
            alone = rollout(PopulationEnv(plant, 1, members=[member], **settings), actions[:, [row]])
            for many, one in zip(together, alone, strict=True):
                np.testing.assert_array_equal(many[:, row], one[:, 0])


def test_members_are_independent(plant: OdePlant) -> None:
    actions = random_actions(PopulationEnv(plant, 4), 40)
    disturbed = actions.copy()
    disturbed[:, 2] = -disturbed[:, 2]
    before = rollout(PopulationEnv(plant, 4, **NOISE), actions)
    after = rollout(PopulationEnv(plant, 4, **NOISE), disturbed)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left[:, [0, 1, 3]], right[:, [0, 1, 3]])
    assert (before[0][:, 2] != after[0][:, 2]).any()


def test_the_same_seed_gives_the_same_run_and_another_another(plant: OdePlant) -> None:
    actions = random_actions(PopulationEnv(plant, 2), 30)
    runs = [rollout(PopulationEnv(plant, 2, seed=seed, **NOISE), actions) for seed in (3, 3, 4)]
    for same, other in zip(runs[0], runs[1], strict=True):
        np.testing.assert_array_equal(same, other)
    assert (runs[0][0] != runs[2][0]).all()


def test_observations_stay_finite_and_inside_their_space(plant: OdePlant) -> None:
    for frequency, settings in ((10, {}), (50, NOISE), (200, {})):
        env = PopulationEnv(plant, 20, frequency=frequency, **settings)
        limit = env.single_observation_space.high
        actions = random_actions(env, env.steps_per_episode)
        corners = np.sign(actions[0])
        half = env.steps_per_episode // 2
        for choice in (actions, np.tile(corners, (len(actions), 1, 1)), np.sign(actions)):
            choice[half:, ::2] *= -1
            observation, reward = rollout(env, choice)[:2]
            assert np.isfinite(observation).all()
            assert np.isfinite(reward).all()
            assert (abs(observation) <= limit).all()
        assert np.isfinite(limit).all()


def test_outputs_are_fresh_and_of_the_stated_types(plant: OdePlant) -> None:
    env = PopulationEnv(plant, 3, **NOISE)
    before, infos = env.reset()
    first = env.step(random_actions(env, 1)[0])
    outputs = [before, *infos.values(), *first[:4], *first[4].values()]
    copies = [output.copy() for output in outputs]
    second = env.step(random_actions(env, 2)[1])
    for output, copy in zip(outputs, copies, strict=True):
        np.testing.assert_array_equal(output, copy)
        assert not any(np.shares_memory(output, later) for later in [*second[:4], *second[4].values()])
    assert [output.dtype for output in first[:4]] == [np.float32, np.float64, np.bool_, np.bool_]
    assert before.shape == env.observation_space.shape
    assert env.observation_space.contains(before)


def test_simulate_is_the_step_without_noise(plant: OdePlant) -> None:
    env = PopulationEnv(plant, 4)
    env.reset()
    for action in random_actions(env, 20):
        state = plant.normalise_state(env.get_state()["state"])
        _, reward, _, _, _ = env.step(action)
        after, expected = env.simulate(state, action)
        np.testing.assert_allclose(plant.normalise_state(env.get_state()["state"]), after, rtol=0, atol=1e-12)
        np.testing.assert_allclose(reward, expected, rtol=1e-9)


def test_terminated_and_truncated_are_told_apart(plant: OdePlant) -> None:
    env = PopulationEnv(plant, 2)
    full = np.ones((env.steps_per_episode, *env.action_space.shape), np.float32)
    full[:, 1] = plant.normalise_action(plant.zero_action)
    _, reward, terminated, truncated = rollout(env, full)[:4]
    assert not truncated[:-1].any()
    assert truncated[-1, 1]
    assert not terminated[:, 1].any()
    if plant.name == "CartPole":  # pushed off its track long before the end, and frozen there
        last = int(np.argmax(terminated[:, 0]))
        assert 0 < last < len(full) - 1
        assert terminated[last:, 0].all()
        assert not truncated[:, 0].any()
        assert (reward[last + 1 :, 0] == 0).all()
    else:
        assert not terminated.any()
