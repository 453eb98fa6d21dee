"""What learners are built with: what one cannot do with is refused at once, in one line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.replay.strategies.strategy import ReFER
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError

TASK = Task(observation_size=3, action_size=2, discount=0.95, reward_scale=1.0)


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_refer_and_devices_are_refused_by_whoever_cannot_do_with_them(learner: str) -> None:
    kind, config = load_learner(learner)
    settings = config()
    remedy = "use it with" if not kind.supports_refer else None if learner == "V-RACER" else 'form = "gaussian"'
    setting = LearnerSetting(TASK, 0, range(1), refer=ReFER())
    if remedy is None:
        assert kind(settings, setting).refer.on
    else:
        with pytest.raises(UserError, match=f"^{re.escape(learner)}.*{remedy}"):
            kind(settings, setting)
    if learner != "DDPG":
        with pytest.raises(UserError, match=f"^{re.escape(learner)} runs on the CPU only"):
            kind(settings, LearnerSetting(TASK, 0, range(1), device="cuda"))


def test_streams_are_those_of_the_members() -> None:
    setting = LearnerSetting(TASK, 3, [4, 5])
    alone = LearnerSetting(TASK, 3, [5])
    assert (setting.stream("exploration").state[1:] == alone.stream("exploration").state).all()
    assert (setting.stream("update").state != setting.stream("exploration").state).any()


@pytest.mark.parametrize(
    ("learner", "wrong"),
    [
        ("DDPG", {"tau": 1.5}), ("TD3", {"smoothing": -0.1}), ("TD3", {"policy_delay": 0}),
        ("TD3", {"betas": (0.9, 1.0)}),
        ("TD3", {"actor_hidden": (64, 0)}), ("TD3+BC", {"alpha": float("inf")}), ("SAC", {"temperature": 0.0}),
        ("NAF", {"learning_rate": float("nan")}), ("V-RACER", {"first_sigma": 0.0}), ("DQN", {"huber": -1.0}),
        ("ACER", {"replays_per_experience": 0.0}), ("ACER", {"segment": 0}), ("ACER-discrete", {"entropy": -1.0}),
        ("DDPG", {"memory": {"window": 1}}), ("DDPG", {"memory": {"units": 10**6}}),
        ("DDPG", {"memory": {"start": "x"}}),
        ("DDPG", {"memory": {}, "exploration": {"form": "parameter"}}), ("DDPG", {"normalise": {"clip": 1.0}}),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_naming_the_setting(learner: str, wrong: dict[str, Any]) -> None:
    config = load_learner(learner)[1]
    with pytest.raises(UserError, match=next(iter(wrong))):
        build(config, wrong, f"[learner.{learner}]")
    if not isinstance(next(iter(wrong.values())), dict):
        with pytest.raises(UserError, match=next(iter(wrong))):
            config(**wrong)
