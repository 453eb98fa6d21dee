"""A policy file's word is not enough to run a Python file: whoever loads it names its learner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import replaybench
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.policies.torch_module import load_torch_policy
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import write_policy
from replaybench.runtime.errors import UserError

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
