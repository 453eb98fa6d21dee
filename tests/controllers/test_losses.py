"""Densities, advantages, temporal differences and returns of segments."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numba import typeof
from scipy.optimize import minimize
from scipy.stats import norm
from torch.distributions import Normal, kl_divergence

from replaybench.controllers.algorithms.naf import AdvantageForm, action_values, means, output_size
from replaybench.controllers.algorithms.sac import differentiate_sample, sample
from replaybench.controllers.algorithms.segments import project
from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.losses.refer import divergence, divergence_gradient, importance_weights
from replaybench.controllers.losses.temporal_difference import Experiences, loss_factor, loss_gradient, outcome
from replaybench.controllers.registry import load_learner
from replaybench.data.batch import SQUARED, CriticLoss, network_weights, separate_samples
from replaybench.experiments.study import Study
from replaybench.replay.strategies.notation import parse
from tests.helpers.peers import TASK, batch
from tests.helpers.peers import B as BATCH
from tests.helpers.refusals import refuses
from tests.helpers.torch_nets import squashed_sample

RNG = np.random.Generator(np.random.PCG64(3))
MEAN, MU_MEAN = RNG.normal(size=(2, 6, 2))
LOG_SIGMA, MU_LOG_SIGMA = RNG.normal(-0.5, 0.4, size=(2, 6, 2))


@pytest.mark.parametrize("mu_pi", [True, False])
def test_the_divergence_and_its_gradient_equal_torch(mu_pi: bool) -> None:
    mean, log_sigma = (torch.tensor(x, requires_grad=True) for x in (MEAN, LOG_SIGMA))
    pi, mu = Normal(mean, log_sigma.exp()), Normal(torch.tensor(MU_MEAN), torch.tensor(MU_LOG_SIGMA).exp())
    theirs = kl_divergence(*((mu, pi) if mu_pi else (pi, mu))).sum(1)
    theirs.sum().backward()
    of_pi, of_mu = (MEAN, LOG_SIGMA), (MU_MEAN, MU_LOG_SIGMA)
    ours = divergence(*of_pi, *of_mu) if mu_pi else divergence(*of_mu, *of_pi)
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-9)
    d_mean, d_log_sigma = np.empty_like(MEAN), np.empty_like(MEAN)
    divergence_gradient(*of_pi, *of_mu, mu_pi, d_mean, d_log_sigma)
    for gradient, leaf in ((d_mean, mean), (d_log_sigma, log_sigma)):
        assert leaf.grad is not None
        np.testing.assert_allclose(gradient, leaf.grad, rtol=1e-9, atol=1e-12)


def test_importance_weights_are_ratios_of_densities_within_bounds() -> None:
    action, rho = MU_MEAN + np.exp(MU_LOG_SIGMA) * RNG.normal(size=MEAN.shape), np.empty(6)
    importance_weights(action, MEAN, LOG_SIGMA, MU_MEAN, MU_LOG_SIGMA, rho)
    pi, mu = norm(MEAN, np.exp(LOG_SIGMA)), norm(MU_MEAN, np.exp(MU_LOG_SIGMA))
    expected = (pi.logpdf(action) - mu.logpdf(action)).sum(axis=1)
    assert np.abs(expected).max() > 7, "the bound is to be met"
    np.testing.assert_allclose(np.log(rho), np.clip(expected, -7, 7), rtol=1e-12)
    importance_weights(np.full_like(MEAN, np.nan), MEAN, LOG_SIGMA, MU_MEAN, MU_LOG_SIGMA, rho)
    assert np.isnan(rho).all()


B, A = 200, 3


def test_squashed_samples_their_log_probability_and_gradients_equal_torch() -> None:
    """Some of the heads lie beyond the bounds of log σ; NaN passes."""
    rng = np.random.Generator(np.random.PCG64(0))
    head, noise, action, log_prob = rng.normal(size=(B, 2 * A)), rng.normal(size=(B, A)), np.empty((B, A)), np.empty(B)
    head[:20, A:] += 4.0
    head[20:40, A:] -= 25.0
    sample(head, noise, action, log_prob)
    leaf = torch.tensor(head, requires_grad=True)
    theirs, density = squashed_sample(leaf, torch.tensor(noise))
    np.testing.assert_allclose(action, theirs.detach(), atol=1e-14)
    np.testing.assert_allclose(log_prob[40:], density[40:].detach(), rtol=1e-11)
    # Torch recovers ε from x, which rounding spoils where σ is 10⁻¹¹ and less.
    np.testing.assert_allclose(log_prob[:40], density[:40].detach(), atol=1e-4)
    d_action, d_log_prob, d_head = rng.normal(size=(B, A)), rng.normal(size=B), np.empty((B, 2 * A))
    differentiate_sample(head, noise, action, d_action, d_log_prob, d_head)
    ((theirs * torch.tensor(d_action)).sum() + (density * torch.tensor(d_log_prob)).sum()).backward()
    assert leaf.grad is not None
    gradient, ordinary = leaf.grad.numpy(), np.r_[0:20, 40:B]
    np.testing.assert_allclose(d_head[ordinary], gradient[ordinary], rtol=1e-9, atol=1e-9)
    clamped = (head[:, A:] > 2) | (head[:, A:] < -20)
    assert 0 < clamped.sum() < clamped.size
    assert (d_head[:, A:][clamped] == 0).all()
    assert (gradient[:, A:][clamped] == 0).all()
    head[0, A] = np.nan
    sample(head, noise, action, log_prob)
    assert np.isnan([action[0, 0], log_prob[0]]).all()
    assert np.isfinite(log_prob[1:]).all()


FORMS = [AdvantageForm(*form) for form in product((0.5, 1.0), (True, False), (True, False))]


def values(outputs: np.ndarray, action: np.ndarray, form: AdvantageForm) -> tuple[np.ndarray, np.ndarray]:
    mean, q, d_q = np.empty_like(action), np.empty(len(action), action.dtype), np.empty_like(outputs)
    means(outputs, form, mean)
    action_values(outputs, action, mean, form, q, d_q)
    return q, d_q


@pytest.mark.parametrize("form", FORMS)
def test_values_are_the_formula_and_gradients_finite_differences(form: AdvantageForm) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    outputs, action = rng.normal(size=(5, output_size(3))), rng.normal(size=(5, 3))
    q, d_q = values(outputs, action, form)
    for b in range(5):
        lower = np.zeros((3, 3))
        lower[np.tril_indices(3)] = outputs[b, 4:]
        diagonal = np.diag(lower)
        lower[np.diag_indices(3)] = np.log1p(np.exp(diagonal)) if form.softplus else np.exp(diagonal)
        e = action[b] - (np.tanh(outputs[b, 1:4]) if form.bounded else outputs[b, 1:4])
        assert q[b] == pytest.approx(outputs[b, 0] - form.c * e @ lower @ lower.T @ e)
    for k in range(outputs.shape[1]):
        step = np.zeros_like(outputs)
        step[:, k] = 1e-6
        difference = values(outputs + step, action, form)[0] - values(outputs - step, action, form)[0]
        np.testing.assert_allclose(d_q[:, k], difference / 2e-6, rtol=1e-6, atol=1e-7)


def test_softplus_neither_overflows_nor_hides_nan() -> None:
    outputs = np.array([[0, 0, 500.0], [0, 0, -500.0], [0, 0, np.nan]], np.float32)
    q, d_q = values(outputs, np.ones((3, 1), np.float32), AdvantageForm(0.5, False, True))
    np.testing.assert_allclose(q[:2], [-125000, 0])
    assert np.isfinite(d_q[:2]).all()
    assert np.isnan(q[2])


def test_outcomes_are_the_same_for_columns_of_rows_and_for_copies() -> None:
    """Columns are what a batch holds, copies what normalisation makes of some; no mixture costs a compilation.

    Two samples of each of two members, r = 4 and 6 scaled by ½ and 2; the second samples are the last.
    """
    reward, terminated = (np.array([[[first], [last]]] * 2, np.float32) for first, last in ((4, 6), (0, 1)))
    one, nothing = np.ones((2, 2), np.float32), np.empty((2, 2, 0), np.float32)
    copies = Experiences(
        observation=nothing, action=nothing, reward=reward, next_observation=nothing, terminated=terminated, weight=one,
        actor_weight=one, rate_factor=one[0], mu_mean=nothing, mu_log_sigma=nothing,
        reward_factor=np.array([0.5, 2.0]), discount=0.75, loss=SQUARED,
        steps=np.empty((0, 0), np.int64),
    )  # fmt: skip
    columns = copies._replace(
        reward=np.repeat(reward, 2, axis=2)[:, :, :1], terminated=np.repeat(terminated, 3, axis=2)[:, :, 1:2]
    )
    assert not columns.reward.flags.c_contiguous
    assert typeof(columns) == typeof(copies) == typeof(copies._replace(reward=columns.reward))
    for x in (columns, copies):
        found = [outcome(x, m, b, np.float32) for m in range(2) for b in range(2)]
        assert found == [(2, 0.75), (3, 0), (8, 0.75), (12, 0)]
        several = x._replace(steps=np.array([[1, 2], [3, 1]]))
        assert [outcome(several, m, 0, np.float64)[1] for m in range(2)] == [0.75, 0.75**3]


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_the_nearest_point_that_satisfies_the_constraint(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    g, k, delta = rng.normal(size=4), rng.normal(size=4), 0.1 if seed < 4 else 5.0
    peer = minimize(
        lambda z: 0.5 * ((g - z) ** 2).sum(), np.zeros(4), jac=lambda z: z - g, method="SLSQP", tol=1e-12,
        constraints={"type": "ineq", "fun": lambda z: delta - k @ z, "jac": lambda _: -k},
    )  # fmt: skip
    z = g.copy()
    project(z, k, delta)
    assert k @ z <= delta + 1e-12
    np.testing.assert_allclose(z, peer.x, atol=1e-6)
    if k @ g <= delta:
        np.testing.assert_array_equal(z, g)


def test_projection_without_a_direction_or_a_bound_changes_nothing_and_keeps_nan() -> None:
    for k, delta in ((np.zeros(2), 1.0), (np.ones(2), np.inf), (np.zeros(2), np.inf)):
        g = np.array([3.0, 4.0])
        project(g, k, delta)
        np.testing.assert_array_equal(g, [3.0, 4.0])
    g = np.array([np.nan, 1.0])
    project(g, np.ones(2), 1.0)
    assert np.isnan(g).all()


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_prioritised_and_approximated_losses_have_equal_expected_gradients(alpha: float) -> None:
    """LAP draws with P ∝ max(|δ|, 1)^α under Huber's loss, PAL uniformly (Fujimoto et al. 2020, theorem 3)."""
    lap, pal = (parse(f"FIFO[{name}({alpha})]").sampling.critic_loss for name in ("LAP", "PAL"))
    delta = np.random.Generator(np.random.PCG64(0)).normal(0, 2, 500)
    chance = np.maximum(np.abs(delta), 1) ** alpha
    huber, approximated = (
        np.array([loss_gradient(x, 0, 1, loss, loss_factor(delta, loss), 1.0, 1.0, np.float64) for x in delta])
        for loss in (lap, pal)
    )
    np.testing.assert_allclose(huber, np.clip(delta, -1, 1))
    expected = (chance * huber).sum() / chance.sum()
    assert approximated.mean() == pytest.approx(expected, rel=1e-12)
    assert loss_factor(delta, lap) == 1
    assert np.isnan(loss_gradient(np.nan, 0, 1, pal, 1.0, 1.0, 1.0, np.float64))


