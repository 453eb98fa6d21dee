"""Policy files whose facts are wrong, checksum and all: one line that names the file."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import replaybench
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import write_policy
from replaybench.runtime.errors import UserError

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
    """Weights of two members and the facts beside them."""
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
