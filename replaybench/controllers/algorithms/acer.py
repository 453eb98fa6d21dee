"""ACER, actor-critic with experience replay, for continuous actions (Wang et al. 2017).

The stochastic policy is N(φ(x), σ²) with fixed σ. A stochastic dueling network computes V and Q̃. Targets are Retrace
returns of replayed segments. The importance weights in the policy gradient are truncated, and a correction removes the
bias. The gradient is projected into a trust region around an average policy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
from replaybench.controllers.interface.agent import Batch, LearnerSetting, Task
from replaybench.controllers.interface.noise import Explored, PolicyDraws
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import AnyTape, TrainState, differentiate, evaluate
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.configuration import Number, Positive, Widths
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_normal


@dataclass(frozen=True, kw_only=True)
class ACERConfig(ACERSettings):
    """Settings of ACER, with the values of Wang et al. (2017) unless noted.

    The paper draws learning rates from [1e-4, 10^-3.3] and δ from [0.1, 2], and replays each experience about 4 times.
    In the paper, many workers update with one segment each, and policy and value share most layers. Here, the networks
    are separate. δ, the bound on kᵀg in the trust region, has the unit of the advantage and is 10 by default.

    ρ̄ is min(c, ρ), as in Algorithm 3. `samples` is n, the number of sampled actions of the dueling network (eq. 13).
    Q̃(a) and Q̃(a′) use the same sampled actions. `policy_return` is the return in the policy gradient, Retrace or
    "opc", which is Retrace with the weights ρ̄ replaced by 1 (eq. 21).

    `dueling = false` trains a critic Q(x, a) in addition to V. The gradient step of V is then in proportion to
    ρ (Q_ret − V), and Q must not learn more slowly than V. `trajectory_weights` is the paper's TIS, or Trust-TIS with
    `trust_region` (E.2). It weights the return to the end of the segment by min(c, Π ρ) over the remaining steps.
    Without replays and with `on_policy`, TIS and Trust-TIS become A3C and Trust-A3C, with synchronous updates.
    """

    value_hidden: Widths = (64, 64)
    advantage_hidden: Widths = (32, 32)
    sigma: Positive = 0.3
    samples: Number = 5
    policy_return: Literal["ret", "opc"] = "opc"
    dueling: bool = True
    trajectory_weights: bool = False


def numbers_of(config: ACERConfig, task: Task) -> ACERNumbers:
    """Return the settings of ACER as numbers, for compiled updates on a task."""
    numbers, trajectory = config.numbers(task.discount), config.trajectory_weights
    power, policy = 1.0 / task.action_size, config.policy_return == "opc"
    if trajectory:
        numbers, power = numbers._replace(cap=1.0, control=0.0), 0.0
    elif not config.retrace:
        power, policy = 1.0, False
    return numbers._replace(
        sigma=config.sigma,
        samples=config.samples if config.dueling else 0,
        power=power,
        policy_power=0.0 if policy else power,
        policy_cap=1.0 if policy else numbers.cap,
        correct_from=np.inf if trajectory else numbers.bound,
        carry=float(trajectory),
        dueling=config.dueling,
        trajectory=trajectory,
    )


class ACER(Learner):
    """Actor-critic with experience replay (ACER, Wang et al. 2017) for continuous actions.

    M members are trained together. Each member has a policy, an average policy, and networks for
    the value V and for the advantage A (or the action value Q).
    """

    config: ACERConfig
    exploration: PolicyDraws
    supports_chunks = True
    metric_names = ("kl", "ratio_truncated")

    def __init__(self, config: ACERConfig, setting: LearnerSetting) -> None:
        s, a, rate = setting.task.observation_size, setting.task.action_size, config.critic_rate
        plain = Shape((), output_scale=config.output_scale)
        shapes = {
            "policy": replace(plain, sizes=(s, *config.policy_hidden, a), tanh=True),
            "value": replace(plain, sizes=(s, *config.value_hidden, 1)),
            "advantage": replace(plain, sizes=(s, *config.advantage_hidden, 1), actions=a, inject=0),
        }
        rates = {"policy": config.policy_rate, "value": rate, "advantage": rate}
        super().__init__(config, setting, shapes, rates, targets=["policy"])
        self.policy_network, self.value_network, self.advantage = self.networks.values()
        self.numbers = numbers_of(config, setting.task)
        self.fields, self.draws = {"behaviour_mean": a}, setting.stream("update")
        batch = config.batch_size * config.segment
        self._policy = self.train_state("policy", batch)
        self._value = self.train_state("value", batch + config.batch_size)
        self._advantage = self.train_state("advantage", batch * (1 + self.numbers.samples))
        self._other_tape = self.train_state("advantage", batch).tape

    def perturb(self, observation: AnyFloats) -> Explored:
        mean = self.act(observation).astype(np.float32)
        action = (mean + self.config.sigma * self.exploration.drawn).astype(np.float32)
        return Explored(action, np.abs(action - mean).sum(axis=1), {"behaviour_mean": mean})

    def sample(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        mean = self.policy(observation)
        noise = self.exploration.stream.normal(mean[0].size).reshape(mean.shape)
        return np.asarray(mean + self.config.sigma * noise, mean.dtype)

    def value(self, observation: AnyFloats) -> AnyFloats:
        return self.normaliser.rewards.restored(self.value_network(self.normalised(observation))[:, :, 0])

    def metrics(self, stored: Mapping[str, AnyFloats]) -> dict[str, np.ndarray]:
        """Return the mean of D_KL(μ‖π) over stored steps with behaviour μ, and the fraction of steps with ρ > c."""
        observation, action, behaviour = steps_of(self, stored, "observation", "action", "behaviour_mean")
        mean = self.policy(observation)
        double = 2.0 * self.config.sigma**2
        log_rho = ((action - behaviour) ** 2 - (action - mean) ** 2).sum(axis=2) / double
        kl = ((mean - behaviour) ** 2).sum(axis=2) / double
        measured = {"kl": kl, "ratio_truncated": log_rho > math.log(self.config.truncate_at)}
        return mean_over((action != behaviour).any(axis=2), measured)  # a sampled action differs from its mean

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        """Update all networks, and return the mean of |Q_ret − Q̃| over each sampled segment as its TD error."""
        first, dtype, delta = self.begin_updates(batch), self.setting.dtype, self.empty_per_sample(batch)
        data, behaviour = as_segments(batch, self.normaliser, dtype), rows(batch, "behaviour_mean", dtype)
        nets, stream = (self._policy, self._value, self._advantage, self._other_tape), self.draws.state
        _update(*nets, data, behaviour, stream, self.numbers, first, delta)
        return {"td_error": delta}

    def _extra_state(self) -> dict[str, np.ndarray]:
        return {**super()._extra_state(), "draws_stream": self.draws.state}


@kernel
def log_ratio(action: AnyFloats, mean: AnyFloats, behaviour: AnyFloats, sigma: float, bound: float) -> float:
    """Return the log importance weight log N(a; φ, σ²) − log N(a; μ, σ²), clipped to ±bound.

    φ is the mean of the present policy, and μ the mean of the policy that took the action a.
    """
    total = 0.0
    for j in range(action.size):
        total += (action[j] - behaviour[j]) ** 2 - (action[j] - mean[j]) ** 2
    return clipped(total / (2.0 * sigma * sigma), bound)


@kernel
def value_coefficient(ret: float, q: float, v: float, rho: float, dueling: bool) -> float:
    """Return the coefficient of ∇V in the gradient step of ACER's critic (Wang et al. 2017).

    With the dueling network, it is (1 + min(1, ρ)) (Q_ret − Q̃). The summand 1 comes from ∇Q̃, and min(1, ρ) from the
    target of V (eq. 14). With a separate critic Q, the coefficient is ρ (Q_ret − V) (appendix E.4).
    """
    if dueling:
        return (1.0 + (1.0 if rho > 1.0 else rho)) * (ret - q)
    coefficient: float = rho * (ret - v)
    return coefficient


@kernel
def sample_actions(
    data: Segments, row: int, mean: AnyFloats, stream: NDArray[np.uint64], numbers: ACERNumbers, tried: AnyFloats,
    other: AnyFloats,
) -> None:  # fmt: skip
    """Write the stored actions a, then the sampled actions u_1…u_n, to `tried`, and sampled actions a′ to `other`.

    The symbols are those of Wang et al. (2017, section 5). `tried` `[(1 + n)·B·K, A]` consists of 1 + n blocks, `other`
    `[B·K, A]` of one. Rows after the end of a segment are zero, and no random numbers are drawn for them.
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
def action_value(a: AnyFloats, v: AnyFloats, r: int, count: int, numbers: ACERNumbers, own: float) -> float:
    """Return the action value Q̃ of the stochastic dueling network in row r (Wang et al. 2017, eq. 13).

    `own` is the action's advantage or, without dueling, Q, which is returned. `a` has the advantages of all `tried`.
    """
    if not numbers.dueling:
        return own
    mean = 0.0
    for i in range(1, numbers.samples + 1):
        mean += a[i * count + r, 0]
    estimate: float = v[r, 0] + own - mean / numbers.samples
    return estimate


