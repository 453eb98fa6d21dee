"""V-RACER's gradients against worked examples and torch, and the rules of a population."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from replaybench.controllers.algorithms.vracer import VRACER, FirstValue, VRACERConfig, policy_gradient, value_gradient
from replaybench.controllers.interface.agent import LearnerSetting, NormaliseConfig, Task
from replaybench.controllers.losses.refer import Q_RET, TRUNCATED, ReFER
from replaybench.replay.strategies.strategy import ReFER as Both
from replaybench.replay.strategies.strategy import ReFER1, ReFER2

S, A, B = 3, 2, 8
TASK = Task(observation_size=S, action_size=A, discount=0.9, reward_scale=0.5)
SIGMAS: list[Any] = ["free", "network"]


def batch(members: int, seed: int, dtype: type = np.float32) -> Any:
    """Random samples, some of them far off policy, some at the end of a cut-off episode."""
    rng = np.random.Generator(np.random.PCG64(seed))
    normal = {name: rng.normal(size=(members, B, width)) for name, width in (("s", S), ("s'", S), ("a", A), ("μ", A))}
    traces = rng.normal(size=(members, B, 6))
    traces[:, :, TRUNCATED] = rng.random((members, B)) < 0.3
    columns = {"behaviour_mean": 0.3 * normal["μ"], "behaviour_log_sigma": rng.normal(-0.8, 0.3, (members, B, A))}
    return SimpleNamespace(
        observation=normal["s"].astype(dtype), next_observation=normal["s'"].astype(dtype),
        action=(0.6 * normal["a"]).astype(dtype), traces=traces.astype(dtype),
        reward=np.zeros((members, B, 1), dtype), terminated=np.zeros((members, B, 1), dtype),
        columns={name: column.astype(dtype) for name, column in columns.items()},
        weight=rng.uniform(0.5, 1, (members, B)).astype(dtype),
        actor_weight=rng.uniform(0.5, 1, (members, B)).astype(dtype), rate_factor=np.ones(members, dtype),
    )  # fmt: skip


def gradients(refer: Any, beta: float, rho: float, advantage: float) -> tuple[float, float, float]:
    """Gradients to mean, log σ and V of one sample with a = 2, π = N(1, ½²), ∇D = (3, 5), weights 1."""
    rules = ReFER(refer, 1, 1e-3).rules(1)
    d_mean, d_log_sigma, d_value = np.array([[3.0]]), np.array([[5.0]]), np.empty(1)
    one, log_sigma = np.ones((1, 1)), np.full((1, 1), np.log(0.5))
    rho_, advantage_, weight = np.array([rho]), np.array([advantage]), np.ones(1)
    policy_gradient(2 * one, one, log_sigma, rho_, advantage_, weight, rules, beta, d_mean, d_log_sigma)
    value_gradient(rho_, advantage_, weight, rules, beta, d_value)
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


def loss(agent: VRACER, drawn: Any, beta: float, mask: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss whose gradient `update` should follow, in torch, and the parameters of network and log σ."""
    parameters = [torch.tensor(x, requires_grad=True) for x in agent.weights().values()]
    x = torch.tensor(drawn.observation[0])
    *layers, first = parameters
    for layer in range(0, len(layers) - 1, 2):
        x = x @ layers[layer][0] + layers[layer + 1][0]
        x = torch.tanh(x) if layer < len(layers) - 3 else x
    value, mean = x[:, 0], x[:, 1 : 1 + A]
    mean = torch.tanh(mean) if agent.config.bounded else mean
    log_sigma = first[0] + (0 if agent.config.sigma == "free" else x[:, 1 + A :])
    pi = torch.distributions.Normal(mean, (log_sigma + 0 * mean).exp())
    mu_mean, mu_log_sigma = (torch.tensor(column[0]) for column in drawn.columns.values())
    mu = torch.distributions.Normal(mu_mean, mu_log_sigma.exp())
    action, q_ret = torch.tensor(drawn.action[0]), torch.tensor(drawn.traces[0, :, Q_RET])
    log_pi = pi.log_prob(action).sum(1)
    rho = (log_pi - mu.log_prob(action).sum(1)).clamp(-7, 7).exp().detach()
    advantage = (q_ret - value).detach()
    near = ((rho > 1 / 5) & (rho < 5)).double() if mask else torch.ones(B, dtype=torch.float64)
    assert not mask or 0 < near.sum() < B, "both kinds of samples are to occur"
    policy = -(near * torch.tensor(drawn.actor_weight[0]) * rho * advantage * log_pi).mean()
    v_tbc = (value + rho.clamp(max=1) * (q_ret - value)).detach()
    # ½ (V − V_tbc)², whose gradient is −min(1, ρ) A.
    critic = (near * torch.tensor(drawn.weight[0]) * (value - v_tbc) ** 2 / 2).mean()
    pull = torch.distributions.kl_divergence(mu, pi).sum(1).mean()
    return beta * (policy + critic) + (1 - beta) * pull, parameters


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize(("refer", "beta"), [(None, 1.0), (Both(anneal=0.0, beta=0.7), 0.7)])
def test_gradients_equal_torch(sigma: Any, refer: Any, beta: float) -> None:
    config = VRACERConfig(hidden=(7, 5), sigma=sigma, bounded=sigma == "network", batch_size=B)
    agent = VRACER(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64, refer=refer))
    drawn = batch(1, 3, np.float64)
    value, parameters = loss(agent, drawn, beta, mask=refer is not None)
    expected = torch.autograd.grad(value, parameters, allow_unused=True)
    agent.update(drawn)
    flat = np.concatenate([g.numpy().ravel() for g in expected[:-1] if g is not None])
    np.testing.assert_allclose(agent.network.gradient[0], flat, rtol=1e-9, atol=1e-12)
    if sigma == "free":
        assert expected[-1] is not None
        np.testing.assert_allclose(agent.deviation.gradient, expected[-1].numpy(), rtol=1e-9, atol=1e-12)


