"""Action values that are quadratic in the action: what a network must put out, and the gradient to it.

Q(s, a) = V(s) − c (a − m(s))ᵀ L(s) L(s)ᵀ (a − m(s)), L lower triangular (Gu et al. 2016; Novati & Koumoutsakos 2019,
eq. 4). The outputs of a sample are V, m (before tanh, if the mean is bounded) and the entries of L row by row, those on
the diagonal made positive by exp or softplus.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

Numbers = NDArray[np.floating]


class AdvantageForm(NamedTuple):
    """How outputs are read: c, whether m = tanh(output), whether the diagonal is softplus(output), else exp."""

    c: float
    bounded: bool
    softplus: bool


def output_size(actions: int) -> int:
    """Return how many outputs a network needs: V, m and the entries of L."""
    return 1 + actions + actions * (actions + 1) // 2


@kernel
def means(outputs: Numbers, form: AdvantageForm, mean: Numbers) -> None:
    """Write the best actions m `[B, A]`, given outputs `[B, 1 + A + A(A + 1)/2]`."""
    for b in range(mean.shape[0]):
        for i in range(mean.shape[1]):
            mean[b, i] = np.tanh(outputs[b, 1 + i]) if form.bounded else outputs[b, 1 + i]


@kernel
def action_values(
    outputs: Numbers, action: Numbers, mean: Numbers, form: AdvantageForm, q: Numbers, d_q: Numbers
) -> None:
    """Write Q(s, a) `[B]` of actions `[B, A]`, and its gradient to the outputs, both `[B, 1 + A + A(A + 1)/2]`.

    With e = a − m and u = Lᵀe it is ∂Q/∂L_ij = −2c e_i u_j and ∂Q/∂m = 2c L u. `mean` is what `means` wrote.
    """
    batch, actions = action.shape
    kind = outputs.dtype.type
    one, c2 = kind(1), kind(2 * form.c)
    u = np.empty(actions, outputs.dtype)
    for b in range(batch):
        u[:] = 0
        entry = 1 + actions
        for i in range(actions):
            e = action[b, i] - mean[b, i]
            for j in range(i):
                u[j] += outputs[b, entry] * e
                entry += 1
            u[i] += _positive(outputs[b, entry], form.softplus) * e
            entry += 1
        advantage = kind(0)
        for j in range(actions):
            advantage -= u[j] * u[j]
        q[b] = outputs[b, 0] + kind(form.c) * advantage
        d_q[b, 0] = one
        entry = 1 + actions
        for i in range(actions):
            e = action[b, i] - mean[b, i]
            pulled = kind(0)
            for j in range(i):
                pulled += outputs[b, entry] * u[j]
                d_q[b, entry] = -c2 * e * u[j]
                entry += 1
            diagonal = _positive(outputs[b, entry], form.softplus)
            slope = one - np.exp(-diagonal) if form.softplus else diagonal
            d_q[b, entry] = -c2 * e * u[i] * slope
            entry += 1
            inner = one - mean[b, i] * mean[b, i] if form.bounded else one
            d_q[b, 1 + i] = c2 * (pulled + diagonal * u[i]) * inner


@kernel
def _positive(x: float, softplus: bool) -> Any:
    """Return exp(x), or log(1 + exp(x)), whose slope is 1 − exp(−itself)."""
    if softplus:
        return np.log1p(np.exp(-np.abs(x))) + (x if x > 0 else x - x)
    return np.exp(x)
