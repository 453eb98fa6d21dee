"""Temporal differences (Sutton 1988; Watkins 1989), for all learners that bootstrap from the next step.

Values v or q of step t − 1 move towards r_t + discount_t v_t, where discount_t is 0 when the episode terminated.
"""

from __future__ import annotations

from replaybench.controllers.experiences import Experiences, outcome
from replaybench.controllers.networks.mlp import Floats
from replaybench.data.kernel import kernel


@kernel
def bootstrap(r_t: float, discount_t: float, v_t: float) -> float:
    """Return the target y = r_t + discount_t v_t."""
    return r_t + discount_t * v_t


@kernel
def td_error(q_tm1: float, r_t: float, discount_t: float, q_t: float) -> float:
    """Return δ = r_t + discount_t q_t − q_tm1."""
    return bootstrap(r_t, discount_t, q_t) - q_tm1


@kernel
def targets(x: Experiences, row: int, v_t: Floats, y: Floats) -> None:
    """Write the targets y of a row's samples, given values v_t of their successors; `[B, 1]`."""
    for b in range(y.shape[0]):
        r_t, discount_t = outcome(x, row, b, y.dtype.type)
        y[b, 0] = bootstrap(r_t, discount_t, v_t[b, 0])
