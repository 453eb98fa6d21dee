"""Returns and weights of off-policy segments (Wang et al. 2017; Retrace: Munos et al. 2016).

Functions of one segment's arrays `[T]`, its own steps only. Every estimate of a return is `retrace` with other arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

Doubles = NDArray[np.float64]


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
    reward: Doubles, q: Doubles, v: Doubles, trace: Doubles, bootstrap: float, discount: float, out: Doubles
) -> None:
    """Write Q_ret(x_t, a_t) = r_t + γ (ρ̄_{t+1} [Q_ret − Q](x_{t+1}, a_{t+1}) + V(x_{t+1})) (eq. 5), `[T]` each.

    The last step continues with `bootstrap`, V of the state after it or 0 at termination. With trace 1 this is Q_opc
    (eq. 21); with trace 0 a one-step target; with q = v = 0 and trace ρ plain importance sampling,
    R_t = r_t + γ ρ_{t+1} R_{t+1} (appendix E.4, which omits γ); with q = v = 0 and trace 1 the discounted return.
    """
    follows = bootstrap
    for t in range(reward.size - 1, -1, -1):
        out[t] = reward[t] + discount * follows
        follows = trace[t] * (out[t] - q[t]) + v[t]


@kernel
def traces(log_ratio: Doubles, power: float, cap: float, out: Doubles) -> None:
    """Write min(cap, ρ^power) `[T]`; power 1/d and cap 1 are section 5.1's for d action dimensions."""
    for t in range(log_ratio.size):
        out[t] = capped(np.exp(power * log_ratio[t]), cap)


@kernel
def truncated_weights(log_ratio: Doubles, cap: float, carry: float, out: Doubles) -> None:
    """Write the importance weights of policy gradients, `[T]`.

    With carry 0 they are marginal, min(c, ρ_t) (eq. 7); with carry 1 those of what is left of the trajectory,
    min(c, Π_{i ≥ t} ρ_i) (appendix E.2).
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
