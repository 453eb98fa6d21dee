"""Policies: export, reading, and refusal of forged files."""

import copy
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import replaybench
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.network import MemoryConfig
from replaybench.controllers.policies.policy import Policy, policy_facts
from replaybench.controllers.policies.torch_module import load_torch_policy, onnx_model, write_torch_program
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
def test_single_observations_samples_and_a_module_agree_with_the_learner(learner: str, tmp_path: Path) -> None:
    agent, path = stored(learner, tmp_path)
    expected = agent.policy(np.broadcast_to(STATES, (3, *STATES.shape)).copy())[1]
    policy = replaybench.load_policy(path, 1)
    greedy, state = policy.predict(STATES, deterministic=True)
    np.testing.assert_array_equal(greedy, expected)
    assert state is None
    single, _ = policy.predict(STATES[7])
    np.testing.assert_allclose(single, expected[7], rtol=1e-5, atol=1e-6)
    assert single.shape == (A,)
    drawn = np.stack([policy.predict(STATES, deterministic=False)[0] for _ in range(2)])
    assert drawn.shape == (2, *greedy.shape)
    assert np.isfinite(drawn).all()
    if learner in ("SAC", "V-RACER", "ACER"):
        assert not np.array_equal(drawn[0], drawn[1])
        assert not np.array_equal(drawn[0], greedy)
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


NUMBERS: list[Any] = ["1", None, [], {}, True, math.nan, -3, 0]
SIZES: list[Any] = [*NUMBERS, 1.5, 4, 10**12, 10**400]

REFUSED: dict[tuple[str, ...], list[Any]] = {
    (): [None, 5, "x", [], {}, {"learner": "DDPG"}],
    ("learner",): [None, 5, [], "x", "../x", ""],
    ("settings",): [None, 5, "x", [], {"x": 1}, {"actor_hidden": "x"}, {"actor_hidden": [10**12, 10**12]}],
    ("task",): [None, 5, "x", [], {}, {"observation_size": 3}],
    ("task", "observation_size"): SIZES,
    ("task", "action_size"): SIZES,
    ("task", "discount"): [value for value in NUMBERS if value != 0] + [1e300],
    ("task", "action_choices"): [5, "x", [-1, 2], ["x", 2], [0, 2], [2], [10**12, 2]],
    ("frequency",): [*NUMBERS, 1e300, math.inf],
}


