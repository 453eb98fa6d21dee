"""Ours where Gymnasium's own environments stand."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import replaybench.envs  # noqa: F401 (registers the plants)
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import missing, plant_names, register_gymnasium
from tests.helpers.tiers import slow

ONE_PER_ENGINE = ("Pendulum", "Magman", "MujocoHopper", "BulletHopper", "Drafting")


def test_the_single_view_is_a_population_of_one() -> None:
    single = gymnasium.make("replaybench/Pendulum-v0", sensor_noise=0.1, seed=4)
    many = PopulationEnv("Pendulum", 3, sensor_noise=0.1, seed=4)
    observation, _ = single.reset()
    observations, _ = many.reset()
    np.testing.assert_array_equal(observation, observations[0])
    for voltage in (0.3, -1.0):
        observation, reward, terminated, truncated, info = single.step(np.array([voltage], np.float32))
        observations, rewards, _, _, infos = many.step(np.full((3, 1), voltage))
        np.testing.assert_array_equal(observation, observations[0])
        assert reward == rewards[0]
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        np.testing.assert_array_equal(info["sensor_noise"], infos["sensor_noise"][0])


def test_noise_is_random_without_a_seed_and_reproducible_with_one() -> None:
    def noise(**given: Any) -> float:
        env = gymnasium.make("replaybench/Pendulum-v0", sensor_noise=0.1, **given)
        first, second = (float(env.reset()[1]["sensor_noise"][0]) for _ in range(2))
        assert first != second
        return first

    assert noise() != noise()
    assert noise(seed=0) == noise(seed=0)


def test_make_vec_gives_a_population() -> None:
    kwargs: dict[str, Any] = {"num_envs": 3, "vectorization_mode": "vector_entry_point", "plant": Pendulum(mass=0.1)}
    env = gymnasium.make_vec("replaybench/Pendulum-v0", **kwargs)
    assert isinstance(env, PopulationEnv)
    assert env.plant == Pendulum(mass=0.1)
    modes = getattr(gymnasium.vector, "AutoresetMode", None)  # Gymnasium 1.0 has none
    assert env.metadata["autoreset_mode"] is (modes and modes.DISABLED)
    assert env.observation_space.shape == (3, 2)


def test_wrappers_and_gymnasiums_own_vectors_work() -> None:
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec("replaybench/Magman-v0", num_envs=2))
    env.reset(seed=0)
    total = np.zeros(2)
    for _ in range(200):
        _, reward, _, truncated, infos = env.step(np.zeros((2, 4), np.float32))
        total += reward
    assert truncated.all()
    np.testing.assert_allclose(infos["episode"]["r"], total)
    sync = gymnasium.make_vec("replaybench/Magman-v0", num_envs=2, vectorization_mode="sync")
    sync.reset(seed=0)
    np.testing.assert_allclose(sync.step(np.zeros((2, 4), np.float32))[1], reward[0], rtol=1)


@pytest.mark.parametrize("name", slow((name for name in plant_names() if not missing(name)), but=ONE_PER_ENGINE))
def test_pictures_show_the_state_and_leave_it_alone(name: str) -> None:
    env, other = PopulationEnv(name, 2, render_mode="rgb_array"), PopulationEnv(name, 2)
    action = np.stack([-np.ones(env.action_space.shape[1]), np.ones(env.action_space.shape[1])])
    for each in (env, other):
        each.reset()
        each.step(action)
    frames = env.render()
    assert frames is not None
    assert [frame.dtype for frame in frames] == [np.uint8] * 2
    assert all(frame.shape == frames[0].shape and frame.shape[2:] == (3,) and frame.size >= 480**2 for frame in frames)
    assert (frames[0] != frames[1]).any()
    assert other.render() is None
    np.testing.assert_array_equal(env.step(action)[0], other.step(action)[0])
    env.close()
    other.close()


@pytest.mark.slow
def test_an_id_alone_finds_its_module_in_a_fresh_process() -> None:
    code = 'import gymnasium; gymnasium.make("replaybench.envs:replaybench/Pendulum-v0").reset(seed=0)'
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    register_gymnasium()  # a second time changes nothing, and warns of nothing
    assert {f"replaybench/{name}-v0" for name in plant_names()} <= gymnasium.registry.keys()


@pytest.mark.parametrize(("settings", "steps"), [({}, 200), ({"frequency": 100}, 400), ({"frequency": 25}, 100)])
def test_the_spec_has_the_steps_of_an_episode_at_every_rate(settings: dict[str, Any], steps: int) -> None:
    """Also when it is made again from that spec, as recorders of data sets do; then with a time limit that agrees."""
    first = gymnasium.make("replaybench/Pendulum-v0", **settings)
    assert first.spec is not None
    again = gymnasium.make(first.spec)
    for env in (first, again):
        assert env.spec is not None
        assert env.spec.max_episode_steps == steps
        env.reset(seed=0)
        ends = [env.step(np.zeros(1, np.float32))[3] for _ in range(steps)]
        assert ends == [False] * (steps - 1) + [True]
        env.close()
    check_env(again.unwrapped, skip_render_check=True)
