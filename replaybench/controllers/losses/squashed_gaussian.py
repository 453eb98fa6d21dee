"""The Gaussian squashed by tanh: samples, their log-probability, and the way of gradients back through both.

A head `[B, 2A]` holds means, then log σ; a = tanh(μ + σ ε) with ε ~ N(0, 1), so gradients pass through the sample
(Haarnoja et al. 2018b, appendix C). As in their code and its descendants, log σ is clamped to [−20, 2] and the
correction for squashing is log(1 − a² + 10⁻⁶).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.networks.mlp import Floats
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_normal

LOG_STD_BOUNDS = (-20.0, 2.0)
_LOWEST, _HIGHEST = LOG_STD_BOUNDS
_SOFTENING = 1e-6
_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


@kernel
def draw_normals(stream: NDArray[np.uint64], noise: Floats) -> None:
    """Fill `noise` `[B, A]` with standard normals from one member's stream."""
    for b in range(noise.shape[0]):
        for a in range(noise.shape[1]):
            noise[b, a] = next_normal(stream)


@kernel
def sample(head: Floats, noise: Floats, action: Floats, log_prob: Floats) -> None:
    """Write a = tanh(μ + σ ε) `[B, A]` and log π(a) `[B]` for a head `[B, 2A]` and ε `[B, A]`."""
    actions = noise.shape[1]
    kind = head.dtype.type
    for b in range(noise.shape[0]):
        total = kind(0)
        for a in range(actions):
            log_std = np.minimum(np.maximum(head[b, actions + a], kind(_LOWEST)), kind(_HIGHEST))
            squashed = np.tanh(head[b, a] + np.exp(log_std) * noise[b, a])
            correction = np.log(kind(1) - squashed * squashed + kind(_SOFTENING))
            total -= kind(0.5) * noise[b, a] * noise[b, a] + log_std + kind(_LOG_ROOT_2PI) + correction
            action[b, a] = squashed
        log_prob[b] = total


@kernel
def sample_backward(
    head: Floats, noise: Floats, action: Floats, d_action: Floats, d_log_prob: Floats, d_head: Floats
) -> None:
    """Write ∂L/∂head `[B, 2A]`, given ∂L/∂a `[B, A]` at fixed log π and ∂L/∂(log π) `[B]` of a `sample`.

    With x = μ + σ ε: ∂log π/∂x = 2 a (1 − a²) / (1 − a² + 10⁻⁶), ∂log π/∂(log σ) at fixed x = −1 and
    ∂x/∂(log σ) = σ ε. Where log σ is clamped its gradient is zero.
    """
    actions = noise.shape[1]
    kind = head.dtype.type
    for b in range(noise.shape[0]):
        for a in range(actions):
            slope = kind(1) - action[b, a] * action[b, a]
            by_squashing = kind(2) * action[b, a] * slope / (slope + kind(_SOFTENING))
            d_x = d_action[b, a] * slope + d_log_prob[b] * by_squashing
            log_std = head[b, actions + a]
            d_head[b, a] = d_x
            clamped = log_std < kind(_LOWEST) or log_std > kind(_HIGHEST)
            d_head[b, actions + a] = kind(0) if clamped else d_x * np.exp(log_std) * noise[b, a] - d_log_prob[b]