@pytest.mark.parametrize(
    ("learner", "strategy"),
    [*product(("DDPG", "DQN", "TD3"), ("FIFO[LAP]", "FIFO[PAL(0.6)]")), ("DDPG", "FIFO[LA3P]"), ("TD3", "FIFO[LA3P]")],
)
def test_critics_descend_the_loss_that_a_strategy_requires(learner: str, strategy: str) -> None:
    """The gradient is that of the squared loss, with weights by which each δ has the other loss's derivative."""
    setting = LearnerSetting(TASK, 0, range(1), dtype=np.float64)
    loss, drawn = parse(strategy).sampling.critic_loss, batch(1, 0, np.float64)
    kind, config = load_learner(learner)
    settings = {"batch_size": BATCH, **({"smoothing": 0.0} if learner == "TD3" else {})}
    critics = ("critic1", "critic2") if learner == "TD3" else ("critic",)

    def update(critic: str, critic_loss: CriticLoss, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        agent = kind(config(**settings), setting)
        drawn.critic_loss, drawn.weight = critic_loss, weight[None]
        return np.abs(agent.update(drawn)["td_error"][0]), agent.networks.adams[critic].first[0].copy()

    if learner == "TD3":
        sizes = list(errors_of_twins(kind(config(**settings), setting), drawn))
    else:
        sizes = [update(critics[0], SQUARED, np.ones(BATCH))[0]]
    largest = np.max(sizes, axis=0)
    assert largest.min() < 1 < largest.max()
    for critic, size in zip(critics, sizes, strict=True):
        returned, found = update(critic, loss, np.ones(BATCH))
        np.testing.assert_allclose(returned, largest, rtol=1e-12)
        common = np.arange(BATCH) >= 2 * separate_samples(loss, BATCH)  # others have Huber's loss
        exponent = np.where(common, loss.exponent, 0.0)
        mean = (np.maximum(largest, 1) ** exponent)[common].mean() if loss.averaged else 1.0
        slope = np.where(size < 1, 1.0, size**exponent / size) / np.where(common, mean, 1.0)
        _, expected = update(critic, SQUARED, slope)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


def errors_of_twins(agent: Any, drawn: Any) -> Iterator[np.ndarray]:
    """Yield |δ| `[B]` of each critic of TD3 without smoothing."""
    targets = agent.networks.targets
    after = targets["actor"](drawn.next_observation)
    future = np.minimum(*(targets[name](drawn.next_observation, after) for name in ("critic1", "critic2")))
    y = TASK.reward_scale * drawn.reward + TASK.discount * (1.0 - drawn.terminated) * future
    for name in ("critic1", "critic2"):
        yield np.abs(y - agent.networks[name](drawn.observation, drawn.action))[0, :, 0]


def test_learners_without_other_losses_refuse_strategies_that_need_them() -> None:
    study = Study(name="s", plants=("PendulumDCSC",), learners=("NAF",), strategies=("FIFO[LAP]",))
    refuses("replaces the critic's squared loss, which NAF does not support", study.cells)


def test_samples_of_one_network_have_no_weight_in_the_other() -> None:
    """LA3P(0.5): a third of the batch for the critic, a third for the actor, a third for both; means over each."""
    loss = parse("FIFO[LA3P]").sampling.critic_loss
    critic, actor = network_weights(loss, 12)
    np.testing.assert_allclose(critic, np.repeat([1.5, 0, 1.5], 4))
    np.testing.assert_allclose(actor, np.repeat([0, 1.5, 1.5], 4))
    for size in range(1, 9):
        assert [weights.sum() for weights in network_weights(loss, size)] == pytest.approx([size, size])
    refuses("DQN does not have", load_learner("DQN")[0].check_loss, loss, "FIFO[LA3P]")
