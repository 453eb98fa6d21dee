"""Actor-critic with experience replay for continuous actions, for a population: Wang et al. (2017), Algorithm 3.

The stochastic policy is N(φ(x), σ²) with fixed σ; a stochastic dueling network gives V and Q̃; replayed segments give
Retrace targets; the policy gradient is truncated, corrected and projected into a trust region around an average policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers import checks
from replaybench.controllers.agent import Batch, Task
from replaybench.controllers.exploration import Explored
from replaybench.controllers.layers import Floats, Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.learner import Learner
from replaybench.controllers.optimiser import Adam, adam_step, make_adam, track
from replaybench.controllers.policy_form import PolicyForm
from replaybench.controllers.segment_returns import clipped, correction, retrace, traces, truncated_weights
from replaybench.controllers.segments import Segments, as_segments, rows
from replaybench.controllers.trust_region import project
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_normal

Doubles = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ACERConfig:
    """Settings; the paper's values except where said.

    Paper: learning rates drawn from [1e-4, 10^-3.3], δ from [0.1, 2], about 4 replays of each experience, one segment
    per update of one of many workers. δ bounds kᵀg and is in units of the advantage: on these plants 10 learns and 1
    is slow. On the pendulum (J = 1.91e-4, FIFO[Uniform], C = 10⁴) 16 replays reach −47 per step in 500 episodes, 64
    replays −31, both with all of 8 learners; with "ret" for the policy 2 of 8 never swing up.

    Attributes:
        policy_hidden, value_hidden, advantage_hidden: three separate networks; the paper shares most of the first two.
        output_scale: factor on the first weights of the last layers.
        sigma: standard deviation σ of the policy, never learned.
        samples: n of the dueling network (eq. 13); the same u_1…u_n serve Q̃(a) and Q̃(a′).
        truncate_at: c (eq. 15, where ρ̄ is min(c, ρ) as in Algorithm 3).
        delta, average: δ, and α of the average policy θ_a ← α θ_a + (1 − α) θ.
        policy_return: what the policy follows; traces of "opc" are 1 (eq. 21).
        log_ratio_bound: log ρ is clipped to ± this (reading: the paper does not bound ρ).
        segment, batch_size: k steps, and B segments per update; 4 × 50 are an episode of 4 s at 50 Hz.
        replays_per_experience: the ratio of replay, here exactly its mean; 0 replays nothing.
        on_policy: whether each episode is followed by an update on the B newest segments.
        retrace: False takes returns by importance sampling for both targets (appendix E.4).
        dueling: False takes a critic Q(x, a) beside V, with V ← ρ (Q_ret − V) (appendix E.4). Q has `advantage_hidden`
            units, and must not learn more slowly than V: Q_ret adds V − Q up over the horizon, and V runs away with it
            (on the pendulum it does with 32-32 and not with 64-64-64).
        trust_region: False omits the projection; with 16 replays the pendulum is then at −106 after 500 episodes.
        truncation: False sets c = ∞ (appendix E.4).
        trajectory_weights: True is the baseline TIS, with `trust_region` Trust-TIS (appendix E.2): returns to the end
            of the segment, weighted by min(c, Π ρ) over what is left of it. With `on_policy` and no replays both are
            A3C and Trust-A3C, synchronous over the batch.
    """

    policy_hidden: tuple[int, ...] = (64, 64)
    value_hidden: tuple[int, ...] = (64, 64)
    advantage_hidden: tuple[int, ...] = (32, 32)
    output_scale: float = 0.1
    policy_rate: float = 5e-4
    critic_rate: float = 3e-3
    sigma: float = 0.3
    samples: int = 5
    truncate_at: float = 5.0
    delta: float = 10.0
    average: float = 0.995
    policy_return: Literal["ret", "opc"] = "opc"
    log_ratio_bound: float = 7.0
    segment: int = 50
    batch_size: int = 4
    replays_per_experience: float = 16.0
    warmup_episodes: int = 0
    on_policy: bool = False
    retrace: bool = True
    dueling: bool = True
    trust_region: bool = True
    truncation: bool = True
    trajectory_weights: bool = False

    def __post_init__(self) -> None:
        rates = {"policy_rate": self.policy_rate, "critic_rate": self.critic_rate, "output_scale": self.output_scale}
        checks.positive("ACER", **rates, sigma=self.sigma, truncate_at=self.truncate_at, delta=self.delta)
        checks.positive("ACER", log_ratio_bound=self.log_ratio_bound)
        checks.between("ACER", 0, 1, average=self.average)
        checks.between("ACER", 0, np.inf, replays_per_experience=self.replays_per_experience)
        checks.between("ACER", 0, np.inf, warmup_episodes=self.warmup_episodes)
        checks.counts("ACER", samples=self.samples, segment=self.segment, batch_size=self.batch_size)
        widths = {"policy_hidden": self.policy_hidden, "value_hidden": self.value_hidden}
        checks.widths("ACER", **widths, advantage_hidden=self.advantage_hidden)
        if not (self.on_policy or self.replays_per_experience > 0):
            raise UserError("ACER: set on_policy or replays_per_experience above 0, else nothing is learned")


class Settings(NamedTuple):
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


def make_settings(config: ACERConfig, task: Task) -> Settings:
    """Translate a configuration for a task."""
    power, cap, policy = 1.0 / task.action_size, 1.0, config.policy_return == "opc"
    if config.trajectory_weights:
        power = 0.0
    elif not config.retrace:
        power, cap, policy = 1.0, np.inf, False
    bound = config.truncate_at if config.truncation else np.inf
    return Settings(
        discount=task.discount,
        sigma=config.sigma,
        samples=config.samples if config.dueling else 0,
        log_bound=config.log_ratio_bound,
        power=power,
        cap=cap,
        policy_power=0.0 if policy else power,
        policy_cap=1.0 if policy else cap,
        control=float(config.retrace and not config.trajectory_weights),
        bound=bound,
        correct_from=np.inf if config.trajectory_weights else bound,
        carry=float(config.trajectory_weights),
        delta=config.delta if config.trust_region else np.inf,
        tau=1.0 - config.average,
        dueling=config.dueling,
        trajectory=config.trajectory_weights,
    )


class ACER(Learner):
    """M independent learners with policy, average policy, V and A (or Q) networks.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz; unused.
        dtype: float32; float64 for comparisons in tests.
    """

    metric_names = ("kl", "ratio_truncated")

    def __init__(
        self,
        config: ACERConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        m, s, a = len(members), task.observation_size, task.action_size
        policy = Shape((s, *config.policy_hidden, a), tanh=True)
        self.config, self.task, self.settings = config, task, make_settings(config, task)
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.segment, self.on_policy, self.warmup_episodes = config.segment, config.on_policy, config.warmup_episodes
        self.fields = {"behaviour_mean": a}
        self.policy_network, self.average = (PopulationMLP(policy, m, dtype) for _ in range(2))
        self.value_network = PopulationMLP(Shape((s, *config.value_hidden, 1)), m, dtype)
        self.advantage = PopulationMLP(Shape((s, *config.advantage_hidden, 1), actions=a, inject=0), m, dtype)
        self.networks = {"policy": self.policy_network, "value": self.value_network, "advantage": self.advantage}
        self.targets = {"policy": self.average}
        stream = Stream(root, members, "initialisation")
        for network in self.networks.values():
            network.initialise(stream, output_scale=config.output_scale)
        self._aim_targets()
        rates = {"policy": config.policy_rate, "value": config.critic_rate, "advantage": config.critic_rate}
        self.adams = {name: make_adam(network, rates[name]) for name, network in self.networks.items()}
        self.exploration, self.draws = Stream(root, members, "exploration"), Stream(root, members, "update")
        self.steps = np.zeros(1, np.int64)
        self._noise = np.zeros((m, a))
        batch = config.batch_size * config.segment
        self._tapes = (
            self.policy_network.tape(batch),
            self.value_network.tape(batch + config.batch_size),
            self.advantage.tape(batch * (1 + self.settings.samples)),
            self.advantage.tape(batch),
        )

    def start_episode(self, episode: int) -> None:
        """Nothing lasts for an episode."""

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return a sample of the policy `[M, A]`, unbounded; the mean goes with it. Only `active` `[M]` draw."""
        _draw(self._noise, self.exploration.state, active)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the noise of the present step."""
        mean = self.act(observation).astype(np.float32)
        action = (mean + self.config.sigma * self._noise).astype(np.float32)
        return Explored(action, np.abs(action - mean).sum(axis=1), {"behaviour_mean": mean})

    def policy(self, observation: Floats) -> Floats:
        """Return the policy's means `[M, N, A]` for observations `[M, N, S]`."""
        return self.policy_network(observation)

    def sample(self, observation: Floats) -> Floats:
        """Return samples of the policy `[M, N, A]`, unbounded."""
        mean = self.policy(observation)
        noise = self.exploration.normal(mean[0].size).reshape(mean.shape)
        return np.asarray(mean + self.config.sigma * noise, mean.dtype)

    def policy_form(self) -> PolicyForm:
        """Return the policy's means."""
        return PolicyForm(self.policy_network, 0, self.task.action_size)

    def value(self, observation: Floats) -> Floats:
        """Return V `[M, N]`, in units of the scaled reward."""
        return self.value_network(observation)[:, :, 0]

    def metrics(self, stored: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
        """Return the mean D_KL(average ‖ policy) over stored steps and the share of them with ρ > c, `[M]` each."""
        column = {name: array[:, :: self.segment] for name, array in stored.items()}
        width, members = self.task.action_size, len(self._noise)
        observation = column["observation"].reshape(members, -1, self.task.observation_size)
        action, behaviour = (column[name].reshape(members, -1, width) for name in ("action", "behaviour_mean"))
        mean, average = self.policy(observation), self.average(observation)
        # Padding: an action that was sampled differs from its mean.
        own = (action != behaviour).any(axis=2)
        steps = np.maximum(own.sum(axis=1), 1)
        double = 2.0 * self.config.sigma**2
        log_rho = ((action - behaviour) ** 2 - (action - mean) ** 2).sum(axis=2) / double
        kl = ((mean - average) ** 2).sum(axis=2) / double
        truncated = log_rho > np.log(self.config.truncate_at)
        return {
            "kl": np.where(own, kl, 0).sum(axis=1) / steps,
            "ratio_truncated": (own & truncated).sum(axis=1) / steps,
        }

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update of all networks; return `td_error` `[M, B]`, the mean |Q_ret − Q̃| of each segment before it."""
        self.steps += 1
        kind = self.policy_network.parameters.dtype
        td_error = np.zeros(batch.weight.shape, kind)
        _update(
            self.policy_network.network,
            self.average.network,
            self.value_network.network,
            self.advantage.network,
            *self._tapes,
            self.adams["policy"],
            self.adams["value"],
            self.adams["advantage"],
            as_segments(batch, self.task.reward_scale, kind),
            rows(batch, "behaviour_mean", kind),
            self.draws.state,
            self.settings,
            int(self.steps[0]),
            td_error,
        )
        return {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.exploration.state, "draws_stream": self.draws.state}


@kernel
def _draw(noise: Doubles, stream: NDArray[np.uint64], active: NDArray[np.bool_]) -> None:
    for m in range(noise.shape[0]):
        if active[m]:
            for a in range(noise.shape[1]):
                noise[m, a] = next_normal(stream[m])


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
def _sample_actions(
    data: Segments, m: int, mean: Floats, stream: NDArray[np.uint64], settings: Settings, tried: Floats, other: Floats
) -> None:
    """Write a, u_1…u_n below each other into tried `[(1 + n) B·K, A]`, and a′ into other `[B·K, A]`.

    Padding draws nothing and gets zeros: what a failed member left there must not reach the next one.
    """
    length = data.length[m]
    count, actions = other.shape
    steps = count // length.size
    for r in range(count):
        own = r % steps < length[r // steps]
        for j in range(actions):
            tried[r, j] = data.action[m, r, j]
        for i in range(1, settings.samples + 2):
            for j in range(actions):
                u = mean[r, j] + settings.sigma * next_normal(stream) if own else 0.0
                if i <= settings.samples:
                    tried[i * count + r, j] = u
                else:
                    other[r, j] = u


@kernel
def _critic(a: Floats, v: Floats, r: int, count: int, settings: Settings, own: float) -> float:
    """Return Q̃ of row r (eq. 13), given its A of the action concerned; Q itself without the dueling network."""
    if not settings.dueling:
        return own
    mean = 0.0
    for i in range(1, settings.samples + 1):
        mean += a[i * count + r, 0]
    estimate: float = v[r, 0] + own - mean / settings.samples
    return estimate


@kernel
def _update(
    policy: Network, average: Network, value: Network, advantage: Network,
    policy_tape: Tape, value_tape: Tape, tried_tape: Tape, other_tape: Tape,
    policy_adam: Adam, value_adam: Adam, advantage_adam: Adam,
    data: Segments, behaviour: Floats, stream: NDArray[np.uint64], settings: Settings, step: int, td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member; the symbols are those of Algorithm 3."""
    count, actions = data.action.shape[1:]
    segments, blocks = data.length.shape[1], 1 + settings.samples
    observations, kind = data.observation.shape[2], policy.parameters.dtype
    phi, d_phi = np.zeros((count, actions), kind), np.zeros((count, actions), kind)
    phi_average, other = np.zeros_like(phi), np.zeros_like(phi)
    v, d_v = np.zeros((count + segments, 1), kind), np.zeros((count + segments, 1), kind)
    a, d_a = np.zeros((blocks * count, 1), kind), np.zeros((blocks * count, 1), kind)
    a_other, tried = np.zeros((count, 1), kind), np.zeros((blocks * count, actions), kind)
    repeated, nothing = np.zeros((blocks * count, observations), kind), np.zeros((count + segments, 0), kind)
    for m in range(data.action.shape[0]):
        observation, rate = data.observation[m, :count], data.rate_factor[m]
        forward(average, m, policy_tape, observation, nothing, phi_average)
        forward(policy, m, policy_tape, observation, nothing, phi)
        forward(value, m, value_tape, data.observation[m], nothing, v)
        if not settings.trajectory:
            _sample_actions(data, m, phi, stream[m], settings, tried, other)
            for i in range(blocks):
                repeated[i * count : (i + 1) * count] = observation
            forward(advantage, m, other_tape, observation, other, a_other)
            forward(advantage, m, tried_tape, repeated, tried, a)
        _gradients(
            data, m, behaviour[m], phi, phi_average, v, a, other, a_other, settings, d_phi, d_v, d_a, td_error[m]
        )
        backward(policy, m, policy_tape, d_phi, True, nothing)
        adam_step(policy, m, policy_adam, step, rate)
        backward(value, m, value_tape, d_v, True, nothing)
        adam_step(value, m, value_adam, step, rate)
        if not settings.trajectory:
            backward(advantage, m, tried_tape, d_a, True, nothing)
            adam_step(advantage, m, advantage_adam, step, rate)
        track(average, policy, m, settings.tau)


@kernel
def _gradients(
    data: Segments, m: int, behaviour: Floats, phi: Floats, phi_average: Floats, v: Floats, a: Floats, other: Floats,
    a_other: Floats, settings: Settings, d_phi: Floats, d_v: Floats, d_a: Floats, td_error: Floats,
) -> None:  # fmt: skip
    """Write the gradients of one member's losses, averaged over the batch's steps, with respect to φ, V and A."""
    length, action = data.length[m], data.action[m]
    count, actions = action.shape
    steps, total = count // length.size, max(1, length.sum())
    q, values, ret, followed = np.empty(steps), np.empty(steps), np.empty(steps), np.empty(steps)
    ratio, trace, weight = np.empty(steps), np.empty(steps), np.empty(steps)
    g, k = np.empty(actions), np.empty(actions)
    variance = settings.sigma**2
    d_phi[:], d_v[:], d_a[:] = 0, 0, 0
    for b in range(length.size):
        n, first = length[b], b * steps
        reward = data.reward[m, first : first + n]
        for t in range(n):
            r = first + t
            ratio[t] = log_ratio(action[r], phi[r], behaviour[r], settings.sigma, settings.log_bound)
            q[t], values[t] = settings.control * _critic(a, v, r, count, settings, a[r, 0]), settings.control * v[r, 0]
        future = np.float64(v[count + b, 0]) if data.goes_on[m, b] else 0.0
        traces(ratio[:n], settings.power, settings.cap, trace)
        retrace(reward, q[:n], values[:n], trace, future, settings.discount, ret)
        traces(ratio[:n], settings.policy_power, settings.policy_cap, trace)
        retrace(reward, q[:n], values[:n], trace, future, settings.discount, followed)
        truncated_weights(ratio[:n], settings.bound, settings.carry, weight)
        error = 0.0
        for t in range(n):
            r = first + t
            q_other = _critic(a, v, r, count, settings, a_other[r, 0])
            ratio_other = log_ratio(other[r], phi[r], behaviour[r], settings.sigma, settings.log_bound)
            bias = correction(np.exp(ratio_other), settings.correct_from) * (q_other - v[r, 0])
            for j in range(actions):
                likely = weight[t] * (followed[t] - v[r, 0]) * (action[r, j] - phi[r, j])
                g[j] = (likely + bias * (other[r, j] - phi[r, j])) / variance
                k[j] = (phi[r, j] - phi_average[r, j]) / variance
            project(g, k, settings.delta)
            for j in range(actions):
                d_phi[r, j] = -data.actor_weight[m, b] / total * g[j]
            share = data.weight[m, b] / total
            if settings.trajectory:
                delta = ret[t] - v[r, 0]
                d_v[r, 0] = -share * weight[t] * delta
            else:
                q_t = _critic(a, v, r, count, settings, a[r, 0])
                delta = ret[t] - q_t
                d_v[r, 0] = -share * value_coefficient(ret[t], q_t, v[r, 0], np.exp(ratio[t]), settings.dueling)
                d_a[r, 0] = -share * delta
                for i in range(1, settings.samples + 1):
                    d_a[i * count + r, 0] = share * delta / settings.samples
            error += np.abs(delta)
        td_error[b] = error / max(1, n)
