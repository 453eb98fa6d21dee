"""ACER, actor-critic with experience replay, for discrete actions (Wang et al. 2017).

The policy is a softmax over a table of actions. The critic gives Q of each action, and V = Σ_a π(a) Q(a). After each
episode, one update uses this episode (Algorithm 1). Updates on replayed segments follow.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from replaybench.controllers.algorithms.segments import (
    ACERNumbers,
    ACERSettings,
    Segments,
    as_segments,
    clipped,
    correction,
    mean_over,
    project,
    retrace,
    rows,
    steps_of,
    traces,
    truncated_weights,
)
from replaybench.controllers.interface.agent import ActionLevels, Batch, DiscreteConfig, LearnerSetting
from replaybench.controllers.interface.noise import Explored, PolicyDraws, draw_uniform
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import PolicyHead, TrainState, differentiate, evaluate
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Floats, Integers
from replaybench.runtime.configuration import NonNegative, Number, Positive, Share, Widths
from replaybench.runtime.kernel import kernel

_LEAST = 1e-6
"""Smallest probability by which other probabilities are divided, because a softmax can round to 0."""


@dataclass(frozen=True, kw_only=True)
class ACERDiscreteConfig(ACERSettings, DiscreteConfig):
    """Settings of discrete ACER, with the values of Wang et al. (2017) unless noted.

    The paper learns Atari games with one network for policy and critic. Here, policy and critic are separate networks.
    The paper draws the number of replays after each on-policy update from Poisson(4). Here, `replays_per_experience` is
    the mean number, 64 by default. The paper's entropy weight is 1e-3. With 0.02 or less, the policy on the pendulum
    soon outputs 0 permanently. The projection into the trust region includes the gradient of the entropy.

    The bias correction uses Q(x, a) of each action a (Algorithm 2 prints Q(x, a_i)). With 0 replays, the learner is
    A3C, or Trust-A3C with `trust_region`, with a baseline from Q.
    """

    critic_hidden: Widths = (64, 64)
    truncate_at: Positive = 10.0
    delta: Positive = 1.0
    average: Share = 0.99
    entropy: NonNegative = 0.1
    segment: Number = 20
    batch_size: Number = 10
    replays_per_experience: NonNegative = 64.0
    on_policy: bool = True


class ACERDiscrete(Learner):
    """Actor-critic with experience replay (ACER, Wang et al. 2017) for discrete actions.

    M members are trained together. Each member has a policy, an average policy and a critic.

    Raises:
        UserError: There are more than 1000 actions, or the setting `levels` is below 2 or does not match the plant's
            own discrete actions.

    Attributes:
        table: The n discrete actions; float32, shape `[n, A]`.
    """

    config: ACERDiscreteConfig
    exploration: PolicyDraws
    supports_chunks = True
    discrete = True
    metric_names = ("kl", "ratio_truncated", "entropy")

    def __init__(self, config: ACERDiscreteConfig, setting: LearnerSetting) -> None:
        task = setting.task
        self.table = ActionLevels(config.levels, task.action_size, task.action_choices).table
        s, n = task.observation_size, len(self.table)
        hidden = {"policy": config.policy_hidden, "critic": config.critic_hidden}
        shapes = {name: Shape((s, *widths, n), output_scale=config.output_scale) for name, widths in hidden.items()}
        rates = {"policy": config.policy_rate, "critic": config.critic_rate}
        super().__init__(config, setting, shapes, rates, targets=["policy"])
        self.policy_network, self.critic = self.networks.values()
        self.numbers = config.numbers(task.discount)
        self.fields, self.exploration = {"choice": 1, "behaviour": n}, PolicyDraws(setting, 1, draw_uniform)
        batch = config.batch_size * (config.segment + 1)
        self._policy, self._critic = (self.train_state(name, batch) for name in shapes)

    def perturb(self, observation: AnyFloats) -> Explored:
        probability = self.probability(observation[:, None])[:, 0]
        choice = _chosen(probability, self.exploration.drawn[:, 0])
        action = self._actions(choice, probability)
        deviation = np.abs(action - self.act(observation)).sum(axis=1)
        extras = {"choice": choice[:, None].astype(np.float32), "behaviour": probability.astype(np.float32)}
        return Explored(action, deviation, extras)

    def probability(self, observation: AnyFloats) -> AnyFloats:
        """Return the probabilities `[M, N, n]` of the n actions at N observations `[M, N, S]` of each member."""
        logits = self._logits(observation)
        return _softmax(logits)[0].astype(logits.dtype)

    def _logits(self, observation: AnyFloats) -> AnyFloats:
        return self.policy_network(self.normalised(observation))

    def policy(self, observation: AnyFloats) -> AnyFloats:
        logits = self._logits(observation)
        return self._actions(logits.argmax(axis=2), logits)

    def sample(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        probability = self.probability(observation)
        drawn = self.exploration.stream.uniform(probability.shape[1])
        return self._actions(_chosen(probability, drawn), probability)

    def _actions(self, choice: Integers, numbers: AnyFloats) -> AnyFloats:
        """Return the actions whose indices are in `choice`, or NaN where any of the `numbers` `[…, n]` is NaN."""
        return np.where(np.isnan(numbers).any(axis=-1, keepdims=True), np.float32(np.nan), self.table[choice])

    def policy_head(self) -> PolicyHead:
        return PolicyHead(self.policy_network, 0, len(self.table), table=self.table)

    def value(self, observation: AnyFloats) -> AnyFloats:
        q = self.critic(self.normalised(observation))
        return self.normaliser.rewards.restored((self.probability(observation) * q).sum(axis=2))

    def metrics(self, stored: Mapping[str, AnyFloats]) -> dict[str, np.ndarray]:
        """Return the mean divergence from the behaviour, the fraction of steps with ρ > c, and the mean entropy."""
        observation, behaviour, choice = steps_of(self, stored, "observation", "behaviour", "choice")
        pi, log_pi = _softmax(self._logits(observation))
        chosen = choice.astype(np.int64)
        done = np.take_along_axis(pi, chosen, axis=2)[:, :, 0]
        truncated = done > self.config.truncate_at * np.take_along_axis(behaviour, chosen, axis=2)[:, :, 0]
        mu = behaviour.astype(np.float64)
        kl = (mu * (elementwise.log(np.where(mu > 0, mu, 1)) - log_pi)).sum(axis=2)
        measured = {"kl": kl, "ratio_truncated": truncated, "entropy": -(pi * log_pi).sum(axis=2)}
        return mean_over(behaviour.sum(axis=2) > 0.5, measured)  # probabilities of own steps add up to 1

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        """Update policy and critic, and return the mean of |Q_ret − Q| over each sampled segment as its TD error."""
        first, dtype, delta = self.begin_updates(batch), self.setting.dtype, self.empty_per_sample(batch)
        choice, behaviour = rows(batch, "choice", dtype)[:, :, 0].astype(np.int64), rows(batch, "behaviour", dtype)
        data = as_segments(batch, self.normaliser, dtype)
        _update(self._policy, self._critic, data, choice, behaviour, self.numbers, self.config.entropy, first, delta)
        return {"td_error": delta}


def _softmax(logits: AnyFloats) -> tuple[Floats, Floats]:
    """Return the softmax of logits and its logarithm, with the same bits as in the update."""
    pi, log_pi = np.empty(logits.shape), np.empty(logits.shape)
    each = (-1, logits.shape[-1])
    probabilities(logits.reshape(each), pi.reshape(each), log_pi.reshape(each))
    return pi, log_pi


def _chosen(probability: AnyFloats, uniform: Floats) -> Integers:
    """Return the index of the action that each uniform number in [0, 1) selects. NaN probabilities select 0."""
    below = np.cumsum(probability, axis=-1, dtype=np.float64)
    choice: Integers = (below[..., :-1] <= uniform[..., None] * below[..., -1:]).sum(axis=-1)
    return choice


@kernel
def probabilities(logits: AnyFloats, pi: Floats, log_pi: Floats) -> None:
    """Write the softmax of each row of `logits` to `pi`, and its logarithm to `log_pi`."""
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
    """Return a probability, but at least 1e-6, so that it can be a divisor. NaN stays NaN."""
    return _LEAST if probability < _LEAST else probability


@kernel
def policy_gradient(
    pi: Floats, log_pi: Floats, mu: AnyFloats, q: AnyFloats, choice: int, likely: float, bound: float, entropy: float,
    g: Floats,
) -> None:  # fmt: skip
    """Write the policy gradient with respect to the n probabilities of one state to g `[n]` (Wang et al. 2017, eq. 9).

    `likely` is min(c, ρ) (Q_ret − V) of the stored action, with index `choice`. Further terms are the bias correction
    Σ_a [1 − c/ρ(a)]₊ π(a) ∇log π(a) (Q(a) − V), and the gradient −(log π + 1) of the entropy times `entropy`.
    """
    v = 0.0
    for i in range(pi.size):
        v += pi[i] * q[i]
    for i in range(pi.size):
        rho = at_least(pi[i]) / at_least(mu[i])
        g[i] = correction(rho, bound) * (q[i] - v) - entropy * (log_pi[i] + 1.0)
    g[choice] += likely / at_least(pi[choice])


@kernel
def to_logits(pi: Floats, z: Floats, scale: float, d_logits: AnyFloats) -> None:
    """Write `scale` times the gradient with respect to logits to `d_logits`, given that of the probabilities, z."""
    mean = 0.0
    for i in range(pi.size):
        mean += pi[i] * z[i]
    for i in range(pi.size):
        d_logits[i] = scale * pi[i] * (z[i] - mean)


@kernel
def _update(
    policy: TrainState, critic: TrainState, data: Segments, choice: Integers, behaviour: AnyFloats,
    numbers: ACERNumbers, entropy: float, first: int, td_error: AnyFloats,
) -> None:  # fmt: skip
    """Update the networks of every member by Algorithm 2 of Wang et al. (2017), whose symbols the code uses.

    `first` is the number, from 1, of the first update on the batch. The TD errors are written to `td_error` `[M·U, B]`.
    """
    count, n = data.observation.shape[1], behaviour.shape[2]
    kind = policy.network.parameters.dtype
    logits, d_logits, q, d_q = np.zeros((4, count, n), kind)
    pi, log_pi, pi_average = np.empty((3, count, n))
    nothing = np.zeros((count, 0), kind)
    updates = data.length.shape[0] // policy.network.parameters.shape[0]
    for row in range(data.length.shape[0]):
        m, step = row // updates, first + row % updates
        observation, rate = data.observation[row], data.rate_factor[row]
        evaluate(policy.target, m, policy.tape, observation, nothing, logits)
        probabilities(logits, pi_average, log_pi)
        evaluate(policy.network, m, policy.tape, observation, nothing, logits)
        probabilities(logits, pi, log_pi)
        evaluate(critic.network, m, critic.tape, observation, nothing, q)
        done, mu, error = choice[row], behaviour[row], td_error[row]
        gradients(data, row, done, mu, pi, log_pi, pi_average, q, numbers, entropy, d_logits, d_q, error)
        differentiate(policy.network, m, policy.tape, d_logits, True, nothing)
        adam_step(policy.network, m, policy.adam, step, rate)
        differentiate(critic.network, m, critic.tape, d_q, True, nothing)
        adam_step(critic.network, m, critic.adam, step, rate)
        track(policy.target, policy.network, m, numbers.tau)


@kernel
def gradients(
    data: Segments, row: int, choice: Integers, behaviour: AnyFloats, pi: Floats, log_pi: Floats,
    pi_average: Floats, q: AnyFloats, numbers: ACERNumbers, entropy: float, d_logits: AnyFloats, d_q: AnyFloats,
    td_error: AnyFloats,
) -> None:  # fmt: skip
    """Write one batch's gradients with respect to logits and Q to `d_logits` and `d_q`, and fill `td_error` `[B]`."""
    length = data.length[row]
    count, n = behaviour.shape
    steps, total = count // length.size, max(1, length.sum())
    q_done, v_used, q_used, ratio, trace, weight, ret = np.empty((7, steps))
    (g, k), v = np.empty((2, n)), np.empty(count + length.size)
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
            policy_gradient(pi[r], log_pi[r], behaviour[r], q[r], done, likely, numbers.bound, entropy, g)
            for i in range(n):
                k[i] = -pi_average[r, i] / at_least(pi[r, i])
            project(g, k, numbers.delta)
            to_logits(pi[r], g, -data.actor_weight[row, b] / total, d_logits[r])
            d_q[r, done] = -data.weight[row, b] / total * (ret[t] - q_done[t])
            error += np.abs(ret[t] - q_done[t])
        td_error[b] = error / max(1, own)
