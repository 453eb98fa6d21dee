"""The population: members, noise, episodes, masks and state."""

import math
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy import stats

from replaybench.data.errors import UserError
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.population import PopulationEnv

NOISE: dict[str, Any] = {"sensor_noise": 0.02, "actuator_noise": 0.05}


def actions(env: PopulationEnv, steps: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(3))
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)


def test_noise_is_what_the_infos_say_and_rewards_come_from_the_truth() -> None:
    env = PopulationEnv("Magman", 4, **NOISE)
    observation, infos = env.reset()
    np.testing.assert_array_equal(infos["true_state"], np.tile(np.array([-0.5, 0], np.float32), (4, 1)))
    truth = env.get_state()["observed"]
    for command in actions(env, 20):
        observation, reward, _, _, infos = env.step(command)
        applied = np.clip(command + infos["actuator_noise"], -1, 1)
        after, expected = env.simulate(env.plant.normalise_state(truth), applied)
        np.testing.assert_allclose(reward, expected, rtol=1e-5)
        np.testing.assert_allclose(infos["true_state"], after, atol=1e-5)
        np.testing.assert_allclose(observation, infos["true_state"] + infos["sensor_noise"], atol=1e-6)
        truth = env.get_state()["observed"]


def test_noise_has_the_stated_spread_and_independent_streams() -> None:
    """χ² for the spread, correlations for independence: false alarms below 1e-6 each, at a fixed seed."""
    members, sigma = 20, 0.02
    draws = {}
    for role in ("training", "evaluation"):
        env = PopulationEnv("Pendulum", members, sensor_noise=sigma, actuator_noise=sigma, seed=5, role=role)
        env.reset()
        infos = [env.step(np.zeros((members, 1)))[4] for _ in range(200)]
        draws[role, "angle"] = np.array([info["sensor_noise"][:, 0] for info in infos])
        draws[role, "velocity"] = np.array([info["sensor_noise"][:, 1] for info in infos])
        draws[role, "voltage"] = np.array([info["actuator_noise"][:, 0] for info in infos])
    for noise in draws.values():
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], noise.size)
        assert low < (noise.astype(np.float64) ** 2).sum() / sigma**2 < high
        assert abs(noise.mean()) < 5 * sigma / math.sqrt(noise.size)
    columns = np.concatenate(list(draws.values()), axis=1)
    correlation = np.corrcoef(columns.T) - np.eye(columns.shape[1])
    # The largest of n correlations of 200 samples: Fisher's z, Bonferroni over all pairs.
    bound = math.tanh(stats.norm.isf(1e-6 / columns.shape[1] ** 2) / math.sqrt(200 - 3))
    assert abs(correlation).max() < bound


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


def test_noisy_angles_are_added_to_as_printed_or_wrapped_on_demand() -> None:
    seen = {}
    for wrap in (False, True):
        env = PopulationEnv("Pendulum", 200, sensor_noise=0.02, wrap_noisy_angle=wrap)
        env.reset()
        state = env.get_state()
        state["observed"][:, 0] = -math.pi
        env.set_state(state)
        seen[wrap] = env.step(np.zeros((200, 1)))[0]
    assert (seen[False][:, 0] < -1).any()
    assert (seen[True] >= -1).all()
    assert (seen[True] <= 1).all()
    np.testing.assert_allclose((seen[True] - seen[False])[:, 0] % 2, 0, atol=1e-6)
    np.testing.assert_array_equal(seen[True][:, 1], seen[False][:, 1])


def test_an_episode_is_truncated_and_then_frozen() -> None:
    env = PopulationEnv("Pendulum", 3, frequency=5, **NOISE)
    assert (env.steps_per_episode, env.dt) == (20, 0.2)
    env.reset()
    for step, command in enumerate(actions(env, 20), start=1):
        observation, reward, terminated, truncated, _ = env.step(command)
        assert not terminated.any()
        assert (truncated == (step == 20)).all()
    frozen = env.get_state()
    again, reward, _, truncated, _ = env.step(np.ones((3, 1)))
    np.testing.assert_array_equal(again, observation)
    np.testing.assert_array_equal(reward, 0.0)
    assert truncated.all()
    for name, value in env.get_state().items():
        if name != "action":
            np.testing.assert_array_equal(value, frozen[name], name)


