"""ACER with continuous and discrete actions."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from replaybench.controllers.algorithms.acer import ACER, ACERConfig
from replaybench.controllers.algorithms.acer_discrete import ACERDiscrete, ACERDiscreteConfig, _chosen, probabilities
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.registry import load_learner
from replaybench.runtime.streams import next_normal
from tests.helpers.buffers import chi_square
from tests.helpers.cells import advanced, small_cell, updates_of
from tests.helpers.normalised import check_normalised
from tests.helpers.torch_nets import TorchNet

S, A, B, K = 3, 2, 4, 5
TASK = Task(observation_size=S, action_size=A, discount=0.9, reward_scale=0.5)
LENGTHS = np.array([5, 3, 5, 1])
Draw = Callable[[np.random.Generator, tuple[int, ...]], dict[str, np.ndarray]]


def segments(draw: Draw, members: int, seed: int, dtype: type[np.floating] = np.float32, steps: int = K) -> Any:
    """Return segments of `LENGTHS` steps, the last two of which end in a terminal state; zeros after them.

    `draw` invents the columns `[M, B, K, width]`; `terminated` need not be among them.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    own = (np.arange(K) < LENGTHS[:, None])[None, :, :, None]

    def column(values: np.ndarray) -> np.ndarray:
        padded = np.zeros((members, B, steps, values.shape[-1]), dtype)
        padded[:, :, :K] = np.where(own, values, 0)
        return padded

    terminated = np.zeros((members, B, K, 1))
    terminated[:, 2, 4] = terminated[:, 3, 0] = 1
    columns = {name: column(values) for name, values in draw(rng, (members, B, K)).items()}
    weights = rng.uniform(0.5, 1.5, (2, members, B)).astype(dtype)
    return SimpleNamespace(
        columns={**columns, "terminated": column(terminated)}, length=np.tile(LENGTHS.astype(np.uint16), (members, 1)),
        weight=weights[0], actor_weight=weights[1], rate_factor=np.ones(members, dtype),
    )  # fmt: skip


