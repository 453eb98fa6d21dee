"""Policies: export, reading, and refusal of forged files."""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import replaybench
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.learner import Learner
from replaybench.controllers.policies.policy import memory_of, policy_facts
from replaybench.controllers.policies.torch_module import load_torch_policy, onnx_model, write_torch_program
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.data.policy_file import read_policy, write_policy
from replaybench.runtime.errors import UserError
from tests.helpers.made_policies import policy_of, predicted
from tests.helpers.tiers import slow

S, A = 3, 2
TASK = Task(observation_size=S, action_size=A, discount=0.95, reward_scale=1.0)
STATES = np.random.Generator(np.random.PCG64(0)).normal(size=(40, S)).astype(np.float32)


def stored(learner: str, folder: Path, choices: tuple[int, ...] = ()) -> tuple[Learner, Path]:
    """Write the policies of three learners whose weights are larger than at the start."""
    kind, config = load_learner(learner)
    agent = kind(config(), LearnerSetting(TASK._replace(action_choices=choices), 0, range(3)))
    for array in agent.weights().values():
        array *= 3
    path = folder / "policy.safetensors"
    write_policy(path, agent.weights(), {"policy": policy_facts(learner, agent, 50.0)})
    return agent, path


@pytest.mark.parametrize(
    ("learner", "choices"), [*((name, ()) for name in LEARNERS.own), ("DQN", (2, 3)), ("ACER-discrete", (2, 3))]
)
def test_a_policy_agrees_with_its_learner(learner: str, choices: tuple[int, ...], tmp_path: Path) -> None:
    agent, path = stored(learner, tmp_path, choices)
    expected = agent.policy(np.broadcast_to(STATES, (3, *STATES.shape)).copy())[1]
    policy = replaybench.load_policy(path, 1)
    assert policy.agent.task == agent.task
    greedy, state = policy.predict(STATES, deterministic=True)
    np.testing.assert_array_equal(greedy, expected)
    assert state is None
    single, _ = policy.predict(STATES[7])
    np.testing.assert_allclose(single, expected[7], rtol=1e-5, atol=1e-6)
    drawn = np.stack([policy.predict(STATES, deterministic=False)[0] for _ in range(2)])
    assert drawn.shape == (2, *greedy.shape)
    assert np.isfinite(drawn).all()
    if learner in ("SAC", "V-RACER", "ACER"):
        assert not np.array_equal(drawn[0], drawn[1])
        assert not np.array_equal(drawn[0], greedy)
    found = load_torch_policy(path, 1)(torch.from_numpy(STATES))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_member_is_refused_and_named(value: float, tmp_path: Path) -> None:
    path = stored("TD3", tmp_path)[1]
    facts, weights = read_policy(path)
    weights["actor.0.bias"][1, 2] = value
    write_policy(path, weights, facts)
    for load in (replaybench.load_policy, load_torch_policy):
        with pytest.raises(UserError, match="member 1 .* NaN or infinite"):
            load(path, 1)
        load(path, 2)


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    _, path = stored("TD3", tmp_path)
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


def check_refused(path: Path, weights: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
    """Check that such a file is refused in a line that names it."""
    write_policy(path, weights, facts)
    with pytest.raises(UserError) as told:
        replaybench.load_policy(path)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("keys", "value"), [(keys, value) for keys, values in REFUSED.items() for value in values])
def test_wrong_facts_are_one_line(keys: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    path = stored("DDPG", tmp_path)[1]
    facts, weights = read_policy(path)
    place: Any = facts
    for key in ("policy", *keys)[:-1]:
        place = place[key]
    place[("policy", *keys)[-1]] = value
    check_refused(path, weights, facts)


FORGED: dict[str, Callable[[NDArray[Any]], Any]] = {
    "shape": lambda weight: weight[..., :-1],
    "kind": lambda weight: weight.astype(np.bool_),
    "scalar": lambda weight: np.float32(1.0),
}


@pytest.mark.parametrize("change", ["missing", *FORGED])
def test_wrong_weights_are_one_line(change: str, tmp_path: Path) -> None:
    path = stored("DDPG", tmp_path)[1]
    facts, weights = read_policy(path)
    name = next(iter(weights))
    weight = weights.pop(name)
    if change in FORGED:
        weights[name] = FORGED[change](weight)
    check_refused(path, weights, facts)


EXPORTED = ["DDPG, normalised", *slow(["DDPG, remembering", "V-RACER, remembering"]), "SAC", "DQN", "ACER"]
STEPS = np.random.Generator(np.random.PCG64(0)).normal(size=(100, 100, 3)).astype(np.float32)
"""10⁴ observations: a hundred runs, step by step."""


def acted(program: Callable[..., Any], memory: int) -> NDArray[np.float32]:
    """What a program does that takes and gives a memory of that size, if any."""
    found, state = [], [np.zeros((100, memory), np.float32)] if memory else []
    for observation in STEPS:
        action, *state = program(observation, *state)
        found.append(action)
    assert len(np.unique(found)) > 2
    return np.array(found)


@pytest.mark.parametrize("case", EXPORTED)
def test_in_torch(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(case)
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    write_torch_program(policy, tmp_path / "p.partial", {})
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    (tmp_path / "p.partial").rename(tmp_path / "p.pt2")
    module = torch.export.load(tmp_path / "p.pt2").module()
    memory = memory_of(policy.agent.policy_head())

    def program(*given: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        found = module(*map(torch.from_numpy, given))
        return [tensor.detach().numpy() for tensor in (found if memory else [found])]

    np.testing.assert_allclose(np.clip(acted(program, memory), -1, 1), predicted(policy, STEPS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", EXPORTED)
def test_in_onnx(case: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    policy = policy_of(case)
    session = runtime.InferenceSession(onnx_model(policy, ["test"], {"frequency": 50.0}).SerializeToString())
    names = ("observation", "memory")

    def program(*given: NDArray[np.float32]) -> Any:
        outputs = ("action", "memory_after")[: len(given)]
        return session.run(outputs, dict(zip(names, given, strict=False)))

    found = acted(program, memory_of(policy.agent.policy_head()))
    np.testing.assert_allclose(found, predicted(policy, STEPS), rtol=1e-4, atol=1e-5)


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
