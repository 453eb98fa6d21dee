"""A policy taken to PyTorch acts as it did here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from replaybench.controllers.agent import Task
from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.policies.torch_module import load_torch_policy
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError
from replaybench.data.formats.policy_file import write_policy


@pytest.mark.parametrize("normalise", [{}, {"observations": True}, {"observations": True, "clip": 0.5}])
def test_a_policy_in_torch_gives_the_same_actions(tmp_path: Path, normalise: dict[str, Any]) -> None:
    agent = DDPG(DDPGConfig(normalise=NormaliseConfig(**normalise)), LearnerSetting(Task(2, 4, 0.95, 1.0), 0, range(3)))
    collected = np.random.Generator(np.random.PCG64(0)).normal(0.3, 0.4, (3, 50, 2)).astype(np.float32)
    agent.normaliser.observations.update(collected, np.ones(3, np.bool_))
    facts = {"policy": policy_facts("DDPG", agent, 50.0)}
    write_policy(tmp_path / "p.safetensors", agent.weights(), facts)
    observation = np.linspace(-1, 1, 20, dtype=np.float32).reshape(10, 2)
    ours = agent.policy(np.broadcast_to(observation, (3, 10, 2)))
    for member in range(3):
        theirs = load_torch_policy(tmp_path / "p.safetensors", member)(torch.from_numpy(observation))
        np.testing.assert_allclose(theirs.detach().numpy(), ours[member], rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="members 0 to 2, not 3"):
        load_torch_policy(tmp_path / "p.safetensors", 3)
    write_policy(tmp_path / "q.safetensors", {"critic.0.weight": np.zeros((1, 2, 3))}, {})
    with pytest.raises(UserError, match="'policy' is missing"):
        load_torch_policy(tmp_path / "q.safetensors")