SMALL: dict[str, Any] = {
    "segment": K, "batch_size": B, "policy_hidden": (8, 8), "value_hidden": (8,), "advantage_hidden": (6,),
    "output_scale": 1.0,
}  # fmt: skip


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Invent what a population stores."""
    observation, next_observation = rng.normal(size=(2, *shape, S))
    mean, noise = 0.3 * rng.normal(size=(2, *shape, A))
    return {
        "observation": observation, "next_observation": next_observation, "action": mean + noise,
        "behaviour_mean": mean, "reward": rng.normal(size=(*shape, 1)),
    }  # fmt: skip


def normal(mean: torch.Tensor, sigma: float) -> torch.distributions.Distribution:
    return torch.distributions.Independent(torch.distributions.Normal(mean, sigma), 1)


def algorithm3(agent: ACER, drawn: Any) -> dict[str, np.ndarray]:
    """Return the gradients of member 0, one step after the other as the paper writes it."""
    config, task, sigma = agent.config, agent.task, agent.config.sigma
    policy, average, value, advantage = map(
        TorchNet, (agent.policy_network, agent.networks.targets["policy"], agent.value_network, agent.advantage)
    )
    stream = agent.draws.state[0].copy()
    c = config.truncate_at if config.truncation else np.inf
    total = float(LENGTHS.sum())
    errors = np.zeros(B)

    def sample(phi: torch.Tensor) -> torch.Tensor:
        noise = torch.tensor([next_normal(stream) for _ in range(A)], dtype=torch.float64)
        return torch.add(phi.detach(), sigma * noise)

    for b, length in enumerate(LENGTHS):
        x, a, r, x_next, over, mu = (torch.tensor(drawn.columns[name][0, b]) for name in (
            "observation", "action", "reward", "next_observation", "terminated", "behaviour_mean"))  # fmt: skip
        steps = []
        for i in range(length):
            phi = policy(x[i])
            count = 0 if config.trajectory_weights or not config.dueling else config.samples
            samples = [sample(phi) for _ in range(count)]
            other = None if config.trajectory_weights else sample(phi)
            steps.append((phi, samples, other))

        def q_of(x_i: torch.Tensor, action: torch.Tensor, samples: list[torch.Tensor]) -> torch.Tensor:
            if not config.dueling:
                return advantage(x_i, action)
            u = torch.stack([advantage(x_i, sampled) for sampled in samples])
            return value(x_i) + advantage(x_i, action) - u.mean(0)

        last = length - 1
        bootstrap = (1 - over[last]) * value(x_next[last]).detach()
        ret, opc, product = bootstrap, bootstrap, torch.ones(1, dtype=torch.float64)
        for i in range(last, -1, -1):
            phi, samples, other = steps[i]
            v = value(x[i])
            statistics = phi.detach().requires_grad_()
            f, behaviour = normal(statistics, sigma), normal(mu[i], sigma)
            rho = (f.log_prob(a[i]) - behaviour.log_prob(a[i])).exp().detach()
            product = product * rho
            ret, opc = task.reward_scale * r[i] + task.discount * ret, task.reward_scale * r[i] + task.discount * opc
            if config.trajectory_weights:
                weight = product.clamp(max=c)
                objective = weight * (ret - v.detach()) * f.log_prob(a[i])
                critic = (weight * (ret - v).detach() * v).sum()
                errors[b] += abs(float((ret - v).detach())) / length
            else:
                assert other is not None
                q, q_other = q_of(x[i], a[i], samples), q_of(x[i], other, samples).detach()
                rho_other = (f.log_prob(other) - behaviour.log_prob(other)).exp().detach()
                followed = opc if config.policy_return == "opc" and config.retrace else ret
                bias = torch.clamp(1 - c / rho_other, min=0) * (q_other - v.detach())
                objective = rho.clamp(max=c) * (followed - v.detach()) * f.log_prob(a[i]) + bias * f.log_prob(other)
                critic = ((ret - q).detach() * q).sum()
                if config.dueling:
                    critic = critic + (rho.clamp(max=1) * (ret - q).detach() * v).sum()
                else:
                    critic = critic + (rho * (ret - v).detach() * v).sum()
                errors[b] += abs(float((ret - q).detach())) / length
            (z,) = torch.autograd.grad(objective.sum(), statistics)
            if config.trust_region:
                kl = torch.distributions.kl_divergence(normal(average(x[i]).detach(), sigma), normal(statistics, sigma))
                (k,) = torch.autograd.grad(kl, statistics)
                z = z - torch.clamp((k @ z - config.delta) / (k @ k), min=0) * k
            loss = -float(drawn.actor_weight[0, b]) * (z * phi).sum() - float(drawn.weight[0, b]) * critic
            (loss / total).backward(retain_graph=True)
            if config.trajectory_weights:
                continue
            if config.retrace:
                ret = rho.clamp(max=1) ** (1 / A) * (ret - q.detach()) + v.detach()
                opc = opc - q.detach() + v.detach()
            else:
                ret = rho * ret
    return {"policy": policy.gradient(), "value": value.gradient(), "advantage": advantage.gradient(), "error": errors}


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "retrace for the policy": {"policy_return": "ret"},
    "importance sampling": {"retrace": False},
    "plain critic": {"dueling": False},
    "no trust region": {"trust_region": False},
    "no truncation": {"truncation": False},
    "TIS": {"trajectory_weights": True, "trust_region": False},
    "Trust-TIS": {"trajectory_weights": True},
}


def test_metrics_by_hand() -> None:
    """One own step of two: D_KL = (φ − μ)²/2σ²; where a = φ and μ lies 2σ away in one dimension, ρ = e² > 5."""
    agent = ACER(ACERConfig(segment=2, batch_size=2), LearnerSetting(Task(S, 1, 0.9, 1.0), 0, range(1)))
    x = np.zeros((1, 2, 2, S), np.float32)
    x[:, :, 0] = 1
    phi = agent.policy(x[:, :, 0])[:, 0, 0]
    action, mean = (np.zeros((1, 2, 2, 1), np.float32) for _ in range(2))
    action[:, :, 0] = phi
    mean[:, :, 0] = phi + 0.6
    found = agent.metrics({"observation": x, "action": action, "behaviour_mean": mean})
    np.testing.assert_allclose(found["kl"], 2.0, rtol=1e-5)
    np.testing.assert_allclose(found["ratio_truncated"], 1.0)


LEVELS = 3
N = LEVELS**A
SMALL_DISCRETE: dict[str, Any] = {
    "segment": K, "batch_size": B, "policy_hidden": (8, 8), "critic_hidden": (8,), "levels": LEVELS,
    "output_scale": 1.0,
}  # fmt: skip


def draw_discrete(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Invent what a population stores."""
    return {
        "observation": rng.normal(size=(*shape, S)), "action": np.zeros((*shape, A)),
        "reward": rng.normal(size=(*shape, 1)), "next_observation": rng.normal(size=(*shape, S)),
        "behaviour": rng.dirichlet(np.ones(N), shape), "choice": rng.integers(N, size=(*shape, 1)),
    }  # fmt: skip


