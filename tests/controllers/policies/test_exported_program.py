"""Policies as programs of PyTorch and as ONNX models act as `predict` does, step after step where they remember."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.controllers.networks.network import MemoryConfig
from replaybench.controllers.policies.policy import Policy, policy_facts
from replaybench.controllers.policies.torch_module import onnx_model, write_torch_program
from replaybench.controllers.registry import load_learner

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