def test_a_fixed_sigma_stays_and_all_else_is_learned_as_beside_a_free_one() -> None:
    drawn = batch(2, 3)
    fixed, free = (
        VRACER(VRACERConfig(sigma=sigma, first_sigma=0.3, batch_size=B), LearnerSetting(TASK, 0, range(2)))
        for sigma in ("fixed", "free")
    )
    for agent in (fixed, free):
        agent.update(drawn)
    np.testing.assert_array_equal(fixed.network.parameters, free.network.parameters)
    np.testing.assert_array_equal(fixed.deviation.parameters, np.float32(np.log(0.3)))
    assert not np.any(free.deviation.parameters == np.float32(np.log(0.3)))


def test_annotations_are_what_the_traces_need() -> None:
    agent, drawn = VRACER(VRACERConfig(batch_size=B), LearnerSetting(TASK, 0, range(2))), batch(2, 1)
    value, successor = agent.value(drawn.observation), agent.value(drawn.next_observation)
    found = agent.update(drawn)
    np.testing.assert_allclose(found["value"], value, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found["td_error"], drawn.traces[:, :, Q_RET] - value, rtol=1e-5)
    truncated = drawn.traces[:, :, TRUNCATED] > 0
    assert truncated.any()
    np.testing.assert_allclose(found["bootstrap"][truncated], successor[truncated], rtol=1e-5, atol=1e-7)


def test_many_truncated_samples_are_evaluated_in_turn() -> None:
    agent, drawn = VRACER(VRACERConfig(batch_size=40), LearnerSetting(TASK, 0, range(1))), batch(5, 1)
    own = {name: x for name, x in vars(drawn).items() if name not in ("columns", "rate_factor")}
    many: Any = SimpleNamespace(**{name: x.reshape(1, 40, *x.shape[2:]) for name, x in own.items()})
    many.columns = {name: x.reshape(1, 40, A) for name, x in drawn.columns.items()}
    many.rate_factor = np.ones(1, np.float32)
    many.traces[:, :, TRUNCATED] = 1
    expected = agent.value(many.next_observation)
    np.testing.assert_allclose(agent.update(many)["bootstrap"], expected, rtol=1e-5, atol=1e-7)


def learn(refer: Any = None) -> VRACER:
    agent = VRACER(VRACERConfig(batch_size=B), LearnerSetting(TASK, 0, range(3), refer=refer))
    for update in range(10):
        agent.update(batch(3, update))
    return agent


