"""The first version's update of soft actor-critic (Haarnoja et al. 2018a): a value network, fixed temperature.

Wang & Ross (2019) and Sun et al. (2020) measure their replay strategies on this version.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.losses.squashed_gaussian import draw_normals, sample, sample_backward
from replaybench.controllers.losses.twin_critics import (
    TwinAdams,
    TwinRoom,
    Twins,
    bootstrap,
    fit_twins,
    lesser_gradient,
)
from replaybench.controllers.networks.adam import Adam, adam_step, track
from replaybench.controllers.networks.mlp import Floats, Network, Tape, backward, forward
from replaybench.data.kernel import kernel


@kernel
def update_first(
    actor: Network, critics: Twins, value: Network, value_target: Network,
    actor_adam: Adam, critic_adams: TwinAdams, value_adam: Adam, actor_tape: Tape, value_tape: Tape, room: TwinRoom,
    observation: Floats, action: Floats, reward: Floats, next_observation: Floats, terminated: Floats,
    weight: Floats, actor_weight: Floats, rate_factor: Floats,
    discount: float, reward_factor: NDArray[np.float64], tau: float, temperature: float,
    stream: NDArray[np.uint64], step: int, td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member (Algorithm 1), equations 5, 7 and 12 with the minimum of two critics in 5 and 12.

    All gradients are taken at the weights before the update, and the temperature stands where the paper scales rewards.
    """
    batch, actions = action.shape[1], action.shape[2]
    kind = room.q.dtype.type
    alpha = kind(temperature)
    pi, noise = np.empty((batch, actions), room.q.dtype), np.empty((batch, actions), room.q.dtype)
    head, d_head = np.empty((batch, 2 * actions), room.q.dtype), np.empty((batch, 2 * actions), room.q.dtype)
    log_prob, d_log_prob = np.empty(batch, room.q.dtype), np.empty(batch, room.q.dtype)
    y, v, d_v = np.empty_like(room.q), np.empty_like(room.q), np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    for m in range(action.shape[0]):
        forward(actor, m, actor_tape, observation[m], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_gradient(critics, m, room, observation[m], pi)

        forward(value, m, value_tape, observation[m], nothing, v)
        for b in range(batch):
            soft = room.q[b, 0] - alpha * log_prob[b]
            d_v[b, 0] = kind(1 / batch) * weight[m, b] * (v[b, 0] - soft)
            share = kind(1 / batch) * actor_weight[m, b]
            d_log_prob[b] = alpha * share
            for a in range(actions):
                room.d_action[b, a] *= -share
        backward(value, m, value_tape, d_v, True, nothing)
        sample_backward(head, noise, pi, room.d_action, d_log_prob, d_head)
        backward(actor, m, actor_tape, d_head, True, nothing)

        forward(value_target, m, value_tape, next_observation[m], nothing, v)
        bootstrap(reward[m], terminated[m], v, reward_factor[m], discount, y)
        fit_twins(
            critics, critic_adams, m, room, observation[m], action[m], y, weight[m], 0.5, step, rate_factor[m],
            td_error[m],
        )  # fmt: skip
        adam_step(value, m, value_adam, step, rate_factor[m])
        adam_step(actor, m, actor_adam, step, rate_factor[m])
        track(value_target, value, m, tau)
