"""Learners' settings, normalisation of observations, tables of actions."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.algorithms.ddpg import DDPG, DDPGConfig
from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
from replaybench.controllers.interface.agent import (
    MOST,
    ActionLevels,
    LearnerSetting,
    NormaliseConfig,
    ObservationNormaliser,
    RewardScale,
)
from replaybench.controllers.registry import LEARNERS, SETTING_WORDS, load_learner
from replaybench.experiments.study_record import flat
from replaybench.replay.strategies.strategy import ReFER
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError
from tests.helpers import normalised, peers
from tests.helpers.peers import B, S
from tests.helpers.tiers import slow

M = 4
BOTH = NormaliseConfig(observations=True, clip=5.0, rewards=True)


def collected(steps: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations `[T, M, S]` far from zero, rewards `[T, M]` and who was active `[T, M]`."""
    rng = np.random.Generator(np.random.PCG64(3))
    observation = (1000 + rng.normal(size=(steps, M, S)) * [0.5, 3.0, 0.0]).astype(np.float32)
    active = rng.random((steps, M)) < 0.7
    active[:, 3] = False
    return observation, rng.normal(-5, 2, (steps, M)), active


def told(config: NormaliseConfig = BOTH) -> tuple[ObservationNormaliser, RewardScale]:
    scaler, rewards = ObservationNormaliser(config, M, S), RewardScale(config, M, 0.01)
    for observation, reward, active in zip(*collected(), strict=True):
        scaler.update(observation, active)
        rewards.update(reward, active)
    return scaler, rewards


