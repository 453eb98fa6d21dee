"""V-RACER's gradients against worked examples and torch, and the rules of a population."""

from typing import Any

import numpy as np
import pytest
import torch

from replaybench.controllers.algorithms import vracer
from replaybench.controllers.algorithms.vracer import VRACER, FirstValue, VRACERConfig
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.controllers.losses.refer import Q_RET, TRUNCATED, ReFER
from replaybench.replay.strategies.strategy import ReFER as Both
from replaybench.replay.strategies.strategy import ReFER1, ReFER2
from tests.helpers.peers import A, B, S, off_policy_batch, vracer_loss
from tests.helpers.torch_nets import TorchNet

TASK = Task(observation_size=S, action_size=A, discount=0.9, reward_scale=0.5)


def make(members: int = 1, dtype: type[np.floating] = np.float32, refer: Any = None, **settings: Any) -> VRACER:
    config = VRACERConfig(**{"batch_size": B, **settings})
    return VRACER(config, LearnerSetting(TASK, 0, range(members), dtype=dtype, refer=refer))


def batch(members: int, seed: int, dtype: type = np.float32) -> Any:
    """Random samples, some of them far off policy."""
    drawn, rng = off_policy_batch(members, seed, dtype), np.random.Generator(np.random.PCG64(seed))
    drawn.columns["behaviour_log_sigma"] = rng.normal(-0.8, 0.3, (members, B, A)).astype(dtype)
    return drawn


def gradients(refer: Any, beta: float, rho: float, advantage: float) -> tuple[float, float, float]:
    """Gradients to mean, log σ and V of one sample with a = 2, π = N(1, ½²), ∇D = (3, 5), weights 1."""
    rules = ReFER(refer, 1, 1e-3).rules(1)
    d_mean, d_log_sigma, d_value = np.array([[3.0]]), np.array([[5.0]]), np.empty(1)
    one, log_sigma = np.ones((1, 1)), np.full((1, 1), np.log(0.5))
    rho_, advantage_, weight = np.array([rho]), np.array([advantage]), np.ones(1)
    vracer.policy_gradient(2 * one, one, log_sigma, rho_, advantage_, weight, rules, beta, d_mean, d_log_sigma)
    vracer.value_gradient(rho_, advantage_, weight, rules, beta, d_value)
    return float(d_mean[0, 0]), float(d_log_sigma[0, 0]), float(d_value[0])


def test_golden_gradients() -> None:
    """(a − m)/σ² = 4 and z² − 1 = 3; with A = 10: ρ = ½ → ĝ = (−20, −15, −5), ρ = 2 → ĝ = (−80, −60, −10).

    β = ¾ mixes ¾ ĝ and ¼ ∇D = (0.75, 1.25); ρ = 6 > c_max = 5 leaves ¼ ∇D alone under Rule 1.
    """
    assert gradients(None, 1.0, 0.5, 10) == pytest.approx((-20, -15, -5))
    assert gradients(None, 1.0, 2.0, 10) == pytest.approx((-80, -60, -10))
    assert gradients(Both(anneal=0.0), 0.75, 0.5, 10) == pytest.approx((-14.25, -10, -3.75))
    assert gradients(Both(anneal=0.0), 0.75, 6.0, 10) == pytest.approx((0.75, 1.25, 0))
    assert gradients(ReFER1(anneal=0.0), 1.0, 6.0, 10) == pytest.approx((0, 0, 0))
    assert gradients(ReFER2(anneal=0.0), 0.75, 1050.0, 10) == pytest.approx((-29999.25, -22498.75, -7.5))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", ["free", "network"])
@pytest.mark.parametrize(("refer", "beta"), [(None, 1.0), (Both(anneal=0.0, beta=0.7), 0.7)])
def test_gradients_equal_torch(sigma: str, refer: Any, beta: float) -> None:
    agent = make(dtype=np.float64, refer=refer, hidden=(7, 5), sigma=sigma, bounded=sigma == "network")
    drawn, net = batch(1, 3, np.float64), TorchNet(agent.network)
    first, x = torch.tensor(agent.deviation.parameters, requires_grad=True), net(torch.tensor(drawn.observation[0]))
    mean = torch.tanh(x[:, 1 : 1 + A]) if sigma == "network" else x[:, 1:]
    log_sigma = first[0] + (x[:, 1 + A :] if sigma == "network" else 0 * mean)
    vracer_loss(x[:, 0], mean, log_sigma, drawn, beta, refer is not None).backward()
    agent.update(drawn)
    np.testing.assert_allclose(agent.network.gradient[0], net.gradient(), rtol=1e-9, atol=1e-12)
    if sigma == "free":
        assert first.grad is not None
        np.testing.assert_allclose(agent.deviation.gradient, first.grad, rtol=1e-9, atol=1e-12)


