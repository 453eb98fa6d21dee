"""The ACER tasks of dm_control: what the suite does there, and what is said where it does not run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from typing import Any

import numpy as np
import pytest

from replaybench.envs import registry
from replaybench.envs.foreign import dm_suite as acer_tasks
from replaybench.envs.foreign.dm_suite import SuiteMember, SuitePlant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import make_plant, missing, plant_class
from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

NAMES = ("AcerCartpole", "AcerCheetah", "AcerFish", "AcerWalker", "AcerHumanoid")
needs_suite = pytest.mark.skipif(bool(missing(NAMES[0])), reason="dm_control does not run here")


def own(plant: SuitePlant, seed: int) -> Any:
    """Return dm_control's own environment."""
    SuiteMember(plant).close()  # imports it, quietly
    from dm_control import suite

    return suite.load(*plant.task, task_kwargs={"random": seed})


def flat(step: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in step.observation.values()])


@needs_suite
@pytest.mark.parametrize("name", NAMES)
def test_members_equal_dm_controls_environment(name: str) -> None:
    env = PopulationEnv(name, 2, seed=5)
    plant = env.plant
    assert isinstance(plant, SuitePlant)
    observation, _ = env.reset()
    seed = int(Stream(5, (0, 1), "initial state").uniform(1)[1, 0] * 2**32)
    theirs = own(plant, seed)
    assert (env.steps_per_episode, plant.discount) == (500, 0.99)  # appendix E.1
    assert theirs.control_timestep() == pytest.approx(env.dt, rel=1e-12)
    assert theirs.physics.timestep() == plant.physics_step
    spec = theirs.action_spec()
    assert spec.shape == (len(plant.action_names),)
    assert [theirs.physics.model.actuator(i).name for i in range(spec.shape[0])] == list(plant.action_names)
    np.testing.assert_array_equal([spec.minimum, spec.maximum], [plant.action_low, plant.action_high])
    np.testing.assert_array_equal(observation[1], flat(theirs.reset()).astype(np.float32))
    rng = np.random.Generator(np.random.PCG64(1))
    for action in rng.uniform(-1, 1, (40, *env.action_space.shape)).astype(np.float32):
        expected = theirs.step(action[1].astype(np.float64))
        observation, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation[1], flat(expected).astype(np.float32))
        assert reward[1] == expected.reward
        assert not terminated.any()
        assert not truncated.any()
    env.close()


@needs_suite
@pytest.mark.parametrize("name", NAMES)
def test_state_names_match_the_models_joints(name: str) -> None:
    """Joints, in the model's order, are found where their names stand."""
    plant = make_plant(name)
    assert isinstance(plant, SuitePlant)
    observed = SuiteMember(plant)
    observed.restart(3)
    for _ in range(5):
        row = observed.advance(np.full(len(plant.actuated), 0.5)).observed
    physics = observed._physics
    shown = dict(zip(plant.state_names, row, strict=True))
    compared = 0
    for joint in (physics.model.joint(i).name for i in range(physics.model.njnt)):
        qpos, qvel = physics.named.data.qpos[joint], physics.named.data.qvel[joint]
        if joint in shown:
            assert shown[joint] == qpos.item()
            compared += 1
        if f"velocity of {joint}" in shown:
            assert shown[f"velocity of {joint}"] == qvel.item()
            compared += 1
    assert compared >= min(3, physics.model.njnt)


@needs_suite
def test_a_simulation_that_blows_up_is_truncated() -> None:
    env = PopulationEnv("AcerCartpole", 2)
    env.reset()
    before = env.step(np.zeros((2, 1)))[0]
    env._engine._simulators[0]._physics.data.qvel[:] = 1e30  # type: ignore[attr-defined]
    observation, reward, terminated, truncated, _ = env.step(np.zeros((2, 1)))
    np.testing.assert_array_equal(truncated, [True, False])
    assert not terminated.any()
    assert reward[0] == 0.0
    np.testing.assert_array_equal(observation[0], before[0])
    env.reset(options={"reset_mask": np.array([True, False])})
    assert np.isfinite(env.step(np.zeros((2, 1)))[0]).all()


@pytest.mark.parametrize(
    ("name", "rate", "told"),
    [
        ("AcerWalker", 80.5, "AcerWalker takes physics steps of 0.0025 s, 5000 to an episode; 80.5 Hz does not cut"),
        ("AcerWalker", 60, "60 Hz does not cut it into equal whole numbers of them: use 50 or 80 Hz"),
        ("AcerCartpole", 200, "200 Hz does not cut it into equal whole numbers of them: use 100 Hz"),
        ("AcerFish", 0, "frequency must be above 0"),
    ],
)
def test_impossible_rates_are_refused(name: str, rate: float, told: str) -> None:
    plant = getattr(acer_tasks, name)()
    with pytest.raises(UserError, match=re.escape(told)):
        plant.steps_per_episode(rate)


def test_without_dm_control_the_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    told = 'plant AcerFish needs the package dm_control and mujoco before 4: pip install "replaybench[dm]"'
    monkeypatch.setattr(registry, "version", lambda package: "4.0.0")
    with pytest.raises(UserError, match=f"^{re.escape(told)}$"):
        plant_class("AcerFish")

    def not_found(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(registry, "version", not_found)
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=f"^{re.escape(told)}$"):
        plant_class("AcerFish")
    monkeypatch.setattr(registry, "version", lambda package: "3.17.0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: "found")
    assert not missing("AcerFish")