def test_with_no_bound_and_beta_1_refer_is_plain_replay_bit_for_bit() -> None:
    plain, unbounded = learn(), learn(Both(c=1e30, anneal=0.0))
    np.testing.assert_array_equal(plain.network.parameters, unbounded.network.parameters)
    np.testing.assert_array_equal(plain.deviation.parameters, unbounded.deviation.parameters)
    assert not np.array_equal(plain.network.parameters, learn(Both(anneal=0.0)).network.parameters)


def test_actions_are_stored_as_sampled_with_the_density_that_drew_them() -> None:
    agent = VRACER(VRACERConfig(first_sigma=2.0), LearnerSetting(TASK, 0, range(500)))
    observation, active = np.ones((500, S), np.float32), np.ones(500, np.bool_)
    explored = agent.explore(observation, active)
    assert np.abs(explored.action).max() > 1
    z = (explored.action - explored.extras["behaviour_mean"]) * np.exp(-explored.extras["behaviour_log_sigma"])
    np.testing.assert_allclose(z, agent.exploration.drawn, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(explored.extras["behaviour_log_sigma"]), 2, rtol=1e-6)
    np.testing.assert_allclose(explored.extras["value"][:, 0], agent.value(observation[:, None])[:, 0])
    active[3:] = False
    again = agent.exploration.drawn.copy()
    agent.explore(observation, active)
    assert (agent.exploration.drawn[3:] == again[3:]).all()
    assert (agent.exploration.drawn[:3] != again[:3]).all()


def test_only_a_cut_off_episode_bootstraps() -> None:
    agent, successor = VRACER(VRACERConfig(), LearnerSetting(TASK, 0, range(3))), np.ones((3, S), np.float32)
    terminated, ended = np.array([True, False, False]), np.array([True, True, False])
    found = agent.on_step(np.full(3, 8.0), successor, terminated, ended, np.ones(3, np.bool_))
    expected = agent.value(successor[:, None])[:, 0]
    np.testing.assert_array_equal(found["truncated"][:, 0], [0, 1, 0])
    np.testing.assert_allclose(found["q_ret"][:, 0], [4, 4 + 0.9 * expected[1], 4], rtol=1e-6)


@pytest.mark.parametrize("form", ["plain", "normalised"])
def test_values_begin_once_at_the_return_of_the_first_episodes_also_after_resumption(form: str) -> None:
    """Rewards of −8 without end are worth −8 · 0.5 / 0.1 = −40, in the task's units."""
    changes: dict[str, Any] = {"normalised": {"normalise": NormaliseConfig(rewards=True)}}
    agent = VRACER(VRACERConfig(batch_size=B, **changes.get(form, {})), LearnerSetting(TASK, 0, range(1)))
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


def test_of_terminal_episodes_it_is_the_mean_return_of_all_their_steps() -> None:
    one, other = [1.0, -2.0, 5.0], [4.0, 4.0, 0.0, -1.0, 3.0]
    first = told(other, True, first=told(one, True))
    assert first.take()[0] == pytest.approx(np.mean([*returns(one), *returns(other)]), rel=1e-12)


@pytest.mark.parametrize("ended", [True, False])
def test_of_an_episode_that_is_cut_off_or_goes_on_the_rest_is_worth_as_much(ended: bool) -> None:
    one, other = [1.0, -2.0, 5.0], [4.0, 4.0, 0.0, -1.0, 3.0]
    value = told(other, False, ended, told(one, True)).take()[0]
    assert value == pytest.approx(np.mean([*returns(one), *returns(other, beyond=value)]), rel=1e-12)
    assert told([2.0, 2.0], False, ended).take()[0] == pytest.approx(2 / (1 - DISCOUNT), rel=1e-12)


def test_members_that_do_nothing_are_left_alone_and_nothing_is_collected_later() -> None:
    first = FirstValue(3, DISCOUNT)
    ends, active = np.ones(3, np.bool_), np.array([True, True, False])
    first.update(np.array([1.0, 3.0, 7.0]), ends, ends, active)
    np.testing.assert_allclose(first.take(), [1, 3, 0])
    first.update(np.full(3, 100.0), ends, ends, ends)
    np.testing.assert_allclose(first.take(), [1, 3, 0])
