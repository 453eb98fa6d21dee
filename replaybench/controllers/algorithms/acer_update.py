"""ACER's update of every member: Wang et al. (2017), Algorithm 3, with the variants of appendix E as numbers.

Kernels on arrays of replayed segments; which variant is asked for is said by `ACERNumbers`, and nothing here knows of
configurations, replay or plants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.losses.segment_returns import clipped, correction, retrace, traces, truncated_weights
from replaybench.controllers.losses.segments import Segments
from replaybench.controllers.losses.trust_region import project
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Floats, Tape, backward, forward
from replaybench.controllers.networks.network import Learned, slow_copy
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_normal


class ACERNumbers(NamedTuple):
    """What the kernel computes, in numbers.

    Traces are min(cap, ρ^power), of the critic's return and of the policy's; `control` is 0 where returns do without
    Q and V; `bound` and `correct_from` are c of the truncation and of its correction.
    """

    discount: float
    sigma: float
    samples: int
    log_bound: float
    power: float
    cap: float
    policy_power: float
    policy_cap: float
    control: float
    bound: float
    correct_from: float
    carry: float
    delta: float
    tau: float
    dueling: bool
    trajectory: bool


@kernel
def log_ratio(action: Floats, mean: Floats, behaviour: Floats, sigma: float, bound: float) -> float:
    """Return log ρ = log N(a; φ, σ²) − log N(a; μ, σ²) within ±bound, for one step's vectors `[A]`."""
    total = 0.0
    for j in range(action.size):
        total += (action[j] - behaviour[j]) ** 2 - (action[j] - mean[j]) ** 2
    return clipped(total / (2.0 * sigma * sigma), bound)


@kernel
def value_coefficient(ret: float, q: float, v: float, rho: float, dueling: bool) -> float:
    """Return what multiplies ∇V in the critic's ascent.

    With the dueling network (1 + min(1, ρ)) (Q_ret − Q̃), of which 1 comes from ∇Q̃ and the rest from the target of
    eq. 14; with a critic of its own ρ (Q_ret − V) (appendix E.4).
    """
    if dueling:
        return (1.0 + (1.0 if rho > 1.0 else rho)) * (ret - q)
    coefficient: float = rho * (ret - v)
    return coefficient


