"""The first version's update of soft actor-critic (Haarnoja et al. 2018a): a value network, fixed temperature.

Wang & Ross (2019) and Sun et al. (2020) measure their replay strategies on this version.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.experiences import Experiences
from replaybench.controllers.losses.squashed_gaussian import draw_normals, sample, sample_backward
from replaybench.controllers.losses.td import targets
from replaybench.controllers.losses.twin_critics import TwinRoom, Twins, fit_twins, lesser_gradient
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Floats, backward, forward
from replaybench.controllers.networks.network import Learned, slow_copy
from replaybench.data.kernel import kernel


@kernel
def update_first(
    actor: Learned, critics: Twins, value: Learned, room: TwinRoom, x: Experiences, tau: float, temperature: float,
    stream: NDArray[np.uint64], first: int, delta: Floats,
) -> None:  # fmt: skip
    """Updates of every member, counted from `first` (Algorithm 1): equations 5, 7, 12, in 5 and 12 the lesser critic.

    All gradients are taken at the weights before the update, and the temperature stands where the paper scales rewards.
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    kind = room.q.dtype.type
    alpha = kind(temperature)
    pi, noise = np.empty((batch, actions), room.q.dtype), np.empty((batch, actions), room.q.dtype)
    head, d_head = np.empty((batch, 2 * actions), room.q.dtype), np.empty((batch, 2 * actions), room.q.dtype)
    log_prob, d_log_prob = np.empty(batch, room.q.dtype), np.empty(batch, room.q.dtype)
    y, v, d_v = np.empty_like(room.q), np.empty_like(room.q), np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    value_slow = slow_copy(value)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        forward(actor.network, m, actor.tape, x.observation[row], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_gradient(critics, m, room, x.observation[row], pi)

        forward(value.network, m, value.tape, x.observation[row], nothing, v)
        for b in range(batch):
            soft = room.q[b, 0] - alpha * log_prob[b]
            d_v[b, 0] = kind(1 / batch) * x.weight[row, b] * (v[b, 0] - soft)
            share = kind(1 / batch) * x.actor_weight[row, b]
            d_log_prob[b] = alpha * share
            for a in range(actions):
                room.d_action[b, a] *= -share
        backward(value.network, m, value.tape, d_v, True, nothing)
        sample_backward(head, noise, pi, room.d_action, d_log_prob, d_head)
        backward(actor.network, m, actor.tape, d_head, True, nothing)

        forward(value_slow, m, value.tape, x.next_observation[row], nothing, v)
        targets(x, row, v, y)
        fit_twins(critics, m, room, x, row, y, 0.5, step, delta[row])
        adam_step(value.network, m, value.adam, step, x.rate_factor[row])
        adam_step(actor.network, m, actor.adam, step, x.rate_factor[row])
        track(value_slow, value.network, m, tau)