def algorithm2(agent: ACERDiscrete, drawn: Any) -> dict[str, np.ndarray]:
    """Return the gradients of member 0, one step after the other as the paper writes it."""
    config, task = agent.config, agent.task
    policy, average, critic = map(TorchNet, (agent.policy_network, agent.networks.targets["policy"], agent.critic))
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
            corrections = ((bias - config.entropy * f) * f.log()).sum()
            objective = rho[a].clamp(max=c) * (ret - v) * f[a].log() + corrections
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


DISCRETE_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "importance sampling": {"retrace": False},
    "no trust region": {"trust_region": False},
    "no truncation": {"truncation": False},
    "more entropy": {"entropy": 0.3},
}


class Kind(NamedTuple):
    name: str
    small: dict[str, Any]
    draw: Draw
    algorithm: Callable[[Any, Any], dict[str, np.ndarray]]
    variants: dict[str, dict[str, Any]]

    def make(self, members: int = 1, dtype: type[np.floating] = np.float32, **settings: Any) -> Any:
        kind, config = load_learner(self.name)
        return kind(config(**{**self.small, **settings}), LearnerSetting(TASK, 0, range(members), dtype=dtype))


KINDS = [
    Kind("ACER", SMALL, draw, algorithm3, VARIANTS),
    Kind("ACER-discrete", SMALL_DISCRETE, draw_discrete, algorithm2, DISCRETE_VARIANTS),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "variant"), [(kind, variant) for kind in KINDS for variant in kind.variants])
def test_gradients_are_those_of_algorithms_2_and_3(kind: Kind, variant: str) -> None:
    """All networks, float64, to 1e-11: with c = 1.2 and δ = 0.1, corrections and projections are at work."""
    agent = kind.make(dtype=np.float64, truncate_at=1.2, delta=0.1, average=0.9, **kind.variants[variant])
    apart = np.random.Generator(np.random.PCG64(1)).normal(size=agent.networks.targets["policy"].parameters.shape)
    agent.networks.targets["policy"].parameters += (0.05 if kind.name == "ACER" else 0.2) * apart
    drawn, average = segments(kind.draw, 1, 0, np.float64), agent.networks.targets["policy"].parameters.copy()
    expected = kind.algorithm(agent, drawn)
    td_error = agent.update(drawn)["td_error"]
    np.testing.assert_allclose(td_error[0], expected["error"], atol=1e-12)
    for name, network in agent.networks.items():
        scale = np.abs(expected[name]).max()
        assert scale > 0 or (name == "advantage" and agent.config.trajectory_weights)
        np.testing.assert_allclose(network.gradient[0], expected[name], atol=1e-11 * max(scale, 1), err_msg=name)
    followed = 0.9 * average + 0.1 * agent.policy_network.parameters
    np.testing.assert_allclose(agent.networks.targets["policy"].parameters, followed)


@each_kind
def test_padding_has_no_influence(kind: Kind) -> None:
    """Three more steps of padding only move the places of sums, and what stands in the padding does nothing at all."""
    short, long = kind.make(8), kind.make(8, segment=K + 3)
    for update in range(5):
        for agent in (short, long):
            agent.update(segments(kind.draw, 8, update, steps=agent.schedule.segment))
    rtol, atol = (1e-5, 1e-7) if kind.name == "ACER" else (0.0, 0.0)  # probabilities have no such sums
    for name, array in short.state_dict().items():
        # A constant added to A leaves Q̃ as it is: the gradient of A's last bias is rounding, which Adam makes large.
        used = np.s_[:, :-1] if name.startswith("advantage") else np.s_[...]
        np.testing.assert_allclose(array[used], long.state_dict()[name][used], rtol=rtol, atol=atol, err_msg=name)
    clean, dirty = segments(kind.draw, 1, 0), segments(kind.draw, 1, 0)
    for column in dirty.columns.values():
        column[:, np.arange(K) >= LENGTHS[:, None]] = 3.0
    one, other = kind.make(), kind.make()
    np.testing.assert_array_equal(one.update(clean)["td_error"], other.update(dirty)["td_error"])
    for name, network in one.networks.items():
        np.testing.assert_array_equal(network.parameters, other.networks[name].parameters)