def test_a_masked_reset_touches_the_chosen_members_only() -> None:
    env, other = PopulationEnv("Pendulum", 4, **NOISE), PopulationEnv("Pendulum", 4, **NOISE)
    env.reset()
    other.reset()
    commands = actions(env, 30)
    for command in commands[:10]:
        env.step(command)
        other.step(command)
    mask = np.array([False, True, False, True])
    options = {"reset_mask": mask}
    observation, _ = env.reset(options=options)
    assert options["reset_mask"] is mask  # a wrapper around the population reads it after us
    np.testing.assert_array_equal(observation[~mask], other.get_state()["observation"][~mask])
    assert (env.get_state()["observed"][mask] == 0).all()
    assert list(env.get_state()["elapsed"]) == [10, 0, 10, 0]
    for command in commands[10:]:
        *mine, _ = env.step(command)
        *theirs, _ = other.step(command)
        for left, right in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(np.asarray(left)[~mask], np.asarray(right)[~mask])


def test_a_seed_starts_the_noise_anew() -> None:
    env = PopulationEnv("Pendulum", 2, sensor_noise=0.1, seed=1)
    first, second = env.reset()[0], env.reset()[0]
    assert (first != second).all()
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    partly = env.reset(seed=1, options={"reset_mask": np.array([True, False])})[0]
    np.testing.assert_array_equal(partly, first)
    evaluation = PopulationEnv("Pendulum", 2, sensor_noise=0.1, seed=1, role="evaluation").reset()[0]
    assert (evaluation != first).all()


def test_a_restored_state_continues_bit_for_bit() -> None:
    env = PopulationEnv("Magman", 3, **NOISE)
    env.reset()
    commands = actions(env, 40)
    for command in commands[:15]:
        env.step(command)
    saved = env.get_state()
    expected = [env.step(command) for command in commands[15:]]
    fresh = PopulationEnv("Magman", 3, seed=99, **NOISE)
    fresh.set_state(saved)
    for command, (*arrays, infos) in zip(commands[15:], expected, strict=True):
        *again, infos_again = fresh.step(command)
        for left, right in zip([*arrays, *infos.values()], [*again, *infos_again.values()], strict=True):
            np.testing.assert_array_equal(left, right)
    with pytest.raises(UserError, match=r"^this is not the state of a population of 2 Magman$"):
        PopulationEnv("Magman", 2).set_state(saved)


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


def test_an_action_that_is_no_number_names_its_member() -> None:
    env = PopulationEnv("Pendulum", 2, members=[4, 7])
    env.reset()
    with pytest.raises(UserError, match=r"^the action of member 7 is not a number: \[nan\]$"):
        env.step(np.array([[0.0], [np.nan]]))


def test_the_sample_time_can_be_set() -> None:
    env = PopulationEnv("Pendulum")
    env.dt = 0.01
    assert (env.steps_per_episode, env.dt) == (400, 0.01)
    with pytest.raises(UserError, match="cuts the 4 s episode of Pendulum into"):
        env.dt = 0.03


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
def test_wrong_settings_are_told_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        PopulationEnv(Pendulum(), **settings)


def test_wrong_calls_are_told_in_one_line() -> None:
    env = PopulationEnv("Pendulum", 2)
    for member in range(2):  # one after the other is all of them
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(np.zeros((2, 1)))
        env.reset(options={"reset_mask": np.arange(2) == member})
    env.step(np.zeros((2, 1)))
    with pytest.raises(UserError, match=r"^actions have shape \(2,\); this population takes \(2, 1\)$"):
        env.step(np.zeros(2))
    with pytest.raises(UserError, match=r"^reset_mask must be bool of shape \(2,\), not int64 of shape \(2,\)$"):
        env.reset(options={"reset_mask": np.array([0, 1])})
    with pytest.raises(UserError, match=r"^unknown reset option 'mask'; did you mean reset_mask\?$"):
        env.reset(options={"mask": np.ones(2, bool)})


def test_a_plant_named_by_the_user_takes_its_parameters() -> None:
    env = PopulationEnv("Pendulum", parameters={"inertia": 5e-4})
    assert env.plant == Pendulum(inertia=5e-4)
    with pytest.raises(UserError, match="parameters go with a plant's name; this Pendulum has its own already"):
        PopulationEnv(Pendulum(), parameters={"inertia": 5e-4})
    with pytest.raises(UserError, match="did you mean inertia"):
        PopulationEnv("Pendulum", parameters={"inertai": 5e-4})
