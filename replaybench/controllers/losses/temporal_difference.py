"""Batches of experiences for compiled updates, and their temporal-difference targets.

The target of a value at step t − 1 is r_t + discount_t v_t, where discount_t is γ, or 0 if the episode terminated.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import typeof_impl

from replaybench.data.batch import CriticLoss, separate_samples
from replaybench.runtime.arrays import AnyFloats, Floats, Integers, Scalar
from replaybench.runtime.kernel import kernel


class Experiences(NamedTuple):
    """The arrays of a batch, as compiled updates take them.

    Each row contains B samples of one of M members. A batch for U updates has M·U rows, and row
    m·U + u is for update u of member m. The suffix `tm1` means step t − 1, and `t` the next step.

    Attributes:
        observation: Normalised observations s_tm1, shape `[M, B, S]`. For recurrent networks, see `Histories`.
        action: Actions at step t − 1, shape `[M, B, A]`.
        reward: Rewards as stored, shape `[M, B, 1]`. The function `outcome` returns them multiplied by `reward_factor`.
        next_observation: Normalised observations s_t, in the form of `observation`.
        terminated: 1 if s_t is terminal, shape `[M, B, 1]`.
        weight: Weight of each sample in the critic's loss, shape `[M, B]`.
        actor_weight: Weight of each sample in the losses of the actor and of a value network, shape `[M, B]`.
        rate_factor: Factor on the learning rates, shape `[M]`.
        mu_mean: Mean of the Gaussian from which the action was drawn, shape `[M, B, A]`, or `[M, B, 0]` if unknown.
        mu_log_sigma: Logarithm of the Gaussian's standard deviation, in the same shape.
        reward_factor: Factor on rewards; float64, shape `[M]`.
        discount: Discount factor γ.
        loss: Loss of the critic's TD errors.
        steps: Number of steps that each reward sums, shape `[M, B]`, or `[0, 0]` if each sample is one step.
    """

    observation: Any
    action: AnyFloats
    reward: AnyFloats
    next_observation: Any
    terminated: AnyFloats
    weight: AnyFloats
    actor_weight: AnyFloats
    rate_factor: AnyFloats
    mu_mean: AnyFloats
    mu_log_sigma: AnyFloats
    reward_factor: Floats
    discount: float
    loss: CriticLoss
    steps: Integers


@typeof_impl.register(Experiences)
def _type_of(x: Experiences, context: object) -> types.Type:
    """Return a Numba type of 3-D arrays with arbitrary strides, so that compiled functions accept views and copies."""
    kinds = [typeof_impl(value, context) for value in x]
    return types.NamedTuple([_any_strides(kind) for kind in kinds], Experiences)


def _any_strides(kind: types.Type) -> types.Type:
    return kind.copy(layout="A") if isinstance(kind, types.Array) and kind.ndim == 3 else kind


@kernel
def outcome(x: Experiences, row: int, b: int, kind: type[np.floating]) -> tuple[Scalar, Scalar]:
    """Return the scaled reward and the discount factor of sample b. After termination, the discount factor is 0.

    If the reward is a sum over n steps, the discount factor is γ^n.
    """
    r_t = kind(x.reward_factor[row]) * x.reward[row, b, 0]
    discount = x.discount ** x.steps[row, b] if x.steps.size else x.discount
    discount_t = kind(discount) * (kind(1) - x.terminated[row, b, 0])
    return r_t, discount_t


@kernel
def td_error(q_tm1: Scalar, r_t: Scalar, discount_t: Scalar, q_t: Scalar) -> Scalar:
    """Return the TD error δ = r_t + discount_t q_t − q_tm1, where `tm1` means step t − 1."""
    return r_t + discount_t * q_t - q_tm1


@kernel
def loss_gradient(
    error: Scalar, b: int, batch: int, loss: CriticLoss, factor: float, coefficient: float, weight: Scalar,
    kind: type[np.floating],
) -> Scalar:  # fmt: skip
    """Return the derivative of a critic's loss with respect to the TD error of sample b.

    The loss is a mean over `batch` samples, times `coefficient`, the sample's `weight` and the `factor` of
    `loss_factor`.
    """
    size, exponent = np.abs(error), loss.exponent
    if b < 2 * separate_samples(loss, batch):  # Huber's loss
        exponent, factor = 0.0, 1.0
    share = kind(coefficient * factor / batch) * weight
    if size <= loss.limit or size != size:
        return share * error
    return share * kind(np.sign(error) * loss.limit * (size / loss.limit) ** exponent)


@kernel
def loss_factor(error: AnyFloats, loss: CriticLoss) -> float:
    """Return the factor on a critic's loss for the TD errors of a batch, shape `[B]`. Losses without a mean have 1."""
    first = 2 * separate_samples(loss, error.size)
    if not loss.averaged or first == error.size:
        return 1.0
    total = 0.0
    for b in range(first, error.size):
        total += max(abs(np.float64(error[b])), loss.limit) ** loss.exponent
    return (error.size - first) / total


@kernel
def targets(x: Experiences, row: int, v_t: AnyFloats, y: AnyFloats) -> None:
    """Write the TD targets y = r_t + discount_t v_t of B samples, given the values v_t `[B, 1]` of the next states."""
    for b in range(y.shape[0]):
        r_t, discount_t = outcome(x, row, b, y.dtype.type)
        y[b, 0] = r_t + discount_t * v_t[b, 0]
