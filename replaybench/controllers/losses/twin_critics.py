"""Twin critics: two action values learn the same targets, and the smaller one is believed.

The minimum of two answers the over-estimation that a policy which maximises one critic exploits (Fujimoto et al. 2018,
section 4.2). These kernels work on one member and know nothing of the policy; both its actions and its gradient are
arrays here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from replaybench.controllers.networks.adam import Adam, adam_step
from replaybench.controllers.networks.mlp import Floats, Network, Tape, backward, forward
from replaybench.data.kernel import kernel

Twins: TypeAlias = tuple[Network, Network]
TwinAdams: TypeAlias = tuple[Adam, Adam]


class TwinRoom(NamedTuple):
    """Room for one member's twins: their tape, values and loss gradients `[B, 1]`, gradients to actions `[B, A]`."""

    tape: Tape
    q: Floats
    q_other: Floats
    d_q: Floats
    d_action: Floats
    d_other: Floats


def twin_room(tape: Tape, batch: int, actions: int, dtype: DTypeLike) -> TwinRoom:
    """Allocate room for batches of `batch` experiences."""
    q, q_other, d_q = (np.zeros((batch, 1), dtype) for _ in range(3))
    d_action, d_other = (np.zeros((batch, actions), dtype) for _ in range(2))
    return TwinRoom(tape, q, q_other, d_q, d_action, d_other)


@kernel
def lesser_value(critics: Twins, m: int, room: TwinRoom, observation: Floats, action: Floats) -> None:
    """Write min_i Q_i(s, a) of member m to `room.q`, for s `[B, S]` and a `[B, A]`."""
    q, q_other = room.q, room.q_other
    forward(critics[0], m, room.tape, observation, action, q)
    forward(critics[1], m, room.tape, observation, action, q_other)
    for b in range(q.shape[0]):
        q[b, 0] = np.minimum(q[b, 0], q_other[b, 0])


@kernel
def lesser_gradient(critics: Twins, m: int, room: TwinRoom, observation: Floats, action: Floats) -> None:
    """Write min_i Q_i(s, a) of member m to `room.q` and its gradient to the action to `room.d_action`."""
    q, q_other, d_action, d_other = room.q, room.q_other, room.d_action, room.d_other
    room.d_q[:] = 1
    forward(critics[0], m, room.tape, observation, action, q)
    backward(critics[0], m, room.tape, room.d_q, False, d_action)
    forward(critics[1], m, room.tape, observation, action, q_other)
    backward(critics[1], m, room.tape, room.d_q, False, d_other)
    for b in range(q.shape[0]):
        if not q[b, 0] <= q_other[b, 0]:
            for a in range(d_action.shape[1]):
                d_action[b, a] = d_other[b, a]
        q[b, 0] = np.minimum(q[b, 0], q_other[b, 0])


@kernel
def bootstrap(
    reward: Floats, terminated: Floats, value: Floats, reward_factor: float, discount: float, y: Floats
) -> None:
    """Write the targets y = r + γ (1 − terminated) V(s′) with r scaled by `reward_factor`, all `[B, 1]`."""
    kind = y.dtype.type
    for b in range(y.shape[0]):
        y[b, 0] = kind(reward_factor) * reward[b, 0] + kind(discount) * (kind(1) - terminated[b, 0]) * value[b, 0]


@kernel
def fit_twins(
    critics: Twins, adams: TwinAdams, m: int, room: TwinRoom, observation: Floats, action: Floats, y: Floats,
    weight: Floats, coefficient: float, step: int, rate_factor: float, td_error: Floats,
) -> None:  # fmt: skip
    """Do one step of member m's critics on the losses coefficient · mean_b w_b (y_b − Q_i(s_b, a_b))².

    `td_error` `[B]` becomes ½ (|δ₁| + |δ₂|), δ before the step (Wang & Ross 2019, section 4.3).
    """
    batch = y.shape[0]
    kind = y.dtype.type
    q, d_q, nothing = room.q, room.d_q, np.empty((batch, 0), room.q.dtype)
    td_error[:] = 0
    for i in range(2):
        forward(critics[i], m, room.tape, observation, action, q)
        for b in range(batch):
            delta = y[b, 0] - q[b, 0]
            td_error[b] += kind(0.5) * np.abs(delta)
            d_q[b, 0] = kind(-2 * coefficient / batch) * weight[b] * delta
        backward(critics[i], m, room.tape, d_q, True, nothing)
        adam_step(critics[i], m, adams[i], step, rate_factor)
