"""Batches of experiences for compiled updates, and their temporal-difference targets.

Values v or q of step t − 1 move towards r_t + discount_t v_t, where discount_t is 0 when the episode terminated.
"""

from typing import Any, NamedTuple

from numba import types
from numba.extending import typeof_impl

from replaybench.runtime.arrays import AnyFloats, Floats
from replaybench.runtime.kernel import kernel


class Experiences(NamedTuple):
    """The arrays of a batch, as compiled updates take them: M rows of B experiences, a row for each member.

    For a chunk of U updates there are M·U rows, and row m·U + u is for update u of member m.

    Attributes:
        observation, next_observation: s_tm1 and s_t `[M, B, S]`, normalised; for recurrent networks, segments that end
            with them (`Inputs`).
        action: `[M, B, A]`.
        reward, terminated: as stored, `[M, B, 1]`; see `outcome`.
        weight, actor_weight: weights of each sample in the losses of critic and actor, `[M, B]`.
        rate_factor: factor on the learning rates `[M]`.
        mu_mean, mu_log_sigma: the Gaussian μ from which the action was drawn, `[M, B, A]`; `[M, B, 0]` if unknown.
        reward_factor: float64 `[M]`, factor on rewards.
        discount: γ.
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


@typeof_impl.register(Experiences)
def _type_of(x: Experiences, context: Any) -> Any:
    """Return the Numba type with arbitrary strides of 3-D arrays, so that one kernel serves views and copies."""
    kinds = [typeof_impl(value, context) for value in x]
    return types.NamedTuple([_any_strides(kind) for kind in kinds], Experiences)


def _any_strides(kind: Any) -> Any:
    return kind.copy(layout="A") if isinstance(kind, types.Array) and kind.ndim == 3 else kind


@kernel
def outcome(x: Experiences, row: int, b: int, kind: Any) -> tuple[Any, Any]:
    """Return a sample's scaled r_t and its discount_t (γ, or 0 after termination), both of type `kind`."""
    r_t = kind(x.reward_factor[row]) * x.reward[row, b, 0]
    discount_t = kind(x.discount) * (kind(1) - x.terminated[row, b, 0])
    return r_t, discount_t


@kernel
def td_error(q_tm1: float, r_t: float, discount_t: float, q_t: float) -> float:
    """Return δ = r_t + discount_t q_t − q_tm1."""
    return r_t + discount_t * q_t - q_tm1


@kernel
def targets(x: Experiences, row: int, v_t: AnyFloats, y: AnyFloats) -> None:
    """Write the targets y = r_t + discount_t v_t of a row's samples, given values v_t of their successors; `[B, 1]`."""
    for b in range(y.shape[0]):
        r_t, discount_t = outcome(x, row, b, y.dtype.type)
        y[b, 0] = r_t + discount_t * v_t[b, 0]