def test_annotations_are_what_the_traces_need() -> None:
    """The next states of truncated samples are evaluated, those of other samples are not."""
    agent, drawn = make(2, batch_size=80), off_policy_batch(2, 1, size=80)
    value, successor = agent.value(drawn.observation), agent.value(drawn.next_observation)
    found, truncated = agent.update(drawn), drawn.traces[:, :, TRUNCATED] > 0
    np.testing.assert_allclose(found["value"], value, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found["td_error"], drawn.traces[:, :, Q_RET] - value, rtol=1e-5, atol=1e-7)
    assert (truncated.any(axis=1) & ~truncated.all(axis=1)).all()
    np.testing.assert_array_equal(found["bootstrap"][~truncated], 0)
    np.testing.assert_allclose(found["bootstrap"][truncated], successor[truncated], rtol=1e-5, atol=1e-7)


def test_actions_are_stored_as_sampled_with_the_density_that_drew_them() -> None:
    agent = make(500, first_sigma=2.0)
    observation = np.ones((500, S), np.float32)
    explored = agent.explore(observation, np.ones(500, np.bool_))
    assert np.abs(explored.action).max() > 1
    z = (explored.action - explored.extras["behaviour_mean"]) * np.exp(-explored.extras["behaviour_log_sigma"])
    np.testing.assert_allclose(z, agent.exploration.drawn, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(explored.extras["behaviour_log_sigma"]), 2, rtol=1e-6)
    np.testing.assert_allclose(explored.extras["value"][:, 0], agent.value(observation[:, None])[:, 0])


def test_only_a_cut_off_episode_bootstraps() -> None:
    agent, successor = make(3), np.ones((3, S), np.float32)
    terminated, ended = np.array([True, False, False]), np.array([True, True, False])
    found = agent.on_step(np.full(3, 8.0), successor, terminated, ended, np.ones(3, np.bool_))
    expected = agent.value(successor[:, None])[:, 0]
    np.testing.assert_array_equal(found["truncated"][:, 0], [0, 1, 0])
    np.testing.assert_allclose(found["q_ret"][:, 0], [4, 4 + 0.9 * expected[1], 4], rtol=1e-6)


@pytest.mark.parametrize("normalised", [False, True])
def test_values_begin_once_at_the_return_of_the_first_episodes_also_after_resumption(normalised: bool) -> None:
    """Rewards of −8 without end are worth −8 · 0.5 / 0.1 = −40, in the task's units."""
    agent = make(normalise=NormaliseConfig(rewards=normalised))
    observation = np.zeros((1, S), np.float32)
    before = agent.value(observation[:, None])
    step = observation, np.zeros(1, np.bool_), np.ones(1, np.bool_), np.ones(1, np.bool_)
    agent.on_step(np.full(1, -8.0), *step)
    agent.update(batch(1, 1))
    assert agent.value(observation[:, None]) - before == pytest.approx(-40, abs=1)
    restored = VRACER(agent.config, agent.setting)
    restored.load_state_dict(agent.state_dict())
    for learner in (agent, restored):
        learner.on_step(np.full(1, 8.0), *step)
        learner.update(batch(1, 2))
    np.testing.assert_array_equal(restored.network.parameters, agent.network.parameters)
    assert agent.value(observation[:, None]) - before == pytest.approx(-40, abs=1)


DISCOUNT = 0.9
ALL = np.ones(1, np.bool_)


def told(rewards: list[float], terminated: bool, ended: bool = True, first: FirstValue | None = None) -> FirstValue:
    """Return what a member has collected after another episode."""
    first = first or FirstValue(1, DISCOUNT)
    for step, reward in enumerate(rewards):
        last = step == len(rewards) - 1
        first.update(np.array([reward]), ALL & (terminated and last), ALL & (ended and last), ALL)
    return first


def returns(rewards: list[float], beyond: float = 0.0) -> list[float]:
    """Return the discounted return from each step."""
    found: list[float] = []
    for reward in reversed(rewards):
        beyond = reward + DISCOUNT * beyond
        found.append(beyond)
    return found


@pytest.mark.parametrize(("terminated", "ended"), [(True, True), (False, True), (False, False)])
def test_it_is_the_mean_return_of_all_steps_and_worth_as_much_after_a_cut(terminated: bool, ended: bool) -> None:
    """An episode may terminate, be cut off or go on."""
    one, other = [1.0, -2.0, 5.0], [4.0, 4.0, 0.0, -1.0, 3.0]
    value = told(other, terminated, ended, told(one, True)).take()[0]
    beyond = 0.0 if terminated else value
    assert value == pytest.approx(np.mean([*returns(one), *returns(other, beyond)]), rel=1e-12)
    if not terminated:
        assert told([2.0, 2.0], False, ended).take()[0] == pytest.approx(2 / (1 - DISCOUNT), rel=1e-12)


def test_members_that_do_nothing_are_left_alone_and_nothing_is_collected_later() -> None:
    first = FirstValue(3, DISCOUNT)
    ends, active = np.ones(3, np.bool_), np.array([True, True, False])
    first.update(np.array([1.0, 3.0, 7.0]), ends, ends, active)
    np.testing.assert_allclose(first.take(), [1, 3, 0])
    first.update(np.full(3, 100.0), ends, ends, ends)
    np.testing.assert_allclose(first.take(), [1, 3, 0])
