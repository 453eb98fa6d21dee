"""What one LSTM layer does to its gates in one step, element by element, forward and backward.

Gers et al. (2000): with the gates i, f, o ∈ (0, 1) and the candidate g ∈ (−1, 1), c ← f c + i g and h = o tanh(c).
Every loop here writes one array and reads few: LLVM's vectoriser gives up where it would have to check many arrays
against each other for overlap.
"""

from __future__ import annotations

from replaybench.controllers.networks.activations import ACTIVATIONS, activate
from replaybench.controllers.networks.mlp import Floats
from replaybench.data.kernel import kernel

_TANH = ACTIVATIONS.index("tanh")


@kernel
def cell_forward(gates: Floats, before: Floats, after: Floats, squashed: Floats, h: Floats) -> None:
    """Turn sums into gates `[4 · n]` (i, f, o, g), and cells `before` `[n]` into `after`, their tanh and h `[n]`.

    The logistic function of the first three is ½ + ½ tanh(z / 2), so that all four take the same vectorised tanh.
    """
    n, half = before.size, gates.dtype.type(0.5)
    sigmoid = gates[: 3 * n]
    for k in range(sigmoid.size):
        sigmoid[k] *= half
    activate(gates, _TANH)
    for k in range(sigmoid.size):
        sigmoid[k] = half + half * sigmoid[k]
    i, f, o, g = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    for k in range(n):
        after[k] = f[k] * before[k] + i[k] * g[k]
    for k in range(n):
        squashed[k] = after[k]
    activate(squashed, _TANH)
    for k in range(n):
        h[k] = o[k] * squashed[k]


@kernel
def cell_backward(gates: Floats, before: Floats, squashed: Floats, d_h: Floats, d_c: Floats, d_gates: Floats) -> None:
    """Turn d_h and d_c `[n]` after a step into d_gates `[4 · n]`, those of the sums, and d_c before the step."""
    n, one = before.size, gates.dtype.type(1)
    i, f, o, g = gates[:n], gates[n : 2 * n], gates[2 * n : 3 * n], gates[3 * n :]
    d_i, d_f, d_o, d_g = d_gates[:n], d_gates[n : 2 * n], d_gates[2 * n : 3 * n], d_gates[3 * n :]
    for k in range(n):
        d_c[k] += d_h[k] * o[k] * (one - squashed[k] * squashed[k])
    for k in range(n):
        d_o[k] = d_h[k] * squashed[k] * o[k] * (one - o[k])
    for k in range(n):
        d_i[k] = d_c[k] * g[k] * i[k] * (one - i[k])
    for k in range(n):
        d_f[k] = d_c[k] * before[k] * f[k] * (one - f[k])
    for k in range(n):
        d_g[k] = d_c[k] * i[k] * (one - g[k] * g[k])
    for k in range(n):
        d_c[k] *= f[k]
