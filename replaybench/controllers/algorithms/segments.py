"""Segments of successive steps, their returns, and the trust region of ACER."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.interface.agent import Batch, Normaliser
from replaybench.controllers.learner import Learner
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Integers
from replaybench.runtime.kernel import kernel


class Segments(NamedTuple):
    """B segments of up to K steps of every member; row b·K + t is step t of segment b. For U updates, M is M·U.

    Attributes:
        observation: `[M, B·K + B, S]`, normalised; the last B rows are the successors of the segments' last steps.
        action: `[M, B·K, A]`.
        reward: float64 `[M, B·K]`, scaled for learning.
        goes_on: `[M, B]`, whether the episode did not terminate with the segment's last step.
        length: int64 `[M, B]`, number of steps of each segment; the other rows are zero.
        weight, actor_weight: `[M, B]`.
        rate_factor: `[M]`.
    """

    observation: AnyFloats
    action: AnyFloats
    reward: Floats
    goes_on: Bools
    length: Integers
    weight: AnyFloats
    actor_weight: AnyFloats
    rate_factor: AnyFloats


def as_segments(batch: Batch, normaliser: Normaliser, dtype: DTypeLike) -> Segments:
    """Return a batch as segments; single steps are segments of one."""
    length = np.ones(batch.weight.shape, np.int64) if batch.length is None else batch.length.astype(np.int64)
    last = np.maximum(length - 1, 0)[:, :, None, None]
    observation = rows(batch, "observation", dtype)
    successor = np.take_along_axis(_stepwise(batch, "next_observation"), last, axis=2)[:, :, 0]
    terminated = np.take_along_axis(_stepwise(batch, "terminated"), last, axis=2)[:, :, 0, 0]
    scale = np.repeat(normaliser.rewards.factor, len(length) // len(normaliser.rewards.factor))
    return Segments(
        normaliser.observations(np.concatenate([observation, successor.astype(dtype)], axis=1)),
        rows(batch, "action", dtype),
        scale[:, None] * np.asarray(rows(batch, "reward", np.float64)[:, :, 0], np.float64),
        terminated == 0,
        length,
        batch.weight,
        batch.actor_weight,
        batch.rate_factor,
    )


def rows(batch: Batch, name: str, dtype: DTypeLike) -> AnyFloats:
    """Return a column as a contiguous array `[M, B·K, width]`."""
    column = _stepwise(batch, name)
    members, _, _, width = column.shape
    return np.array(column, dtype, order="C").reshape(members, -1, width)


def _stepwise(batch: Batch, name: str) -> AnyFloats:
    column = batch.columns[name]
    return column if column.ndim == 4 else column[:, :, None]


def steps_of(learner: Learner, stored: Mapping[str, AnyFloats], *names: str) -> list[AnyFloats]:
    """Return columns `[M, n, width]` of the steps of stored segments; rows of zeros are padding."""
    columns = (stored[name][:, :: learner.segment] for name in names)
    return [column.reshape(len(column), -1, column.shape[-1]) for column in columns]


def mean_over(own: Bools, measured: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return means `[M]` of numbers `[M, n]` over the `own` steps `[M, n]`."""
    steps = np.maximum(own.sum(axis=1), 1)
    return {name: np.where(own, values, 0).sum(axis=1) / steps for name, values in measured.items()}


@kernel
def clipped(x: float, bound: float) -> float:
    """Return x within ±bound; NaN stays."""
    if x < -bound:
        return -bound
    return bound if x > bound else x


@kernel
def capped(x: float, cap: float) -> float:
    """Return min(x, cap); NaN stays."""
    return cap if x > cap else x


@kernel
def retrace(
    reward: Floats, q: Floats, v: Floats, trace: Floats, bootstrap: float, discount: float, out: Floats
) -> None:
    """Write Q_ret(x_t, a_t) = r_t + γ (ρ̄_{t+1} [Q_ret − Q](x_{t+1}, a_{t+1}) + V(x_{t+1})) (eq. 5), `[T]` each.

    After the last step follows `bootstrap`, V of the next state or 0 at termination. With trace 1 this is Q_opc
    (eq. 21); with trace 0 a one-step target; with q = v = 0 and trace ρ plain importance sampling,
    R_t = r_t + γ ρ_{t+1} R_{t+1} (appendix E.4, which omits γ); with q = v = 0 and trace 1 the discounted return.
    """
    follows = bootstrap
    for t in range(reward.size - 1, -1, -1):
        out[t] = reward[t] + discount * follows
        follows = trace[t] * (out[t] - q[t]) + v[t]


@kernel
def traces(log_ratio: Floats, power: float, cap: float, out: Floats) -> None:
    """Write min(cap, ρ^power) `[T]`; section 5.1 has power 1/d, for d action dimensions, and cap 1."""
    for t in range(log_ratio.size):
        out[t] = capped(np.exp(power * log_ratio[t]), cap)


@kernel
def truncated_weights(log_ratio: Floats, cap: float, carry: float, out: Floats) -> None:
    """Write the importance weights of policy gradients, `[T]`.

    With carry 0 they are min(c, ρ_t) (eq. 7), with carry 1 those of the rest of the trajectory, min(c, Π_{i ≥ t} ρ_i)
    (appendix E.2).
    """
    total = 0.0
    for t in range(log_ratio.size - 1, -1, -1):
        total = log_ratio[t] + carry * total
        out[t] = capped(np.exp(total), cap)


@kernel
def correction(rho: float, cap: float) -> float:
    """Return [1 − c/ρ]₊, the weight of the bias correction (eq. 7)."""
    weight = 1.0 - cap / rho
    return 0.0 if weight <= 0.0 else weight


@kernel
def project(g: Floats, k: Floats, delta: float) -> None:
    """Replace g by z* = g − max{0, (kᵀg − δ)/‖k‖²} k, the nearest z with kᵀz ≤ δ (eq. 11 and 12).

    g `[n]` is a policy gradient with respect to the statistics φ of one state's policy, k `[n]` the gradient of
    D_KL(average policy ‖ policy) with respect to them, δ > 0; δ = ∞ leaves g as it is.
    """
    along, square = 0.0, 0.0
    for i in range(g.size):
        along += k[i] * g[i]
        square += k[i] * k[i]
    excess = (along - delta) / square
    if not excess <= 0.0:  # NaN gives NaN, so that a failed member is detected
        for i in range(g.size):
            g[i] -= excess * k[i]