@kernel
def _update(
    policy: TrainState, value: TrainState, advantage: TrainState, other_tape: AnyTape,
    data: Segments, behaviour: AnyFloats, stream: NDArray[np.uint64], numbers: ACERNumbers, first: int,
    td_error: AnyFloats,
) -> None:  # fmt: skip
    """Update the networks of every member by Algorithm 3 of Wang et al. (2017), whose symbols the code uses.

    `first` is the number, from 1, of the first update on the batch. The TD errors are written to `td_error` `[M·U, B]`.
    """
    count, actions = data.action.shape[1:]
    segments, blocks = data.length.shape[1], 1 + numbers.samples
    observations, kind = data.observation.shape[2], policy.network.parameters.dtype
    phi, d_phi, phi_average, other = np.zeros((4, count, actions), kind)
    v, d_v = np.zeros((2, count + segments, 1), kind)
    a, d_a = np.zeros((2, blocks * count, 1), kind)
    a_other, tried = np.zeros((count, 1), kind), np.zeros((blocks * count, actions), kind)
    repeated, nothing = np.zeros((blocks * count, observations), kind), np.zeros((count + segments, 0), kind)
    updates = data.action.shape[0] // policy.network.parameters.shape[0]
    for row in range(data.action.shape[0]):
        m, step = row // updates, first + row % updates
        observation, rate = data.observation[row, :count], data.rate_factor[row]
        evaluate(policy.target, m, policy.tape, observation, nothing, phi_average)
        evaluate(policy.network, m, policy.tape, observation, nothing, phi)
        evaluate(value.network, m, value.tape, data.observation[row], nothing, v)
        if not numbers.trajectory:
            sample_actions(data, row, phi, stream[m], numbers, tried, other)
            for i in range(blocks):
                repeated[i * count : (i + 1) * count] = observation
            evaluate(advantage.network, m, other_tape, observation, other, a_other)
            evaluate(advantage.network, m, advantage.tape, repeated, tried, a)
        mu, error = behaviour[row], td_error[row]
        gradients(data, row, mu, phi, phi_average, v, a, other, a_other, numbers, d_phi, d_v, d_a, error)
        differentiate(policy.network, m, policy.tape, d_phi, True, nothing)
        adam_step(policy.network, m, policy.adam, step, rate)
        differentiate(value.network, m, value.tape, d_v, True, nothing)
        adam_step(value.network, m, value.adam, step, rate)
        if not numbers.trajectory:
            differentiate(advantage.network, m, advantage.tape, d_a, True, nothing)
            adam_step(advantage.network, m, advantage.adam, step, rate)
        track(policy.target, policy.network, m, numbers.tau)


@kernel
def gradients(
    data: Segments, row: int, behaviour: AnyFloats, phi: AnyFloats, phi_average: AnyFloats, v: AnyFloats,
    a: AnyFloats, other: AnyFloats,
    a_other: AnyFloats, numbers: ACERNumbers, d_phi: AnyFloats, d_v: AnyFloats, d_a: AnyFloats, td_error: AnyFloats,
) -> None:  # fmt: skip
    """Write one batch's gradients with respect to φ, V and A to `d_phi`, `d_v` and `d_a`, and fill `td_error` `[B]`."""
    length, action = data.length[row], data.action[row]
    count, actions = action.shape
    steps, total = count // length.size, max(1, length.sum())
    q, values, ret, followed, ratio, trace, weight = np.empty((7, steps))
    g, k = np.empty((2, actions))
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
