"""V-RACER's losses and its update of every member (Novati & Koumoutsakos 2019, sections 2 and 3), compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replaybench.controllers.experiences import Experiences
from replaybench.controllers.losses.gaussian import divergence_gradient, importance_weights
from replaybench.controllers.networks.adam import adam_step
from replaybench.controllers.networks.mlp import Floats
from replaybench.controllers.networks.network import (
    AnyTape,
    Approximator,
    Inputs,
    Learned,
    differentiate,
    evaluate,
    of_member,
    of_samples,
    outputs_of,
)
from replaybench.controllers.refer.rules import Rules, gives_gradient
from replaybench.controllers.refer.stored_returns import Q_RET, TRUNCATED
from replaybench.data.kernel import kernel

SUCCESSORS = 16
"""Truncated steps in a batch are few; their successors are evaluated so many at a time."""


class HeadForm(NamedTuple):
    """How outputs are read: whether log σ is a parameter of its own, and whether the mean is tanh's."""

    free: bool
    bounded: bool


@kernel
def update_members(
    net: Learned, successor_tape: AnyTape, deviation: Learned, form: HeadForm, x: Experiences, traces: Floats,
    rules: Rules, step: int, delta: Floats, rho: Floats, value: Floats, bootstrap: Floats,
) -> None:  # fmt: skip
    """One update of every member, with the returns that are stored (paper, section 2: V-RACER)."""
    batch, actions = x.action.shape[1], x.action.shape[2]
    network, kind = net.network, net.network.parameters.dtype.type
    outputs = np.empty((batch, outputs_of(network)), network.parameters.dtype)
    d_outputs = np.empty_like(outputs)
    mean, log_sigma = np.empty((batch, actions), outputs.dtype), np.empty((batch, actions), outputs.dtype)
    d_mean, d_log_sigma = np.empty_like(mean), np.empty_like(mean)
    nothing = np.empty((batch, 0), outputs.dtype)
    for m in range(x.action.shape[0]):
        s_t, beta = of_member(x.next_observation, m), rules.beta[m]
        _look_ahead(network, m, successor_tape, s_t, traces[m], bootstrap[m])
        evaluate(network, m, net.tape, of_member(x.observation, m), nothing, outputs)
        read_policy(outputs, deviation.network.parameters[m], form, mean, log_sigma)
        importance_weights(x.action[m], mean, log_sigma, x.mu_mean[m], x.mu_log_sigma[m], rho[m])
        for b in range(batch):
            value[m, b] = outputs[b, 0]
            delta[m, b] = traces[m, b, Q_RET] - value[m, b]
        if rules.pull:
            divergence_gradient(mean, log_sigma, x.mu_mean[m], x.mu_log_sigma[m], rules.mu_pi, d_mean, d_log_sigma)
        else:
            d_mean[:], d_log_sigma[:] = 0, 0
        policy_gradient(
            x.action[m], mean, log_sigma, rho[m], delta[m], x.actor_weight[m], rules, beta, d_mean, d_log_sigma
        )
        value_gradient(rho[m], delta[m], x.weight[m], rules, beta, d_outputs[:, 0])
        spread = deviation.network.gradient[m]
        spread[:] = 0
        for b in range(batch):
            for i in range(actions):
                inner = kind(1) - mean[b, i] * mean[b, i] if form.bounded else kind(1)
                d_outputs[b, 1 + i] = d_mean[b, i] * inner
                if form.free:
                    spread[i] += d_log_sigma[b, i]
                else:
                    d_outputs[b, 1 + actions + i] = d_log_sigma[b, i]
        differentiate(network, m, net.tape, d_outputs, True, nothing)
        adam_step(network, m, net.adam, step, x.rate_factor[m])
        if form.free:
            adam_step(deviation.network, m, deviation.adam, step, x.rate_factor[m])


@kernel
def policy_gradient(
    action: Floats, mean: Floats, log_sigma: Floats, rho: Floats, advantage: Floats, weight: Floats,
    rules: Rules, beta: float, d_mean: Floats, d_log_sigma: Floats,
) -> None:  # fmt: skip
    """Turn gradients of the divergence `[B, A]` into those of the policy's loss, to mean and log σ (eq. 5, 10).

    The loss is the batch's mean of −β w ρ A log π(a|s) where near-policy (ρ held fixed), plus (1 − β) D_KL everywhere.
    """
    batch = action.shape[0]
    kind = mean.dtype.type
    one = kind(1)
    attraction = kind((1 - beta) / batch)
    for b in range(batch):
        used = gives_gradient(rho[b], rules)
        limited = kind(rules.limit) if rho[b] > rules.limit else rho[b]
        factor = kind(beta / batch) * weight[b] * advantage[b] * limited if used else kind(0)
        for i in range(action.shape[1]):
            inverse = np.exp(-log_sigma[b, i])
            z = (action[b, i] - mean[b, i]) * inverse
            d_mean[b, i] = attraction * d_mean[b, i] - factor * z * inverse
            d_log_sigma[b, i] = attraction * d_log_sigma[b, i] - factor * (z * z - one)


@kernel
def value_gradient(rho: Floats, advantage: Floats, weight: Floats, rules: Rules, beta: float, d_value: Floats) -> None:
    """Write the gradient to V `[B]` of the batch's mean of ½ β w (V − V_tbc)², V_tbc held fixed (eq. 9, 10)."""
    batch = rho.size
    kind = rho.dtype.type
    for b in range(batch):
        used = gives_gradient(rho[b], rules)
        kept = kind(1) if rho[b] > 1 else rho[b]
        d_value[b] = kind(-beta / batch) * weight[b] * kept * advantage[b] if used else kind(0)


@kernel
def read_policy(outputs: Floats, first: Floats, form: HeadForm, mean: Floats, log_sigma: Floats) -> None:
    """Read mean and log σ `[B, A]` from the outputs; `first` `[A]` is log σ, or what it is at first."""
    actions = mean.shape[1]
    for b in range(mean.shape[0]):
        for i in range(actions):
            mean[b, i] = np.tanh(outputs[b, 1 + i]) if form.bounded else outputs[b, 1 + i]
            log_sigma[b, i] = first[i] if form.free else first[i] + outputs[b, 1 + actions + i]


@kernel
def _look_ahead(network: Approximator, m: int, tape: AnyTape, then: Inputs, traces: Floats, value: Floats) -> None:
    """Write V(s′) `[B]` of those samples with which an episode was cut off; leave the others."""
    kind = network.parameters.dtype
    samples, outputs = np.empty(SUCCESSORS, np.int64), np.empty((SUCCESSORS, outputs_of(network)), kind)
    nothing = np.empty((SUCCESSORS, 0), kind)
    found, b = 0, 0
    while b < value.size:
        if traces[b, TRUNCATED] > 0:
            samples[found] = b
            found += 1
        b += 1
        if found == SUCCESSORS or (b == value.size and found > 0):
            evaluate(network, m, tape, of_samples(then, samples[:found]), nothing[:found], outputs[:found])
            for i in range(found):
                value[samples[i]] = outputs[i, 0]
            found = 0
