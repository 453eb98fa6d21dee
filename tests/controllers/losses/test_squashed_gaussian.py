"""The squashed Gaussian against Torch's distributions and automatic differentiation, in float64."""

from __future__ import annotations

import numpy as np
import torch

from replaybench.controllers.algorithms.sac import sample, sample_backward

B, A = 200, 3


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return heads and noise, some of the heads beyond the bounds of log σ, and a sample's actions and log π."""
    rng = np.random.Generator(np.random.PCG64(0))
    head, noise = rng.normal(size=(B, 2 * A)), rng.normal(size=(B, A))
    head[:20, A:] += 4.0
    head[20:40, A:] -= 25.0
    action, log_prob = np.empty((B, A)), np.empty(B)
    sample(head, noise, action, log_prob)
    return head, noise, action, log_prob


def torch_sample(head: torch.Tensor, noise: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    mean, deviation = head[:, :A], head[:, A:].clamp(-20, 2).exp()
    x = mean + deviation * torch.tensor(noise)
    action = torch.tanh(x)
    density = torch.distributions.Normal(mean, deviation).log_prob(x) - torch.log(1 - action**2 + 1e-6)
    return action, density.sum(dim=1)


def test_samples_and_their_log_probability_equal_torch() -> None:
    head, noise, action, log_prob = drawn()
    theirs, density = torch_sample(torch.tensor(head), noise)
    np.testing.assert_allclose(action, theirs, atol=1e-14)
    np.testing.assert_allclose(log_prob[40:], density[40:], rtol=1e-11)
    # Torch recovers ε from x, which rounding spoils where σ is 10⁻¹¹ and less.
    np.testing.assert_allclose(log_prob[:40], density[:40], atol=1e-4)


def test_gradients_equal_automatic_differentiation() -> None:
    head, noise, action, _ = drawn()
    rng = np.random.Generator(np.random.PCG64(1))
    d_action, d_log_prob, d_head = rng.normal(size=(B, A)), rng.normal(size=B), np.empty((B, 2 * A))
    sample_backward(head, noise, action, d_action, d_log_prob, d_head)
    leaf = torch.tensor(head, requires_grad=True)
    theirs, density = torch_sample(leaf, noise)
    ((theirs * torch.tensor(d_action)).sum() + (density * torch.tensor(d_log_prob)).sum()).backward()
    assert leaf.grad is not None
    gradient = leaf.grad.numpy()
    ordinary = np.r_[0:20, 40:B]
    np.testing.assert_allclose(d_head[ordinary], gradient[ordinary], rtol=1e-9, atol=1e-9)
    clamped = (head[:, A:] > 2) | (head[:, A:] < -20)
    assert 0 < clamped.sum() < clamped.size
    assert (d_head[:, A:][clamped] == 0).all()
    assert (gradient[:, A:][clamped] == 0).all()


def test_nan_passes() -> None:
    head, noise, action, log_prob = drawn()
    head[0, A] = np.nan
    sample(head, noise, action, log_prob)
    assert np.isnan(action[0, 0])
    assert np.isnan(log_prob[0])
    assert np.isfinite(log_prob[1:]).all()