@kernel
def sample_actions(
    data: Segments,
    row: int,
    mean: Floats,
    stream: NDArray[np.uint64],
    numbers: ACERNumbers,
    tried: Floats,
    other: Floats,
) -> None:
    """Write a, u_1…u_n below each other into tried `[(1 + n) B·K, A]`, and a′ into other `[B·K, A]`.

    Padding draws nothing and gets zeros: what a failed member left there must not reach the next one.
    """
    length = data.length[row]
    count, actions = other.shape
    steps = count // length.size
    for r in range(count):
        own = r % steps < length[r // steps]
        for j in range(actions):
            tried[r, j] = data.action[row, r, j]
        for i in range(1, numbers.samples + 2):
            for j in range(actions):
                u = mean[r, j] + numbers.sigma * next_normal(stream) if own else 0.0
                if i <= numbers.samples:
                    tried[i * count + r, j] = u
                else:
                    other[r, j] = u


@kernel
def action_value(a: Floats, v: Floats, r: int, count: int, numbers: ACERNumbers, own: float) -> float:
    """Return Q̃ of row r (eq. 13), given its A of the action concerned; Q itself without the dueling network."""
    if not numbers.dueling:
        return own
    mean = 0.0
    for i in range(1, numbers.samples + 1):
        mean += a[i * count + r, 0]
    estimate: float = v[r, 0] + own - mean / numbers.samples
    return estimate


@kernel
def update_members(
    policy: Learned, value: Learned, advantage: Learned, other_tape: Tape,
    data: Segments, behaviour: Floats, stream: NDArray[np.uint64], numbers: ACERNumbers, first: int, td_error: Floats,
) -> None:  # fmt: skip
    """Updates of every member, counted from `first`; the symbols are those of Algorithm 3."""
    count, actions = data.action.shape[1:]
    segments, blocks = data.length.shape[1], 1 + numbers.samples
    observations, kind = data.observation.shape[2], policy.network.parameters.dtype
    phi, d_phi = np.zeros((count, actions), kind), np.zeros((count, actions), kind)
    phi_average, other = np.zeros_like(phi), np.zeros_like(phi)
    v, d_v = np.zeros((count + segments, 1), kind), np.zeros((count + segments, 1), kind)
    a, d_a = np.zeros((blocks * count, 1), kind), np.zeros((blocks * count, 1), kind)
    a_other, tried = np.zeros((count, 1), kind), np.zeros((blocks * count, actions), kind)
    repeated, nothing = np.zeros((blocks * count, observations), kind), np.zeros((count + segments, 0), kind)
    average = slow_copy(policy)
    updates = data.action.shape[0] // policy.network.parameters.shape[0]
    for row in range(data.action.shape[0]):
        m, step = row // updates, first + row % updates
        observation, rate = data.observation[row, :count], data.rate_factor[row]
        forward(average, m, policy.tape, observation, nothing, phi_average)
        forward(policy.network, m, policy.tape, observation, nothing, phi)
        forward(value.network, m, value.tape, data.observation[row], nothing, v)
        if not numbers.trajectory:
            sample_actions(data, row, phi, stream[m], numbers, tried, other)
            for i in range(blocks):
                repeated[i * count : (i + 1) * count] = observation
            forward(advantage.network, m, other_tape, observation, other, a_other)
            forward(advantage.network, m, advantage.tape, repeated, tried, a)
        mu, error = behaviour[row], td_error[row]
        gradients(data, row, mu, phi, phi_average, v, a, other, a_other, numbers, d_phi, d_v, d_a, error)
        backward(policy.network, m, policy.tape, d_phi, True, nothing)
        adam_step(policy.network, m, policy.adam, step, rate)
        backward(value.network, m, value.tape, d_v, True, nothing)
        adam_step(value.network, m, value.adam, step, rate)
        if not numbers.trajectory:
            backward(advantage.network, m, advantage.tape, d_a, True, nothing)
            adam_step(advantage.network, m, advantage.adam, step, rate)
        track(average, policy.network, m, numbers.tau)


@kernel
def gradients(
    data: Segments, row: int, behaviour: Floats, phi: Floats, phi_average: Floats, v: Floats, a: Floats, other: Floats,
    a_other: Floats, numbers: ACERNumbers, d_phi: Floats, d_v: Floats, d_a: Floats, td_error: Floats,
) -> None:  # fmt: skip
    """Write the gradients of one row's losses, averaged over the batch's steps, with respect to φ, V and A."""
    length, action = data.length[row], data.action[row]
    count, actions = action.shape
    steps, total = count // length.size, max(1, length.sum())
    q, values, ret, followed = np.empty(steps), np.empty(steps), np.empty(steps), np.empty(steps)
    ratio, trace, weight = np.empty(steps), np.empty(steps), np.empty(steps)
    g, k = np.empty(actions), np.empty(actions)
    variance = numbers.sigma**2
    d_phi[:], d_v[:], d_a[:] = 0, 0, 0
    for b in range(length.size):
        n, first = length[b], b * steps
        reward = data.reward[row, first : first + n]
        for t in range(n):
            r = first + t
            ratio[t] = log_ratio(action[r], phi[r], behaviour[r], numbers.sigma, numbers.log_bound)
            q[t] = numbers.control * action_value(a, v, r, count, numbers, a[r, 0])
            values[t] = numbers.control * v[r, 0]
        future = np.float64(v[count + b, 0]) if data.goes_on[row, b] else 0.0
        traces(ratio[:n], numbers.power, numbers.cap, trace)
        retrace(reward, q[:n], values[:n], trace, future, numbers.discount, ret)
        traces(ratio[:n], numbers.policy_power, numbers.policy_cap, trace)
        retrace(reward, q[:n], values[:n], trace, future, numbers.discount, followed)
        truncated_weights(ratio[:n], numbers.bound, numbers.carry, weight)
        error = 0.0
        for t in range(n):
            r = first + t
            q_other = action_value(a, v, r, count, numbers, a_other[r, 0])
            ratio_other = log_ratio(other[r], phi[r], behaviour[r], numbers.sigma, numbers.log_bound)
            bias = correction(np.exp(ratio_other), numbers.correct_from) * (q_other - v[r, 0])
            for j in range(actions):
                likely = weight[t] * (followed[t] - v[r, 0]) * (action[r, j] - phi[r, j])
                g[j] = (likely + bias * (other[r, j] - phi[r, j])) / variance
                k[j] = (phi[r, j] - phi_average[r, j]) / variance
            project(g, k, numbers.delta)
            for j in range(actions):
                d_phi[r, j] = -data.actor_weight[row, b] / total * g[j]
            share = data.weight[row, b] / total
            if numbers.trajectory:
                delta = ret[t] - v[r, 0]
                d_v[r, 0] = -share * weight[t] * delta
            else:
                q_t = action_value(a, v, r, count, numbers, a[r, 0])
                delta = ret[t] - q_t
                d_v[r, 0] = -share * value_coefficient(ret[t], q_t, v[r, 0], np.exp(ratio[t]), numbers.dueling)
                d_a[r, 0] = -share * delta
                for i in range(1, numbers.samples + 1):
                    d_a[i * count + r, 0] = share * delta / numbers.samples
            error += np.abs(delta)
        td_error[b] = error / max(1, n)