@pytest.mark.slow
@each_kind
def test_a_learner_that_normalises_equals_one_that_is_given_normalised_numbers(kind: Kind) -> None:
    check_normalised(
        lambda normalise: kind.make(2, np.float64, normalise=normalise),
        lambda seed: segments(kind.draw, 2, seed, np.float64),
        repeats=K,
    )


A3C = {"replays_per_experience": 0.0, "on_policy": True, "trajectory_weights": True, "trust_region": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "settings", "updates"),
    [
        ("ACER", A3C, 1),
        ("ACER-discrete", {"replays_per_experience": 4.0}, 5),
        ("ACER-discrete", {"replays_per_experience": 0.0}, 1),
    ],
)
def test_an_update_on_policy_precedes_those_on_segments(learner: str, settings: dict[str, Any], updates: int) -> None:
    """4 replays of an episode in 10 segments of 20 are 4 updates; without replay it is A3C."""
    run = advanced(small_cell(learners=(learner,), seeds=1, episodes=2, learner={learner: settings}))
    assert updates_of(run) == 2 * updates


def test_probabilities_survive_large_logits_and_pass_nan() -> None:
    found: Any = np.empty((2, 2, 2), np.float32)
    pi, log_pi = found
    probabilities(np.array([[1000.0, 0.0], [np.nan, 0.0]], np.float32), pi, log_pi)
    np.testing.assert_allclose(pi[0], [1, 0])
    np.testing.assert_allclose(log_pi[0], [0, -1000])
    assert np.isnan(pi[1]).all()


def test_choices_follow_the_probabilities() -> None:
    probability = np.array([0.1, 0.4, 0.0, 0.2, 0.3])
    drawn = np.random.Generator(np.random.PCG64(0)).random(20_000)
    counts, possible = np.bincount(_chosen(np.tile(probability, (20_000, 1)), drawn), minlength=5), probability > 0
    assert counts[2] == 0
    chi_square(counts[possible], 20_000 * probability[possible])
    np.testing.assert_array_equal(_chosen(probability, np.array(0.0)), 0)
    np.testing.assert_array_equal(_chosen(probability, np.array(1 - 1e-16)), 4)


def test_what_is_tried_is_stored_as_choice_and_probabilities() -> None:
    agent = ACERDiscrete(ACERDiscreteConfig(**SMALL_DISCRETE), LearnerSetting(TASK, 0, range(4)))
    observation = np.ones((4, S), np.float32)
    tried = agent.explore(observation, np.ones(4, np.bool_))
    np.testing.assert_array_equal(tried.action, agent.table[tried.extras["choice"][:, 0].astype(int)])
    np.testing.assert_allclose(tried.extras["behaviour"], agent.probability(observation[:, None])[:, 0], rtol=1e-6)
    np.testing.assert_allclose(tried.deviation, np.abs(tried.action - agent.act(observation)).sum(axis=1))
    assert agent.sample(np.ones((4, 7, S), np.float32)).shape == (4, 7, A)


def test_value_and_metrics_by_hand() -> None:
    """Zero policies are uniform: entropy ln 9, V the mean of Q; done with μ = 0.01 < (1/9)/10 is truncated."""
    agent = ACERDiscrete(ACERDiscreteConfig(**{**SMALL_DISCRETE, "segment": 2}), LearnerSetting(TASK, 0, range(1)))
    agent.policy_network.parameters[:] = 0
    x = np.ones((1, 2, 2, S), np.float32)
    np.testing.assert_allclose(agent.value(x[:, 0]), agent.critic(x[:, 0]).mean(axis=2), rtol=1e-5)
    behaviour = np.zeros((1, 2, 2, N), np.float32)
    behaviour[:, :, 0, 0], behaviour[:, :, 0, 1:] = 0.01, 0.99 / 8
    found = agent.metrics({"observation": x, "behaviour": behaviour, "choice": np.zeros((1, 2, 2, 1), np.float32)})
    np.testing.assert_allclose(found["entropy"], np.log(9), rtol=1e-6)
    np.testing.assert_allclose(found["kl"], 0.01 * np.log(0.09) + 0.99 * np.log(0.99 / 8 * 9), rtol=1e-4)
    np.testing.assert_array_equal(found["ratio_truncated"], 1.0)
