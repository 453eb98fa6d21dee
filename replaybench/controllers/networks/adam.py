"""The Adam optimiser, and the low-pass filter of target networks.

Adam is Algorithm 1 of Kingma & Ba (2015), with PyTorch's order of operations, so that both can be compared step by
step.
"""

from typing import NamedTuple, Protocol

import numpy as np

from replaybench.runtime.arrays import AnyFloats, Integers
from replaybench.runtime.kernel import kernel

_TINY = 1e-30
"""Bound below which Adam's moments are set to zero. Such moments have no effect, because `epsilon` is much larger. The
moments of inactive units would become subnormal numbers, with which arithmetic is ten times slower."""


class Trainable(Protocol):
    """The arrays of networks that an optimiser needs, `parameters` and `gradient` `[M, P]`."""

    @property
    def parameters(self) -> AnyFloats: ...  # noqa: D102
    @property
    def gradient(self) -> AnyFloats: ...  # noqa: D102


class AdamSettings(NamedTuple):
    """The settings that Adam has for all networks of a learner.

    `clip` is the bound on the Euclidean norm of each member's gradient, or None.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float | None = None


class Adam(NamedTuple):
    """The moments and settings of Adam for a network that M members have.

    Attributes:
        first: First moments of the P parameters of each member's network, shape `[M, P]`.
        second: Second moments, shape `[M, P]`.
        l2: Coefficient of weight decay.
        coupled: Whether weight decay is added to the gradient. Otherwise, it shrinks the parameters directly (AdamW).
        clip: Bound on the Euclidean norm of each member's gradient, ∞ for none.
        penalised: K ranges [first, end) of parameters, shape `[K, 2]`. If K > 0, weight decay is added only to the
            gradients of these parameters, before clipping.
    """

    first: AnyFloats
    second: AnyFloats
    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    l2: float
    coupled: bool
    clip: float
    penalised: Integers


def make_adam(parameters: AnyFloats, learning_rate: float, settings: AdamSettings) -> Adam:
    """Return the Adam optimiser of `parameters` `[M, P]`, with zero moments and without weight decay."""
    zeros, bound = np.zeros_like(parameters), np.inf if settings.clip is None else settings.clip
    everywhere = np.empty((0, 2), np.int64)
    return Adam(zeros, zeros.copy(), learning_rate, *settings.betas, settings.epsilon, 0.0, True, bound, everywhere)


@kernel
def adam_step(net: Trainable, m: int, adam: Adam, step: int, rate_factor: float) -> None:
    """Do one step of Adam on the parameters of the m-th network.

    `step` is the number of the step, counted from 1. `rate_factor` multiplies the learning rate.
    """
    parameters, gradient = net.parameters[m], net.gradient[m]
    first, second = adam.first[m], adam.second[m]
    kind = parameters.dtype.type
    for row in range(adam.penalised.shape[0]):
        for i in range(adam.penalised[row, 0], adam.penalised[row, 1]):
            gradient[i] += kind(adam.l2) * parameters[i]
    scale = 1.0
    if adam.clip < np.inf:
        squared = 0.0
        for i in range(gradient.size):
            squared += np.float64(gradient[i]) ** 2
        norm = np.sqrt(squared)
        if norm > adam.clip:
            scale = adam.clip / norm
    rate = adam.learning_rate * rate_factor
    factor, l2 = kind(scale), kind(adam.l2 if adam.coupled and not adam.penalised.shape[0] else 0.0)
    shrink = kind(1.0 - (0.0 if adam.coupled else rate * adam.l2))
    keep1, take1 = kind(adam.beta1), kind(1.0 - adam.beta1)
    keep2, take2 = kind(adam.beta2), kind(1.0 - adam.beta2)
    # The correction of the second moment, √(1 − β₂ᵗ), is part of the step size and ε, to save divisions.
    root = np.sqrt(1.0 - adam.beta2**step)
    step_size, epsilon = kind(rate * root / (1.0 - adam.beta1**step)), kind(adam.epsilon * root)
    tiny, zero = kind(_TINY), kind(0.0)
    for i in range(parameters.size):
        g = gradient[i] * factor + l2 * parameters[i]
        m1 = keep1 * first[i] + take1 * g
        m2 = keep2 * second[i] + take2 * g * g
        first[i] = zero if np.abs(m1) < tiny else m1
        second[i] = zero if m2 < tiny else m2
        parameters[i] = shrink * parameters[i] - step_size * (first[i] / (np.sqrt(second[i]) + epsilon))


@kernel
def track(target: Trainable, source: Trainable, m: int, tau: float) -> None:
    """Update the m-th target network by θ⁻ ← (1 − τ) θ⁻ + τ θ (de Bruin et al. 2018, section 3.2)."""
    slow, fast = target.parameters[m], source.parameters[m]
    keep, take = slow.dtype.type(1.0 - tau), slow.dtype.type(tau)
    for i in range(slow.size):
        slow[i] = keep * slow[i] + take * fast[i]
