"""The present version's update of soft actor-critic (Haarnoja et al. 2018b): no value network, learned temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.experiences import Experiences
from replaybench.controllers.losses.squashed_gaussian import draw_normals, sample, sample_backward
from replaybench.controllers.losses.td import targets
from replaybench.controllers.losses.twin_critics import TwinRoom, Twins, fit_twins, lesser_gradient, lesser_value
from replaybench.controllers.networks.adam import Adam, adam_step, track
from replaybench.controllers.networks.mlp import Floats, Network, backward, forward
from replaybench.controllers.networks.network import Learned, slow_copy
from replaybench.data.kernel import kernel


@kernel
def temper(
    log_temperature: Network, m: int, adam: Adam, log_prob: Floats, weight: Floats, step: int, rate_factor: float,
    target_entropy: float,
) -> None:  # fmt: skip
    """Do one step of member m on J(α) = −log α · mean_b w_b (log π(a_b|s_b) + H̄) (eq. 18, in log α as usual)."""
    total = 0.0
    for b in range(log_prob.size):
        total += weight[b] * (log_prob[b] + target_entropy)
    log_temperature.gradient[m, 0] = -total / log_prob.size
    adam_step(log_temperature, m, adam, step, rate_factor)


@kernel
def update_present(
    actor: Learned, critics: Twins, log_temperature: Network, temperature_adam: Adam, automatic: bool, room: TwinRoom,
    x: Experiences, tau: float, target_entropy: float, stream: NDArray[np.uint64], first: int, delta: Floats,
) -> None:  # fmt: skip
    """Updates of every member, counted from `first` (Algorithm 1); ε is drawn for successors, then for states."""
    batch, actions = x.action.shape[1], x.action.shape[2]
    kind = room.q.dtype.type
    pi, noise = np.empty((batch, actions), room.q.dtype), np.empty((batch, actions), room.q.dtype)
    head, d_head = np.empty((batch, 2 * actions), room.q.dtype), np.empty((batch, 2 * actions), room.q.dtype)
    log_prob, d_log_prob = np.empty(batch, room.q.dtype), np.empty(batch, room.q.dtype)
    y = np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    critics_slow = slow_copy(critics[0]), slow_copy(critics[1])
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        alpha = np.exp(log_temperature.parameters[m, 0])

        forward(actor.network, m, actor.tape, x.next_observation[row], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_value(critics_slow, m, room, x.next_observation[row], pi)
        for b in range(batch):
            room.q[b, 0] -= alpha * log_prob[b]
        targets(x, row, room.q, y)
        fit_twins(critics, m, room, x, row, y, 0.5, step, delta[row])

        forward(actor.network, m, actor.tape, x.observation[row], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_gradient(critics, m, room, x.observation[row], pi)
        for b in range(batch):
            share = kind(1 / batch) * x.actor_weight[row, b]
            d_log_prob[b] = alpha * share
            for a in range(actions):
                room.d_action[b, a] *= -share
        sample_backward(head, noise, pi, room.d_action, d_log_prob, d_head)
        backward(actor.network, m, actor.tape, d_head, True, nothing)
        adam_step(actor.network, m, actor.adam, step, x.rate_factor[row])
        if automatic:
            weight, rate = x.actor_weight[row], x.rate_factor[row]
            temper(log_temperature, m, temperature_adam, log_prob, weight, step, rate, target_entropy)
        for i in range(2):
            track(critics_slow[i], critics[i].network, m, tau)
