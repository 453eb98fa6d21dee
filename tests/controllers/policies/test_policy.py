"""A policy file is usable by itself: loaded, asked as Stable-Baselines3 is, taken to PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import replaybench
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.learner import Learner
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.policies.torch_module import load_torch_policy
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.data.policy_file import write_policy
from replaybench.runtime.errors import UserError

S, A = 3, 2
TASK = Task(observation_size=S, action_size=A, discount=0.95, reward_scale=1.0)
STATES = np.random.Generator(np.random.PCG64(0)).normal(size=(40, S)).astype(np.float32)
every_learner = pytest.mark.parametrize("learner", LEARNERS.own)


def stored(learner: str, folder: Path) -> tuple[Learner, Path]:
    """Write the policies of three learners whose weights are larger than at the start."""
    kind, config = load_learner(learner)
    agent = kind(config(), LearnerSetting(TASK, 0, range(3)))
    for array in agent.weights().values():
        array *= 3
    path = folder / "policy.safetensors"
    write_policy(path, agent.weights(), {"policy": policy_facts(learner, agent, 50.0)})
    return agent, path


@every_learner
def test_a_loaded_policy_predicts_what_its_learner_does(learner: str, tmp_path: Path) -> None:
    agent, path = stored(learner, tmp_path)
    expected = agent.policy(np.broadcast_to(STATES, (3, *STATES.shape)).copy())
    for member in range(3):
        policy = replaybench.load_policy(path, member)
        actions, state = policy.predict(STATES, deterministic=True)
        np.testing.assert_array_equal(actions, expected[member])
        assert state is None
        single, _ = policy.predict(STATES[7])
        np.testing.assert_allclose(single, expected[member, 7], rtol=1e-5, atol=1e-6)
        assert single.shape == (A,)
        drawn, _ = policy.predict(STATES, deterministic=False)
        assert drawn.shape == actions.shape
        assert np.isfinite(drawn).all()
    assert not np.array_equal(expected[0], expected[1])


@every_learner
def test_as_a_module_it_acts_alike(learner: str, tmp_path: Path) -> None:
    agent, path = stored(learner, tmp_path)
    expected = agent.policy(np.broadcast_to(STATES, (3, *STATES.shape)).copy())[1]
    found = load_torch_policy(path, 1)(torch.from_numpy(STATES))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learner", ["DQN", "ACER-discrete"])
def test_a_policy_over_a_plants_choices_is_loaded_as_one(learner: str, tmp_path: Path) -> None:
    kind, config = load_learner(learner)
    agent = kind(config(), LearnerSetting(TASK._replace(action_choices=(2, 3)), 0, range(2)))
    path = tmp_path / "policy.safetensors"
    write_policy(path, agent.weights(), {"policy": policy_facts(learner, agent, 50.0)})
    policy = replaybench.load_policy(path, 1)
    assert policy.agent.task == agent.task
    expected = agent.policy(np.broadcast_to(STATES, (2, *STATES.shape)).copy())[1]
    np.testing.assert_array_equal(policy.predict(STATES)[0], expected)
    np.testing.assert_array_equal(load_torch_policy(path, 1)(torch.from_numpy(STATES)).numpy(), expected)
    assert set(expected[:, 0]) <= {-1.0, 1.0}
    assert set(expected[:, 1]) <= {-1.0, 0.0, 1.0}


def test_stochastic_policies_sample(tmp_path: Path) -> None:
    for learner in ("SAC", "V-RACER", "ACER"):
        policy = replaybench.load_policy(stored(learner, tmp_path)[1])
        greedy = policy.predict(STATES, deterministic=True)[0]
        drawn = np.stack([policy.predict(STATES, deterministic=False)[0] for _ in range(2)])
        assert not np.array_equal(drawn[0], drawn[1]), learner
        assert not np.array_equal(drawn[0], greedy), learner


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_member_is_refused_and_named(value: float, tmp_path: Path) -> None:
    agent, path = stored("TD3", tmp_path)
    weights = {name: array.copy() for name, array in agent.weights().items()}
    weights["actor.0.bias"][1, 2] = value
    write_policy(path, weights, {"policy": policy_facts("TD3", agent, 50.0)})
    for load in (replaybench.load_policy, load_torch_policy):
        with pytest.raises(UserError, match="member 1 .* NaN or infinite"):
            load(path, 1)
        load(path, 2)


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    _, path = stored("TD3", tmp_path)
    with pytest.raises(UserError, match="members 0 to 2, not 3"):
        replaybench.load_policy(path, 3)
    with pytest.raises(UserError, match="holds 3 numbers"):
        replaybench.load_policy(path).predict(np.zeros(2))
    write_policy(tmp_path / "old.safetensors", {"critic.0.weight": np.zeros((1, 2, 3))}, {})
    with pytest.raises(UserError, match="'policy' is missing"):
        replaybench.load_policy(tmp_path / "old.safetensors")
    with pytest.raises(UserError, match="no such file"):
        replaybench.load_policy(tmp_path / "none.safetensors")
