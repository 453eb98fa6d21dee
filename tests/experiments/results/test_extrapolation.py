"""Learners that believe in returns which recorded rewards cannot give are told of, others are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.algorithms.acer import ACERConfig
from replaybench.controllers.algorithms.ddpg import DDPGConfig
from replaybench.controllers.algorithms.dqn import DQNConfig
from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3Config
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.exchange.offline_scores import extrapolation, return_bounds, unlearned
from replaybench.exchange.recorded_buffer import Recording, read_recording
from replaybench.experiments.cell import run_cell
from replaybench.experiments.study import Study

LONG = 100_000
"""Updates after which nothing is left of where values began."""
TASK = Task(observation_size=2, action_size=1, discount=0.95, reward_scale=0.01)


class Believer:
    """Two learners, of which the second gives one value to every state."""

    task, window = TASK, 1

    def __init__(self, value: float, share: float = 1.0, bonus: float = 0.0) -> None:
        self.believed, self.share, self.bonus = value, share, bonus

    def value(self, observation: np.ndarray) -> np.ndarray:
        value: np.ndarray = np.full(observation.shape[:2], -20.0, np.float32)
        value[1, : int(self.share * value.shape[1])] = self.believed * TASK.reward_scale
        return value

    def value_bonus(self) -> np.ndarray:
        return np.full(2, self.bonus)


@pytest.fixture(scope="module", params=["read", "streamed"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("recorded")
    study = Study(name="t", plants=("PendulumDCSC",), strategies=("FULL[Uniform]",), seeds=2, episodes=2)
    assert run_cell(study.cells()[0], path, buffers="final")
    return read_recording(path / "buffer.h5", whole=request.param == "read")


def test_returns_are_bounded_by_rewards() -> None:
    rewards = np.array([-4.0, -1.0])
    assert return_bounds(rewards, False, 0.9) == pytest.approx((-40.0, -10.0))
    assert return_bounds(rewards, True, 0.9) == pytest.approx((-40.0, -1.0)), "an end stops the costs"
    assert return_bounds(-rewards, True, 0.9) == pytest.approx((1.0, 40.0))


def test_who_believes_the_impossible_is_told_of(recording: Recording) -> None:
    whole: Any = read_recording(recording.path)
    rewards = whole.arrays["reward"][whole.members[1], whole.orders[1], 0]  # those of the one that believes it
    found = extrapolation(recording, Believer(500.0), 2, LONG)  # type: ignore[arg-type]
    assert found is not None
    assert (found.learners, found.of) == (1, 2)
    assert found.value == pytest.approx(500.0)
    assert found.low == pytest.approx(rewards.min() / 0.05)
    assert found.high == pytest.approx(rewards.max() / 0.05)
    assert "1 of 2 learners extrapolate: one believes in a discounted return of 500" in found.words("td3:slow")
    assert "--learner TD3+BC" in found.words("td3:slow")
    assert "alpha" in found.words("TD3+BC:near")
    assert "TD3+BC" not in found.words("DQN", choices=True)
    low = extrapolation(recording, Believer(-9000.0), 2, LONG)  # type: ignore[arg-type]
    assert low is not None
    assert low.value == pytest.approx(-9000.0)


@pytest.mark.parametrize(
    "believer",
    [Believer(-2000.0), Believer(500.0, share=0.04), Believer(500.0, bonus=2.0)],
    ids=["sound", "few", "bonus"],
)
def test_who_does_not_is_not(recording: Recording, believer: Any) -> None:
    assert extrapolation(recording, believer, 2, LONG) is None


def test_who_has_not_learned_yet_is_not_warned_of(recording: Recording) -> None:
    """Rewards are costs: no return is as high as 0, where values begin."""
    fresh: Any = Believer(0.0)
    assert extrapolation(recording, fresh, 2, LONG) is not None
    assert extrapolation(recording, fresh, 2, 0) is None
    late: Any = Believer(-50.0)
    assert extrapolation(recording, late, 2, LONG) is not None
    assert extrapolation(recording, late, 2, 10_000) is None, "on its way, though little of 0 can be in it"
    hopeful: Any = Believer(500.0)
    assert unlearned(hopeful, 1000) == pytest.approx(0.99975**1000)
    assert extrapolation(recording, hopeful, 2, 100) is None, "no more than a whim of its first weights"
    found = extrapolation(recording, hopeful, 2, 1000)
    assert found is not None
    assert found.high < 0.0, "what is told are the returns of the recording"


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (DDPGConfig(tau=0.01), 0.01),
        (TD3Config(tau=0.01, policy_delay=4), 0.0025),
        (DQNConfig(copy_every=50), 0.02),
        (ACERConfig(average=0.9), 0.1),
    ],
    ids=["DDPG", "TD3", "DQN", "ACER"],
)
def test_learners_leave_their_beginning_as_fast_as_their_copies_follow(config: object, rate: float) -> None:
    agent: Any = SimpleNamespace(config=config, task=TASK)
    assert unlearned(agent, 300) == pytest.approx((1 - 0.05 * rate) ** 300)


def test_what_cannot_be_told_is_not(recording: Recording) -> None:
    remembering: Any = SimpleNamespace(task=TASK, window=8)
    assert extrapolation(recording, remembering, 2, LONG) is None
    endless: Any = SimpleNamespace(task=TASK._replace(discount=1.0), window=1)
    assert extrapolation(recording, endless, 2, LONG) is None


def test_the_entropy_bonus_has_the_unit_of_rewards() -> None:
    agent = SAC(SACConfig(first_temperature=0.5), LearnerSetting(TASK, 0, range(3)))
    np.testing.assert_allclose(agent.value_bonus(), 0.5 * np.log(2.0))
    config = SACConfig(first_temperature=0.5, normalise=NormaliseConfig(rewards=True))
    agent = SAC(config, LearnerSetting(TASK, 0, range(1)))
    agent.normaliser.rewards.update(np.array([-50.0]), np.ones(1, np.bool_))
    assert agent.normaliser.rewards.factor == pytest.approx(0.02)
    np.testing.assert_allclose(agent.value_bonus(), 0.25 * np.log(2.0))