def test_statistics_are_numpys_over_what_each_member_collected() -> None:
    (scaler, rewards), (observation, reward, active) = told(), collected()
    for m in range(3):
        seen = observation[active[:, m], m].astype(np.float64)
        assert scaler.count[m] == rewards.count[m] == len(seen)
        np.testing.assert_allclose(scaler.mean[m], seen.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(scaler.variance[m], seen.var(axis=0), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(scaler.scale[m], 1 / np.maximum(seen.std(axis=0), 1e-2), rtol=1e-9)
        np.testing.assert_allclose(rewards.factor[m], 1 / np.sqrt((reward[active[:, m], m] ** 2).mean()), rtol=1e-12)
    np.testing.assert_array_equal(scaler.mean[3], 0)
    np.testing.assert_array_equal(scaler.scale[3], 1)
    assert rewards.factor[3] == 0.01


def test_observations_are_standardised_and_bounded() -> None:
    scaler, _ = told()
    x = np.random.Generator(np.random.PCG64(0)).normal(1000, 4, (M, 5, 2, S)).astype(np.float32)
    expected = np.clip((x - scaler.mean[:, None, None]) * scaler.scale[:, None, None], -5, 5)
    found = scaler(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert np.abs(found).max() == 5.0
    free, _ = told(NormaliseConfig(observations=True))
    assert np.abs(free(x)).max() > 5.0
    x[0, 0, 0, 0] = np.nan
    assert np.isnan(scaler(x)[0, 0, 0, 0])


def test_the_first_samples_are_neither_lost_nor_blown_up() -> None:
    """Identity before the first; zero at the first; two equal observations leave the least deviation."""
    scaler, rewards = ObservationNormaliser(BOTH, 1, 1), RewardScale(BOTH, 1, 7.0)
    one, everyone = np.ones((1, 1), np.float32), np.ones(1, np.bool_)
    assert scaler(one * 3) == 3
    assert rewards.factor == 7.0
    scaler.update(one * 2, everyone)
    assert scaler(one * 2) == 0
    assert scaler(one * 3) == 1
    scaler.update(one * 2, everyone)
    np.testing.assert_allclose(scaler(one * np.float32(2.01)), 1.0, rtol=1e-4)
    rewards.update(np.array([-4.0]), everyone)
    assert rewards.factor == 0.25
    nothing = RewardScale(BOTH, 1, 7.0)
    nothing.update(np.zeros(1), everyone)
    assert nothing.factor == 1e6


def test_off_is_the_identity_and_holds_nothing() -> None:
    scaler, rewards = told(NormaliseConfig())
    x = np.ones((M, 2, S), np.float32)
    assert scaler(x) is x
    np.testing.assert_array_equal(rewards.factor, 0.01)
    assert not {**scaler.state_dict(), **rewards.state_dict()}


WEIGHED: dict[str, tuple[Any, Any]] = {
    "DDPG": (DDPG, DDPGConfig()),
    "TD3": (TD3, TD3Config(batch_size=B, policy_delay=1)),
    "TD3+BC": (TD3BC, TD3BCConfig(batch_size=B, policy_delay=1)),
    "SAC": (SAC, SACConfig(batch_size=B)),
    "SAC, first version": (SAC, SACConfig(version="first", temperature=0.2, batch_size=B)),
}


@pytest.mark.parametrize("name", slow(WEIGHED, only=["SAC, first version"]))
def test_weights_of_samples_reach_their_own_losses(name: str) -> None:
    """Importance weights scale the critics' losses, actor weights those of all other networks."""
    kind, config = WEIGHED[name]
    stays = {"weight": (False, True), "actor_weight": (True, False), "rate_factor": (True, True)}
    for zeroed, (of_actor, of_others) in stays.items():
        agent, drawn = kind(config, LearnerSetting(peers.TASK, 0, range(1))), peers.batch(1, 0)
        learned = {**agent.networks, **({"temperature": agent.log_temperature} if kind is SAC else {})}
        before = {name: network.parameters.copy() for name, network in learned.items()}
        getattr(drawn, zeroed)[:] = 0.0
        agent.update(drawn)
        for name, network in learned.items():
            still = of_actor if name in ("actor", "temperature", "value") else of_others
            fixed = name == "temperature" and config.temperature is not None
            assert np.array_equal(network.parameters, before[name]) == (still or fixed), (zeroed, name)


def learner(config: NormaliseConfig, dtype: type[np.floating] = np.float32) -> DDPG:
    return DDPG(DDPGConfig(normalise=config), LearnerSetting(peers.TASK, 0, range(M), dtype=dtype))


@pytest.mark.slow
def test_a_learner_that_normalises_equals_one_that_is_given_normalised_numbers() -> None:
    normalised.check_normalised(lambda c: learner(c, np.float64), lambda seed: peers.batch(M, seed, np.float64))


def test_weights_carry_the_statistics_to_another_learner() -> None:
    agent, other, x = learner(BOTH), learner(BOTH), 20 + np.ones((M, 3, S), np.float32)
    normalised.collect(agent)
    other.load_weights({name: array.copy() for name, array in agent.weights().items()})
    np.testing.assert_array_equal(agent.value(x), other.value(x))
    with pytest.raises(UserError, match="do not fit"):
        learner(NormaliseConfig()).load_weights(agent.weights())


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_refer_is_refused_by_learners_without_it(learner: str) -> None:
    kind, config = load_learner(learner)
    remedy = "use it with" if not kind.supports_refer else None if learner == "V-RACER" else 'form = "gaussian"'
    setting = LearnerSetting(peers.TASK, 0, range(1), refer=ReFER())
    if remedy is None:
        assert kind(config(), setting).density.refer.on
    else:
        with pytest.raises(UserError, match=f"^{re.escape(learner)}.*{remedy}"):
            kind(config(), setting)


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
        ("DDPG", {"memory": {}, "l2_form": "weights"}),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_naming_the_setting(learner: str, wrong: dict[str, Any]) -> None:
    config = load_learner(learner)[1]
    with pytest.raises(UserError, match=next(iter(wrong))):
        build(config, wrong, f"[learner.{learner}]")
    if not isinstance(next(iter(wrong.values())), dict):
        with pytest.raises(UserError, match=next(iter(wrong))):
            config(**wrong)


def test_every_setting_has_a_line_here_and_on_the_page_and_no_line_is_left_over() -> None:
    configs = [load_learner(name)[1]() for name in LEARNERS.own]
    assert {key for config in configs for key, _ in flat(dataclasses.asdict(config))} == set(SETTING_WORDS)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "learners.md").read_text(encoding="utf-8")
    assert not [name for name, words in SETTING_WORDS.items() if f"| `{name}` | {words} |" not in page]


@pytest.mark.parametrize(
    ("levels", "choices", "actions", "message"),
    [
        (11, (), 3, "levels = 11 in 3 dimensions are 1331 actions; set levels to at most 10"),
        (2, (), 10, "take a learner with continuous actions"),
        (1, (), 3, "levels must be at least 2"),
        (3, (2, 3, 4), 3, "levels = 3, but the plant takes 2 × 3 × 4 choices; leave levels out"),
        (None, (20, 20, 20), 3, "the plant's 20 × 20 × 20 choices are 8000 actions"),
    ],
)
def test_too_many_or_few_are_refused(levels: int | None, choices: tuple[int, ...], actions: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ActionLevels(levels, actions, choices)
    assert [len(ActionLevels(levels, actions).table) for levels, actions in ((10, 3), (2, 9))] == [MOST, 512]
