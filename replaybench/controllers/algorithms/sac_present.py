"""The present version's update of soft actor-critic (Haarnoja et al. 2018b): no value network, learned temperature."""

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
    lesser_value,
)
from replaybench.controllers.networks.adam import Adam, adam_step, track
from replaybench.controllers.networks.mlp import Floats, Network, Tape, backward, forward
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
    actor: Network, critics: Twins, critic_targets: Twins, log_temperature: Network,
    actor_adam: Adam, critic_adams: TwinAdams, temperature_adam: Adam, actor_tape: Tape, room: TwinRoom,
    observation: Floats, action: Floats, reward: Floats, next_observation: Floats, terminated: Floats,
    weight: Floats, actor_weight: Floats, rate_factor: Floats,
    discount: float, reward_factor: NDArray[np.float64], tau: float, automatic: bool, target_entropy: float,
    stream: NDArray[np.uint64], step: int, td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member (Algorithm 1); each draws ε for the successors, then for the states."""
    batch, actions = action.shape[1], action.shape[2]
    kind = room.q.dtype.type
    pi, noise = np.empty((batch, actions), room.q.dtype), np.empty((batch, actions), room.q.dtype)
    head, d_head = np.empty((batch, 2 * actions), room.q.dtype), np.empty((batch, 2 * actions), room.q.dtype)
    log_prob, d_log_prob = np.empty(batch, room.q.dtype), np.empty(batch, room.q.dtype)
    y = np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    for m in range(action.shape[0]):
        alpha = np.exp(log_temperature.parameters[m, 0])

        forward(actor, m, actor_tape, next_observation[m], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_value(critic_targets, m, room, next_observation[m], pi)
        for b in range(batch):
            room.q[b, 0] -= alpha * log_prob[b]
        bootstrap(reward[m], terminated[m], room.q, reward_factor[m], discount, y)
        fit_twins(
            critics, critic_adams, m, room, observation[m], action[m], y, weight[m], 0.5, step, rate_factor[m],
            td_error[m],
        )  # fmt: skip

        forward(actor, m, actor_tape, observation[m], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_gradient(critics, m, room, observation[m], pi)
        for b in range(batch):
            share = kind(1 / batch) * actor_weight[m, b]
            d_log_prob[b] = alpha * share
            for a in range(actions):
                room.d_action[b, a] *= -share
        sample_backward(head, noise, pi, room.d_action, d_log_prob, d_head)
        backward(actor, m, actor_tape, d_head, True, nothing)
        adam_step(actor, m, actor_adam, step, rate_factor[m])
        if automatic:
            temper(
                log_temperature, m, temperature_adam, log_prob, actor_weight[m], step, rate_factor[m], target_entropy
            )
        for i in range(2):
            track(critic_targets[i], critics[i], m, tau)