@pytest.fixture(scope="module")
def sound() -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Weights of two members and their facts."""
    kind, config = load_learner("DDPG")
    agent = kind(config(), LearnerSetting(Task(3, 2, 0.95, 1.0), 0, range(2)))
    return agent.weights(), policy_facts("DDPG", agent, 50.0)


@pytest.mark.parametrize(("keys", "value"), [(keys, value) for keys, values in REFUSED.items() for value in values])
def test_wrong_facts_are_one_line(
    keys: tuple[str, ...], value: Any, sound: tuple[dict[str, NDArray[Any]], dict[str, Any]], tmp_path: Path
) -> None:
    weights, policy = sound
    facts = {"policy": copy.deepcopy(policy)}
    place: Any = facts
    for key in ("policy", *keys)[:-1]:
        place = place[key]
    place[("policy", *keys)[-1]] = value
    write_policy(tmp_path / "p.safetensors", weights, facts)
    with pytest.raises(UserError) as told:
        replaybench.load_policy(tmp_path / "p.safetensors")
    assert str(tmp_path / "p.safetensors") in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("change", ["missing", "shape", "kind", "scalar"])
def test_wrong_weights_are_one_line(
    change: str, sound: tuple[dict[str, NDArray[Any]], dict[str, Any]], tmp_path: Path
) -> None:
    weights, policy = sound
    name, *others = weights
    forged: dict[str, dict[str, Any]] = {
        "missing": {other: weights[other] for other in others},
        "shape": {**weights, name: weights[name][..., :-1]},
        "kind": {**weights, name: weights[name].astype(np.bool_)},
        "scalar": {**weights, name: np.float32(1.0)},
    }
    write_policy(tmp_path / "p.safetensors", forged[change], {"policy": policy})
    with pytest.raises(UserError) as told:
        replaybench.load_policy(tmp_path / "p.safetensors")
    assert str(tmp_path / "p.safetensors") in str(told.value)


SETTINGS: dict[str, dict[str, Any]] = {
    "DDPG, normalised": {"normalise": NormaliseConfig(observations=True, clip=1.5), "layer_norm": True},
    "DDPG, remembering": {"memory": MemoryConfig(layers=2, units=7)},
    "V-RACER, remembering": {"memory": MemoryConfig(layers=1, units=8), "hidden": (9,)},
    "SAC": {},
    "DQN": {},
    "ACER": {"output_scale": 1.0},
}
STEPS = np.random.Generator(np.random.PCG64(0)).normal(size=(100, 100, 3)).astype(np.float32)
"""10⁴ observations: a hundred runs, step by step."""


def policy_of(case: str) -> Policy:
    learner = case.partition(",")[0]
    kind, config = load_learner(learner)
    agent = kind(config(**SETTINGS[case]), LearnerSetting(Task(3, 2, 0.95, 1.0), 0, range(1), 50.0))
    seen = np.random.Generator(np.random.PCG64(1)).normal(0.3, 0.4, (1, 50, 3)).astype(np.float32)
    agent.normaliser.observations.update(seen, np.ones(1, np.bool_))
    return Policy(agent, {"policy": policy_facts(learner, agent, 50.0)})


def due(policy: Policy) -> NDArray[np.float32]:
    state, found = None, []
    for observation in STEPS:
        action, state = policy.predict(observation, state)
        found.append(action)
    assert len(np.unique(found)) > 2
    return np.array(found)


@pytest.mark.parametrize("case", SETTINGS)
def test_in_torch(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(case)
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    write_torch_program(policy, tmp_path / "p.partial", {})
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    (tmp_path / "p.partial").rename(tmp_path / "p.pt2")
    program = torch.export.load(tmp_path / "p.pt2").module()
    found, memory = [], None
    for observation in torch.from_numpy(STEPS):
        if "remembering" in case:
            memory = torch.zeros(100, 28 if "DDPG" in case else 16) if memory is None else memory
            action, memory = program(observation, memory)
        else:
            action = program(observation)
        found.append(action.detach().numpy())
    np.testing.assert_allclose(np.clip(found, -1, 1), due(policy), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", SETTINGS)
def test_in_onnx(case: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    policy = policy_of(case)
    session = runtime.InferenceSession(onnx_model(policy, ["test"], {"frequency": 50.0}).SerializeToString())
    found, memory = [], None
    for observation in STEPS:
        given = {"observation": observation}
        if "remembering" in case:
            size = session.get_inputs()[1].shape[1]
            given["memory"] = np.zeros((100, size), np.float32) if memory is None else memory
            action, memory = session.run(["action", "memory_after"], given)
        else:
            (action,) = session.run(["action"], given)
        found.append(action)
    np.testing.assert_allclose(found, due(policy), rtol=1e-4, atol=1e-5)


SOURCE = """
from pathlib import Path
from replaybench.controllers.algorithms.dqn import DQN, DQNConfig

class Mine(DQN):
    pass

class MineConfig(DQNConfig):
    pass
"""


@pytest.mark.parametrize("variant", ["", ":slow"])
def test_a_policy_runs_no_python_file_that_was_not_named(tmp_path: Path, variant: str) -> None:
    own, marker = tmp_path / "own.py", tmp_path / "ran"
    own.write_text(SOURCE)
    name = f"{own}:Mine{variant}"
    kind, config = load_learner(name)
    agent = kind(config(), LearnerSetting(Task(3, 1, 0.95, 1.0), 0, range(2)))
    path = tmp_path / "policy.safetensors"
    write_policy(path, agent.weights(), {"policy": policy_facts(name, agent, 50.0)})
    own.write_text(f"{SOURCE}Path({str(marker)!r}).touch()\n")  # a stranger's, with whatever he likes
    for load in (replaybench.load_policy, load_torch_policy):
        with pytest.raises(UserError, match=r"own\.py:Mine.*say so with --learner"):
            load(path)
        assert not marker.exists()
    states = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    policy = replaybench.load_policy(path, 1, learner=name)
    assert marker.exists()
    np.testing.assert_array_equal(policy.predict(states)[0], agent.policy(np.stack([states] * 2))[1])
