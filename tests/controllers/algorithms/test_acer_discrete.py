"""Discrete ACER's update against Algorithm 2 written naively with torch's autograd, by hand; a population's rules."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import segment_batches
import torch
from cells import updates_of
from segment_batches import LENGTHS, TASK, A, B, K, Peer, S, segments
from torch.distributions import Categorical, kl_divergence

from replaybench.controllers.algorithms.acer_discrete import ACERDiscrete, ACERDiscreteConfig, _chosen, probabilities
from replaybench.controllers.interface.agent import Actions, LearnerSetting, NormaliseConfig
from replaybench.experiments.cell import CellRun
from replaybench.experiments.study import Study
from replaybench.runtime.errors import UserError

LEVELS = 3
N = LEVELS**A
SMALL: dict[str, Any] = {
    "segment": K, "batch_size": B, "policy_hidden": (8, 8), "critic_hidden": (8,), "levels": LEVELS,
    "output_scale": 1.0,
}  # fmt: skip


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Invent what a population stores."""
    return {
        "observation": rng.normal(size=(*shape, S)), "action": np.zeros((*shape, A)),
        "reward": rng.normal(size=(*shape, 1)), "next_observation": rng.normal(size=(*shape, S)),
        "behaviour": rng.dirichlet(np.ones(N), shape), "choice": rng.integers(N, size=(*shape, 1)),
    }  # fmt: skip


batch = partial(segments, draw)


def algorithm2(agent: ACERDiscrete, drawn: SimpleNamespace) -> dict[str, np.ndarray]:
    """Return the gradients of member 0, one step after the other as the paper writes it."""
    config, task = agent.config, agent.task
    policy, average, critic = Peer(agent.policy_network), Peer(agent.average), Peer(agent.critic)
    c = config.truncate_at if config.truncation else np.inf
    total, errors = float(LENGTHS.sum()), np.zeros(B)
    for b, length in enumerate(LENGTHS):
        x, r, x_next, over, mu, chosen = (torch.tensor(drawn.columns[name][0, b]) for name in (
            "observation", "reward", "next_observation", "terminated", "behaviour", "choice"))  # fmt: skip
        last = length - 1
        ahead = (torch.softmax(policy(x_next[last]), -1) * critic(x_next[last])).sum().detach()
        ret = (1 - over[last, 0]) * ahead
        for i in range(last, -1, -1):
            a = int(chosen[i, 0])
            phi, q = torch.softmax(policy(x[i]), -1), critic(x[i])
            f = phi.detach().requires_grad_()
            v, fixed, rho = (phi * q).sum().detach(), q.detach(), (f / mu[i]).detach()
            ret = task.reward_scale * r[i, 0] + task.discount * ret
            bias = torch.clamp(1 - c / rho, min=0) * f.detach() * (fixed - v)
            objective = (
                rho[a].clamp(max=c) * (ret - v) * f[a].log()
                + (bias * f.log()).sum()
                - config.entropy * (f * f.log()).sum()
            )
            (z,) = torch.autograd.grad(objective, f)
            if config.trust_region:
                # The divergence as a function of unconstrained probabilities, as the paper differentiates it.
                fixed_average = torch.softmax(average(x[i]), -1).detach()
                divergence = (fixed_average * (fixed_average.log() - f.log())).sum()
                peer = kl_divergence(Categorical(fixed_average), Categorical(f.detach()))
                torch.testing.assert_close(divergence.detach(), peer)
                (k,) = torch.autograd.grad(divergence, f)
                z = z - torch.clamp((k @ z - config.delta) / (k @ k), min=0) * k
            delta = (ret - q[a]).detach()
            loss = -float(drawn.actor_weight[0, b]) * (z * phi).sum() - float(drawn.weight[0, b]) * delta * q[a]
            (loss / total).backward()
            errors[b] += abs(float(delta)) / length
            ret = rho[a].clamp(max=1) * delta + v if config.retrace else rho[a] * ret
    return {"policy": policy.gradient(), "critic": critic.gradient(), "error": errors}


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "importance sampling": {"retrace": False},
    "no trust region": {"trust_region": False},
    "no truncation": {"truncation": False},
    "more entropy": {"entropy": 0.3},
}


def disturbed(config: ACERDiscreteConfig) -> ACERDiscrete:
    """A learner in float64 whose average policy differs from its policy."""
    agent = ACERDiscrete(config, LearnerSetting(TASK, 0, range(1), dtype=np.float64))
    rng = np.random.Generator(np.random.PCG64(1))
    agent.average.parameters += 0.2 * rng.normal(size=agent.average.parameters.shape)
    return agent


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_those_of_algorithm_2(variant: str) -> None:
    """Both networks, float64, to 1e-11: with c = 1.2 and δ = 0.1, corrections and projections are at work."""
    config = ACERDiscreteConfig(**SMALL, truncate_at=1.2, delta=0.1, **VARIANTS[variant])
    agent, drawn = disturbed(config), batch(1, 0, np.float64)
    expected = algorithm2(agent, drawn)
    td_error = agent.update(drawn)["td_error"]
    np.testing.assert_allclose(td_error[0], expected["error"], atol=1e-12)
    for name, network in agent.networks.items():
        scale = np.abs(expected[name]).max()
        assert scale > 0
        np.testing.assert_allclose(network.gradient[0], expected[name], atol=1e-11 * max(scale, 1), err_msg=name)


