"""The update of ACER for discretised actions: Wang et al. (2017), Algorithm 2, for every member.

Kernels on arrays of replayed segments; nothing here knows of configurations, replay or plants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.losses.segment_returns import clipped, correction, retrace, traces, truncated_weights
from replaybench.controllers.losses.segments import Segments
from replaybench.controllers.losses.trust_region import project
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Floats, backward, forward
from replaybench.controllers.networks.network import Learned, slow_copy
from replaybench.data.kernel import kernel

Doubles = NDArray[np.float64]

_LEAST = 1e-6
"""Probabilities below this count as this in quotients: a softmax can round to 0."""


class ACERDiscreteNumbers(NamedTuple):
    """What the kernel computes, in numbers: traces are min(cap, ρ); `control` is 0 where returns do without Q."""

    discount: float
    entropy: float
    log_bound: float
    cap: float
    control: float
    bound: float
    delta: float
    tau: float


@kernel
def probabilities(logits: Floats, pi: Doubles, log_pi: Doubles) -> None:
    """Write the softmax of each row of `logits` `[R, n]`, and its logarithm."""
    for r in range(logits.shape[0]):
        most, total = logits[r, 0], 0.0
        for i in range(logits.shape[1]):
            most = logits[r, i] if logits[r, i] > most else most
        for i in range(logits.shape[1]):
            log_pi[r, i] = np.float64(logits[r, i]) - most
            pi[r, i] = np.exp(log_pi[r, i])
            total += pi[r, i]
        for i in range(logits.shape[1]):
            log_pi[r, i] -= np.log(total)
            pi[r, i] /= total


@kernel
def at_least(probability: float) -> float:
    """Return a probability that can be divided by; NaN stays."""
    return _LEAST if probability < _LEAST else probability


@kernel
def policy_gradient(
    pi: Doubles, log_pi: Doubles, mu: Floats, q: Floats, choice: int, likely: float, bound: float, entropy: float,
    g: Doubles,
) -> None:  # fmt: skip
    """Write g `[n]`, the gradient with respect to the probabilities of one state (eq. 9).

    `likely` is min(c, ρ) (Q_ret − V) of what was done; Σ_a [1 − c/ρ(a)]₊ π(a) ∇log π(a) (Q(a) − V) corrects it;
    the entropy's gradient, −(log π + 1), comes on top.
    """
    v = 0.0
    for i in range(pi.size):
        v += pi[i] * q[i]
    for i in range(pi.size):
        rho = at_least(pi[i]) / at_least(mu[i])
        g[i] = correction(rho, bound) * (q[i] - v) - entropy * (log_pi[i] + 1.0)
    g[choice] += likely / at_least(pi[choice])


@kernel
def to_logits(pi: Doubles, z: Doubles, scale: float, d_logits: Floats) -> None:
    """Write scale · ∂π/∂logits · z, `[n]`: π_j (z_j − Σ_i π_i z_i)."""
    mean = 0.0
    for i in range(pi.size):
        mean += pi[i] * z[i]
    for i in range(pi.size):
        d_logits[i] = scale * pi[i] * (z[i] - mean)


@kernel
def update_members(
    policy: Learned, critic: Learned, data: Segments, choice: NDArray[np.int64], behaviour: Floats,
    numbers: ACERDiscreteNumbers, first: int, td_error: Floats,
) -> None:  # fmt: skip
    """Updates of every member, counted from `first`; the symbols are those of Algorithm 2."""
    count, n = data.observation.shape[1], behaviour.shape[2]
    kind = policy.network.parameters.dtype
    logits, d_logits = np.zeros((count, n), kind), np.zeros((count, n), kind)
    q, d_q, nothing = np.zeros((count, n), kind), np.zeros((count, n), kind), np.zeros((count, 0), kind)
    pi, log_pi, pi_average = np.empty((count, n)), np.empty((count, n)), np.empty((count, n))
    average = slow_copy(policy)
    updates = data.length.shape[0] // policy.network.parameters.shape[0]
    for row in range(data.length.shape[0]):
        m, step = row // updates, first + row % updates
        observation, rate = data.observation[row], data.rate_factor[row]
        forward(average, m, policy.tape, observation, nothing, logits)
        probabilities(logits, pi_average, log_pi)
        forward(policy.network, m, policy.tape, observation, nothing, logits)
        probabilities(logits, pi, log_pi)
        forward(critic.network, m, critic.tape, observation, nothing, q)
        done, mu, error = choice[row], behaviour[row], td_error[row]
        gradients(data, row, done, mu, pi, log_pi, pi_average, q, numbers, d_logits, d_q, error)
        backward(policy.network, m, policy.tape, d_logits, True, nothing)
        adam_step(policy.network, m, policy.adam, step, rate)
        backward(critic.network, m, critic.tape, d_q, True, nothing)
        adam_step(critic.network, m, critic.adam, step, rate)
        track(average, policy.network, m, numbers.tau)


@kernel
def gradients(
    data: Segments, row: int, choice: NDArray[np.int64], behaviour: Floats, pi: Doubles, log_pi: Doubles,
    pi_average: Doubles, q: Floats, numbers: ACERDiscreteNumbers, d_logits: Floats, d_q: Floats, td_error: Floats,
) -> None:  # fmt: skip
    """Write the gradients of one row's losses, averaged over the batch's steps, with respect to logits and Q."""
    length = data.length[row]
    count, n = behaviour.shape
    steps, total = count // length.size, max(1, length.sum())
    v, q_done, v_used, q_used = np.empty(count + length.size), np.empty(steps), np.empty(steps), np.empty(steps)
    ratio, trace, weight, ret = np.empty(steps), np.empty(steps), np.empty(steps), np.empty(steps)
    g, k = np.empty(n), np.empty(n)
    d_logits[:], d_q[:] = 0, 0
    for r in range(v.size):
        v[r] = 0.0
        for i in range(n):
            v[r] += pi[r, i] * q[r, i]
    for b in range(length.size):
        own, first = length[b], b * steps
        for t in range(own):
            r, done = first + t, choice[first + t]
            ratio[t] = clipped(np.log(at_least(pi[r, done]) / at_least(behaviour[r, done])), numbers.log_bound)
            q_done[t] = q[r, done]
            q_used[t], v_used[t] = numbers.control * q_done[t], numbers.control * v[r]
        future = v[count + b] if data.goes_on[row, b] else 0.0
        traces(ratio[:own], 1.0, numbers.cap, trace)
        reward = data.reward[row, first : first + own]
        retrace(reward, q_used[:own], v_used[:own], trace, future, numbers.discount, ret)
        truncated_weights(ratio[:own], numbers.bound, 0.0, weight)
        error = 0.0
        for t in range(own):
            r, done = first + t, choice[first + t]
            likely = weight[t] * (ret[t] - v[r])
            policy_gradient(pi[r], log_pi[r], behaviour[r], q[r], done, likely, numbers.bound, numbers.entropy, g)
            for i in range(n):
                k[i] = -pi_average[r, i] / at_least(pi[r, i])
            project(g, k, numbers.delta)
            to_logits(pi[r], g, -data.actor_weight[row, b] / total, d_logits[r])
            d_q[r, done] = -data.weight[row, b] / total * (ret[t] - q_done[t])
            error += np.abs(ret[t] - q_done[t])
        td_error[b] = error / max(1, own)
