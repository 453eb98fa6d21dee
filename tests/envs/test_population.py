"""The population: members, noise, episodes, masks and state."""

import math
import re
from typing import Any

import gymnasium
import numpy as np
import pytest

from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.errors import UserError
from tests.helpers.refusals import refuses


def actions(env: PopulationEnv, steps: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(3))
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)


def test_without_noise_nothing_is_drawn_and_the_truth_is_seen() -> None:
    env = PopulationEnv("Pendulum", 2)
    before = env.get_state()
    env.reset()
    for command in actions(env, 5):
        observation, _, _, _, infos = env.step(command)
        np.testing.assert_array_equal(observation, infos["true_state"])
    after = env.get_state()
    np.testing.assert_array_equal(after["sensor_stream"], before["sensor_stream"])
    np.testing.assert_array_equal(after["actuator_stream"], before["actuator_stream"])


def test_noisy_angles_are_not_wrapped() -> None:
    env = PopulationEnv("Pendulum", 200, sensor_noise=0.02)
    env.reset()
    state = env.get_state()
    state["observed"][:, 0] = -math.pi
    env.set_state(state)
    assert (env.step(np.zeros((200, 1)))[0][:, 0] < -1).any()


def test_a_seed_starts_the_noise_anew() -> None:
    env = PopulationEnv("Pendulum", 2, sensor_noise=0.1, seed=1)
    first, second = env.reset()[0], env.reset()[0]
    assert (first != second).all()
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    partly = env.reset(seed=1, options={"reset_mask": np.array([True, False])})[0]
    np.testing.assert_array_equal(partly, first)
    evaluation = PopulationEnv("Pendulum", 2, sensor_noise=0.1, seed=1, role="evaluation").reset()[0]
    assert (evaluation != first).all()


def test_a_state_of_another_population_is_refused() -> None:
    with pytest.raises(UserError, match=r"^this is not the state of a population of 2 Magman$"):
        PopulationEnv("Magman", 2).set_state(PopulationEnv("Magman", 3).get_state())


def test_actions_are_clipped_before_and_after_the_noise() -> None:
    env = PopulationEnv("Pendulum", 2)
    env.reset()
    _, reward, _, _, _ = env.step([[7.0], [1.0]])
    assert reward[0] == reward[1]
    noisy = PopulationEnv("Pendulum", 100, actuator_noise=0.3)
    noisy.reset()
    _, _, _, _, infos = noisy.step(np.ones((100, 1)))
    expected = np.where(infos["actuator_noise"][:, 0] > 0, 1.0, np.nan)
    state = noisy.get_state()["observed"][:, 1]
    full, _ = noisy.simulate([0.0, 0.0], [1.0])
    np.testing.assert_allclose(state[expected == 1], full[1] * 30, rtol=1e-12)
    assert (state[expected != 1] < full[1] * 30).all()


def test_a_failed_member_fails_alone() -> None:
    """It stays where it is, rewarded with NaN to the end of its episode; the next one begins like any other."""
    noise: dict[str, Any] = {"sensor_noise": 0.1, "actuator_noise": 0.1}
    env, other = PopulationEnv("Pendulum", 3, nan_actions="fail", **noise), PopulationEnv("Pendulum", 3, **noise)
    before, _ = env.reset()
    other.reset()
    for step, command in enumerate(actions(env, env.steps_per_episode)):
        expected = other.step(command)
        if step % 2 == 0:
            command[1] = np.nan
        observation, reward, terminated, truncated, _ = env.step(command)
        np.testing.assert_array_equal(observation[1], before[1])
        assert np.isnan(reward[1])
        np.testing.assert_array_equal(observation[[0, 2]], expected[0][[0, 2]])
        np.testing.assert_array_equal(reward[[0, 2]], expected[1][[0, 2]])
        np.testing.assert_array_equal(truncated, expected[3])
        assert not terminated.any()
    env.reset()
    assert np.isfinite(env.step(np.zeros((3, 1)))[1]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frequency": 60.6}, "60.6 Hz cuts the 4 s episode of Pendulum into 242.4 steps; use 60.5 or 60.75 Hz"),
        ({"frequency": 0.1}, "0.1 Hz cuts the 4 s episode of Pendulum into 0.4 steps; use 0.25 Hz"),
        ({"frequency": 0}, "frequency must be above 0 and at most 100000 Hz, not 0"),
        ({"frequency": math.nan}, "frequency must be above 0 and at most 100000 Hz, not nan"),
        ({"sensor_noise": -0.1}, "sensor_noise must be at least 0 and at most 10 normalised units, not -0.1"),
        ({"actuator_noise": math.inf}, "actuator_noise must be at least 0 and at most 10 normalised units, not inf"),
        ({"num_envs": 0}, "num_envs is 0; a population has at least 1 member"),
        ({"num_envs": 2, "members": [3]}, "1 member numbers for num_envs=2; give one for each member"),
        ({"num_envs": 2, "members": [3, 3]}, "member numbers must be different and not negative, not [3, 3]"),
        ({"role": "testing"}, "unknown role 'testing'; valid: evaluation, training"),
        ({"render_mode": "human"}, "unknown render mode 'human'; valid: rgb_array"),
        ({"seed": -1}, "the seed is -1; give an integer of 0 or more"),
    ],
)
def test_invalid_settings_raise_one_line_errors(settings: dict[str, Any], message: str) -> None:
    refuses(f"^{re.escape(message)}$", PopulationEnv, Pendulum(), **settings)


def test_invalid_calls_raise_one_line_errors() -> None:
    env = PopulationEnv("Pendulum", 2)
    for member in range(2):  # one after the other is all of them
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(np.zeros((2, 1)))
        env.reset(options={"reset_mask": np.arange(2) == member})
    env.step(np.zeros((2, 1)))
    with pytest.raises(UserError, match=r"^reset_mask must be bool of shape \(2,\), not int64 of shape \(2,\)$"):
        env.reset(options={"reset_mask": np.array([0, 1])})
    refuses(r"^unknown reset option 'mask'; did you mean reset_mask\?$", env.reset, options={"mask": np.ones(2, bool)})


def test_a_plant_named_by_the_user_takes_its_parameters() -> None:
    env = PopulationEnv("Pendulum", parameters={"inertia": 5e-4})
    assert env.plant == Pendulum(inertia=5e-4)
    with pytest.raises(UserError, match="parameters go with a plant's name; this Pendulum has its own already"):
        PopulationEnv(Pendulum(), parameters={"inertia": 5e-4})
