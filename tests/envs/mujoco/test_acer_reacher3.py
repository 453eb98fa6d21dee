"""ACER's three-link reacher, against MuJoCo's own kinematics."""

from __future__ import annotations

import math

import mujoco
import numpy as np
from scipy import stats

from replaybench.envs.mujoco.arms import LINKS, AcerReacher3
from replaybench.envs.mujoco.plant import MujocoEngine
from replaybench.envs.population import PopulationEnv


def moved(env: PopulationEnv, steps: int) -> np.ndarray:
    """Step at random and return the last observation."""
    rng = np.random.Generator(np.random.PCG64(2))
    for _ in range(steps):
        observation = env.step(rng.uniform(-1, 1, env.action_space.shape))[0]
    return np.asarray(observation)


def engine_of(env: PopulationEnv) -> MujocoEngine:
    assert isinstance(env._engine, MujocoEngine)
    return env._engine


def test_observations_and_rewards_match_mujocos_kinematics() -> None:
    env = PopulationEnv("AcerReacher3", 40, seed=3)
    assert (env.steps_per_episode, env.plant.discount, env.action_space.shape[1]) == (500, 0.99, 3)
    env.reset()
    rewarded = set()
    for _ in range(10):
        observation = moved(env, 5)
        _, reward, _, _, infos = env.step(np.zeros((40, 3)))
        observation = infos["true_state"]
        for m, data in enumerate(engine_of(env).data):
            mujoco.mj_kinematics(engine_of(env).model, data)
            way = data.geom("target").xpos - data.geom("tip").xpos
            np.testing.assert_allclose(observation[m, 6:], way[:2], atol=1e-6)
            assert abs(way[2]) < 1e-12
            wrapped = np.arctan2(np.sin(data.qpos[:3]), np.cos(data.qpos[:3]))
            np.testing.assert_allclose(observation[m, :3], wrapped, atol=1e-6)
            np.testing.assert_allclose(observation[m, 3:6], data.qvel[:3], rtol=1e-6)
            assert reward[m] == float(np.hypot(*way[:2]) <= 0.05)
            rewarded.add(reward[m])
    assert rewarded == {0.0, 1.0}


def test_starts_are_spread_and_within_reach() -> None:
    env = PopulationEnv("AcerReacher3", 600, seed=1)
    env.reset()
    qpos = np.array([data.qpos for data in engine_of(env).data])
    radius, inner, outer = np.hypot(qpos[:, 3], qpos[:, 4]), 0.05, 0.28
    assert outer < sum(LINKS)
    spread = {
        "area": (radius**2 - inner**2) / (outer**2 - inner**2),
        "direction": (np.arctan2(qpos[:, 4], qpos[:, 3]) + math.pi) / (2 * math.pi),
        "shoulder": (qpos[:, 0] + math.pi) / (2 * math.pi),
        "elbow": (qpos[:, 1] + 2.6) / 5.2,
        "wrist": (qpos[:, 2] + 2.6) / 5.2,
    }
    for name, values in spread.items():
        assert stats.kstest(values, "uniform").pvalue > 1e-3 / len(spread), name  # by chance once in 1000
    assert not np.array([data.qvel for data in engine_of(env).data]).any()


def test_the_model_file_matches_the_declarations() -> None:
    plant = AcerReacher3()
    assert plant.path.is_file()
    model = plant.model()
    assert model.opt.timestep == plant.physics_step
    assert [model.actuator(i).name for i in range(model.nu)] == list(plant.actuated)
    ends = [model.body("fore").pos[0], model.body("hand").pos[0], model.geom("tip").pos[0]]
    np.testing.assert_array_equal(ends, LINKS)
