"""Learners that act at random while they warm up: how, by whose draws, and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peers import TASK, S
from scipy.stats import chisquare, kstest

from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3, TD3Config
from replaybench.controllers.interface.agent import LearnerSetting

LEARNERS = {"SAC": (SAC, SACConfig()), "TD3": (TD3, TD3Config())}
each = pytest.mark.parametrize("name", LEARNERS)
OBSERVATION = np.linspace(-1, 1, 5 * S, dtype=np.float32).reshape(5, S)


def make(name: str, members: range, warming_up: bool = True) -> Any:
    learner, config = LEARNERS[name]
    agent = learner(config, LearnerSetting(TASK, 0, members))
    agent.warming_up = warming_up
    agent.start_episode(0, np.ones(len(members), np.bool_))
    return agent


def explored(agent: Any, observation: np.ndarray, steps: int) -> np.ndarray:
    everyone = np.ones(len(observation), np.bool_)
    return np.stack([agent.explore(observation, everyone).action for _ in range(steps)])


@each
def test_actions_are_uniform_and_independent(name: str) -> None:
    """Kolmogorov–Smirnov over all; χ² over cells of both dimensions and of successive steps: false alarms 1 in 1000."""
    actions = explored(make(name, range(5)), OBSERVATION, 4000)
    assert actions.dtype == np.float32
    assert kstest(actions.ravel(), "uniform", args=(-1, 2)).pvalue > 1e-3
    for one, other in (
        (actions[..., 0], actions[..., 1]),
        (actions[:-1:2, :, 0], actions[1::2, :, 0]),
        (actions[:, 0], actions[:, 1]),
    ):
        cells = np.histogram2d(one.ravel(), other.ravel(), bins=8, range=[(-1, 1), (-1, 1)])[0]
        assert chisquare(cells.ravel()).pvalue > 1e-3


@each
def test_a_members_actions_are_its_own(name: str) -> None:
    """Bit for bit alone or beside others, and those who wait draw nothing."""
    together = explored(make(name, range(5)), OBSERVATION, 6)
    np.testing.assert_array_equal(together[:, 3:4], explored(make(name, range(3, 4)), OBSERVATION[3:4], 6))
    waited = make(name, range(5))
    for _ in range(3):
        waited.explore(OBSERVATION, np.arange(5) != 3)
    late = explored(waited, OBSERVATION, 3)
    np.testing.assert_array_equal(late[:, 3], together[:3, 3])
    np.testing.assert_array_equal(late[:, 2], together[3:, 2])


@each
def test_nothing_else_draws_from_that_stream(name: str) -> None:
    """Without warm-up it stays as it was; what is explored afterwards is as if there had been none."""
    agent, plain = make(name, range(5)), make(name, range(5), warming_up=False)
    before = plain.state_dict()["warm_up_stream"].copy()
    reference = explored(plain, OBSERVATION, 6)
    np.testing.assert_array_equal(plain.state_dict()["warm_up_stream"], before)
    explored(agent, OBSERVATION, 3)
    assert not np.array_equal(agent.state_dict()["warm_up_stream"], before)
    agent.warming_up = False
    # TD3's process goes on underneath, SAC's noise of a step is drawn for that step only.
    np.testing.assert_array_equal(explored(agent, OBSERVATION, 3), reference[3:] if name == "TD3" else reference[:3])