def test_probabilities_survive_large_logits_and_pass_nan() -> None:
    pi, log_pi = np.empty((2, 2)), np.empty((2, 2))
    probabilities(np.array([[1000.0, 0.0], [np.nan, 0.0]]), pi, log_pi)
    np.testing.assert_allclose(pi[0], [1, 0])
    np.testing.assert_allclose(log_pi[0], [0, -1000])
    assert np.isnan(pi[1]).all()


def learn(steps: int) -> Any:
    config = ACERDiscreteConfig(**{**SMALL, "segment": steps})
    return segment_batches.learn(ACERDiscrete(config, LearnerSetting(TASK, 0, range(8))), draw)


def test_padding_has_no_influence() -> None:
    """Three more steps of padding leave every number as it is, and so does what stands in the padding."""
    short, long = learn(K), learn(K + 3)
    for name, array in short.state_dict().items():
        np.testing.assert_array_equal(array, long.state_dict()[name], err_msg=name)
    make = partial(ACERDiscrete, ACERDiscreteConfig(**SMALL), LearnerSetting(TASK, 0, range(1)))
    segment_batches.check_padding(make, draw)


def test_choices_follow_the_probabilities() -> None:
    """20,000 choices of 4, χ² with 3 degrees of freedom below its 1 − 1e-6 quantile, 30.7; an impossible one never."""
    rng = np.random.Generator(np.random.PCG64(0))
    probability = np.array([0.1, 0.4, 0.0, 0.2, 0.3])
    counts = np.bincount(_chosen(np.tile(probability, (20_000, 1)), rng.random(20_000)), minlength=5)
    expected = 20_000 * probability
    possible = expected > 0
    assert counts[2] == 0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 30.7
    np.testing.assert_array_equal(_chosen(probability, np.array(0.0)), 0)
    np.testing.assert_array_equal(_chosen(probability, np.array(1 - 1e-16)), 4)


def test_what_is_tried_is_stored_as_choice_and_probabilities() -> None:
    agent = ACERDiscrete(ACERDiscreteConfig(**SMALL), LearnerSetting(TASK, 0, range(4)))
    observation = np.ones((4, S), np.float32)
    tried = agent.explore(observation, np.ones(4, np.bool_))
    np.testing.assert_array_equal(tried.action, agent.table[tried.extras["choice"][:, 0].astype(int)])
    np.testing.assert_allclose(tried.extras["behaviour"], agent.probability(observation[:, None])[:, 0], rtol=1e-6)
    np.testing.assert_allclose(tried.deviation, np.abs(tried.action - agent.act(observation)).sum(axis=1))
    assert agent.sample(np.ones((4, 7, S), np.float32)).shape == (4, 7, A)


def test_value_and_metrics_by_hand() -> None:
    """Zero policies are uniform: entropy ln 9, V the mean of Q; done with μ = 0.01 < (1/9)/10 is truncated."""
    agent = ACERDiscrete(ACERDiscreteConfig(**{**SMALL, "segment": 2}), LearnerSetting(TASK, 0, range(1)))
    agent.policy_network.parameters[:] = 0
    x = np.ones((1, 2, 2, S), np.float32)
    np.testing.assert_allclose(agent.value(x[:, 0]), agent.critic(x[:, 0]).mean(axis=2), rtol=1e-5)
    behaviour = np.zeros((1, 2, 2, N), np.float32)
    behaviour[:, :, 0, 0], behaviour[:, :, 0, 1:] = 0.01, 0.99 / 8
    found = agent.metrics({"observation": x, "behaviour": behaviour, "choice": np.zeros((1, 2, 2, 1), np.float32)})
    np.testing.assert_allclose(found["entropy"], np.log(9), rtol=1e-6)
    np.testing.assert_allclose(found["kl"], 0.01 * np.log(0.09) + 0.99 * np.log(0.99 / 8 * 9), rtol=1e-4)
    np.testing.assert_array_equal(found["ratio_truncated"], 1.0)


def test_a_learner_that_normalises_equals_one_that_is_given_normalised_numbers() -> None:
    def make(normalise: NormaliseConfig) -> ACERDiscrete:
        setting = LearnerSetting(TASK, 0, range(2), dtype=np.float64)
        return ACERDiscrete(ACERDiscreteConfig(**SMALL, normalise=normalise), setting)

    segment_batches.check_normalised(make, draw)


def test_too_many_actions_are_refused_before_anything_runs() -> None:
    with pytest.raises(UserError, match="set levels to at most 5"):
        ACERDiscrete.check(ACERDiscreteConfig(), Actions("Magman", 4), False)


@pytest.mark.parametrize(("replays", "updates"), [(4.0, 5), (0.0, 1)])
def test_an_update_on_policy_precedes_those_on_replayed_segments(replays: float, updates: int) -> None:
    """4 replays of an episode in 10 segments of 20 are 4 updates; without replay it is A3C."""
    study = Study(
        name="t", plants=("PendulumDCSC",), learners=("ACER-discrete",), strategies=("FIFO[Uniform]",), seeds=1,
        episodes=2, learner={"ACER-discrete": {"replays_per_experience": replays}},
    )  # fmt: skip
    run = CellRun(study.cells()[0])
    for _ in range(2):
        run.advance()
    assert updates_of(run) == 2 * updates
