"""Actor-critic with experience replay for discretised actions, for a population: Wang et al. (2017), Algorithm 2.

The policy is a softmax over a table of actions, the critic gives Q of each, V = Σ_a π(a) Q(a). Each episode is learned
from once as it came (Algorithm 1), then segments are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import log_softmax, softmax

from replaybench.controllers import checks
from replaybench.controllers.agent import Batch, Task
from replaybench.controllers.exploration import Explored
from replaybench.controllers.layers import Floats, Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.learner import Learner
from replaybench.controllers.levels import ActionLevels
from replaybench.controllers.optimiser import Adam, adam_step, make_adam, track
from replaybench.controllers.policy_form import PolicyForm
from replaybench.controllers.segment_returns import clipped, correction, retrace, traces, truncated_weights
from replaybench.controllers.segments import Segments, as_segments, rows
from replaybench.controllers.trust_region import project
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_double

Doubles = NDArray[np.float64]

_LEAST = 1e-6
"""Probabilities below this count as this in quotients: a softmax can round to 0."""


@dataclass(frozen=True, kw_only=True)
class ACERDiscreteConfig:
    """Settings; the paper's values except where said.

    The paper learns Atari games with one network of two heads; here policy and critic are networks of their own. The
    number of replays after each update on policy is drawn from Poisson(4) there; here it is its mean, because all
    members advance together, and by default 64: on the pendulum (J = 1.91e-4, FIFO[Uniform], C = 10⁴) that reaches −38
    per step in 300 episodes with all of 8 learners, 16 are not through after 500. The paper's entropy weight is 1e-3;
    with 0.02 or less the policy soon does nothing for ever, which costs less there than anything random.

    Attributes:
        levels: values of each action dimension, evenly spaced in [−1, 1]; all combinations are the actions.
        policy_hidden, critic_hidden: hidden layers.
        output_scale: factor on the first weights of the last layers.
        truncate_at: c of eq. 9, whose correction takes Q(x, a) of the summed a (Algorithm 2 prints Q(x, a_i)).
        delta, average: δ, and α of the average policy θ_a ← α θ_a + (1 − α) θ.
        entropy: weight of the policy's entropy; reading: its gradient is part of what is projected.
        log_ratio_bound: log ρ of what was done is clipped to ± this (reading: the paper does not bound ρ).
        segment, batch_size: k steps, and B segments per update; 10 × 20 are an episode of 4 s at 50 Hz.
        replays_per_experience: the ratio of replay; 0 replays nothing, which leaves A3C (with Q for a baseline and,
            with `trust_region`, Trust-A3C), synchronous over the batch.
        on_policy: whether each episode is followed by an update on the B newest segments.
        retrace: False takes returns by importance sampling (appendix E.4).
        trust_region: False omits the projection.
        truncation: False sets c = ∞ (appendix E.4).
    """

    levels: int = 15
    policy_hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (64, 64)
    output_scale: float = 0.1
    policy_rate: float = 5e-4
    critic_rate: float = 3e-3
    truncate_at: float = 10.0
    delta: float = 1.0
    average: float = 0.99
    entropy: float = 0.1
    log_ratio_bound: float = 7.0
    segment: int = 20
    batch_size: int = 10
    replays_per_experience: float = 64.0
    warmup_episodes: int = 0
    on_policy: bool = True
    retrace: bool = True
    trust_region: bool = True
    truncation: bool = True

    def __post_init__(self) -> None:
        name = "ACER-discrete"
        checks.positive(name, policy_rate=self.policy_rate, critic_rate=self.critic_rate, delta=self.delta)
        checks.positive(name, output_scale=self.output_scale, truncate_at=self.truncate_at)
        checks.positive(name, log_ratio_bound=self.log_ratio_bound)
        checks.between(name, 0, 1, average=self.average)
        checks.between(name, 0, np.inf, replays_per_experience=self.replays_per_experience, entropy=self.entropy)
        checks.between(name, 0, np.inf, warmup_episodes=self.warmup_episodes)
        checks.counts(name, segment=self.segment, batch_size=self.batch_size)
        checks.widths(name, policy_hidden=self.policy_hidden, critic_hidden=self.critic_hidden)
        if not (self.on_policy or self.replays_per_experience > 0):
            raise UserError(f"{name}: set on_policy or replays_per_experience above 0, else nothing is learned")


class Settings(NamedTuple):
    """What the kernel computes, in numbers: traces are min(cap, ρ); `control` is 0 where returns do without Q."""

    discount: float
    entropy: float
    log_bound: float
    cap: float
    control: float
    bound: float
    delta: float
    tau: float


class ACERDiscrete(Learner):
    """M independent learners with policy, average policy and critic networks.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz; unused.
        dtype: float32; float64 for comparisons in tests.

    Raises:
        UserError: there are more than 1000 actions.

    Attributes:
        table: float32 `[n, A]`, the actions.
    """

    metric_names = ("kl", "ratio_truncated", "entropy")

    def __init__(
        self,
        config: ACERDiscreteConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        m, s = len(members), task.observation_size
        self.table = ActionLevels(config.levels, task.action_size).table
        n = len(self.table)
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.segment, self.on_policy, self.warmup_episodes = config.segment, config.on_policy, config.warmup_episodes
        self.fields = {"choice": 1, "behaviour": n}
        policy = Shape((s, *config.policy_hidden, n))
        self.policy_network, self.average = (PopulationMLP(policy, m, dtype) for _ in range(2))
        self.critic = PopulationMLP(Shape((s, *config.critic_hidden, n)), m, dtype)
        self.networks = {"policy": self.policy_network, "critic": self.critic}
        self.targets = {"policy": self.average}
        stream = Stream(root, members, "initialisation")
        for network in self.networks.values():
            network.initialise(stream, output_scale=config.output_scale)
        self._aim_targets()
        rates = {"policy": config.policy_rate, "critic": config.critic_rate}
        self.adams = {name: make_adam(network, rates[name]) for name, network in self.networks.items()}
        self.exploration = Stream(root, members, "exploration")
        self.steps = np.zeros(1, np.int64)
        self._uniform = np.zeros(m)
        self._settings = Settings(
            discount=task.discount,
            entropy=config.entropy,
            log_bound=config.log_ratio_bound,
            cap=1.0 if config.retrace else np.inf,
            control=float(config.retrace),
            bound=config.truncate_at if config.truncation else np.inf,
            delta=config.delta if config.trust_region else np.inf,
            tau=1.0 - config.average,
        )
        batch = config.batch_size * (config.segment + 1)
        self._tapes = (self.policy_network.tape(batch), self.critic.tape(batch))

    @classmethod
    def check(cls, config: ACERDiscreteConfig, actions: Sequence[str], refer: bool) -> None:
        """Check the number of actions, too.

        Raises:
            UserError: there are too many, or ReF-ER is asked for.
        """
        super().check(config, actions, refer)
        ActionLevels(config.levels, len(actions))

    def start_episode(self, episode: int) -> None:
        """Nothing lasts for an episode."""

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return a sample of the policy `[M, A]`; the probabilities go with it. Only `active` `[M]` members draw."""
        _draw(self._uniform, self.exploration.state, active)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the draw of the present step."""
        probability = self.probability(observation[:, None])[:, 0]
        choice = _chosen(probability, self._uniform)
        action = self._actions(choice, probability)
        deviation = np.abs(action - self.act(observation)).sum(axis=1)
        extras = {"choice": choice[:, None].astype(np.float32), "behaviour": probability.astype(np.float32)}
        return Explored(action, deviation, extras)

    def probability(self, observation: Floats) -> Floats:
        """Return π(·|s) `[M, N, n]` for observations `[M, N, S]`."""
        return np.asarray(softmax(self.policy_network(observation), axis=2))

    def policy(self, observation: Floats) -> Floats:
        """Return the most probable actions `[M, N, A]` for observations `[M, N, S]`; NaN where a member has failed."""
        logits = self.policy_network(observation)
        return self._actions(logits.argmax(axis=2), logits)

    def sample(self, observation: Floats) -> Floats:
        """Return samples of the policy `[M, N, A]`."""
        probability = self.probability(observation)
        return self._actions(_chosen(probability, self.exploration.uniform(probability.shape[1])), probability)

    def _actions(self, choice: NDArray[np.int64], numbers: Floats) -> Floats:
        """Return the actions `[…, A]` of choices `[…]`, NaN where the `numbers` `[…, n]` that they come from are."""
        return np.where(np.isnan(numbers).any(axis=-1, keepdims=True), np.float32(np.nan), self.table[choice])

    def policy_form(self) -> PolicyForm:
        """Return the most probable choice."""
        return PolicyForm(self.policy_network, 0, len(self.table), table=self.table)

    def value(self, observation: Floats) -> Floats:
        """Return V = Σ_a π(a) Q(a) `[M, N]`, in units of the scaled reward."""
        return np.asarray((self.probability(observation) * self.critic(observation)).sum(axis=2))

    def metrics(self, stored: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
        """Return, over stored steps, mean D_KL(average ‖ policy), share with ρ > c, mean entropy (nats), `[M]` each."""
        members, n = len(self._uniform), len(self.table)
        column = {name: array[:, :: self.segment] for name, array in stored.items()}
        observation = column["observation"].reshape(members, -1, self.task.observation_size)
        behaviour, choice = (
            column[name].reshape(members, -1, width) for name, width in (("behaviour", n), ("choice", 1))
        )
        # Padding: probabilities of own steps add up to 1.
        own = behaviour.sum(axis=2) > 0.5
        steps = np.maximum(own.sum(axis=1), 1)
        log_pi = log_softmax(self.policy_network(observation), axis=2)
        log_average = log_softmax(self.average(observation), axis=2)
        chosen = choice.astype(np.int64)
        done = np.exp(np.take_along_axis(log_pi, chosen, axis=2)[:, :, 0])
        truncated = done > self.config.truncate_at * np.take_along_axis(behaviour, chosen, axis=2)[:, :, 0]
        kl = (np.exp(log_average) * (log_average - log_pi)).sum(axis=2)
        entropy = -(np.exp(log_pi) * log_pi).sum(axis=2)
        found = {"kl": kl, "ratio_truncated": truncated, "entropy": entropy}
        return {name: np.where(own, values, 0).sum(axis=1) / steps for name, values in found.items()}

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update of both networks; return `td_error` `[M, B]`, each segment's mean |Q_ret − Q| before it."""
        self.steps += 1
        kind = self.policy_network.parameters.dtype
        td_error = np.zeros(batch.weight.shape, kind)
        _update(
            self.policy_network.network,
            self.average.network,
            self.critic.network,
            *self._tapes,
            self.adams["policy"],
            self.adams["critic"],
            as_segments(batch, self.task.reward_scale, kind),
            rows(batch, "choice", kind)[:, :, 0].astype(np.int64),
            rows(batch, "behaviour", kind),
            self._settings,
            int(self.steps[0]),
            td_error,
        )
        return {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.exploration.state}


def _chosen(probability: Floats, uniform: Doubles) -> NDArray[np.int64]:
    """Return which of the last axis's n choices each number in [0, 1) falls on; NaN falls on the first."""
    below = np.cumsum(probability, axis=-1, dtype=np.float64)
    choice: NDArray[np.int64] = (below[..., :-1] <= uniform[..., None] * below[..., -1:]).sum(axis=-1)
    return choice


@kernel
def _draw(uniform: Doubles, stream: NDArray[np.uint64], active: NDArray[np.bool_]) -> None:
    for m in range(uniform.size):
        if active[m]:
            uniform[m] = next_double(stream[m])


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
def _update(
    policy: Network, average: Network, critic: Network, policy_tape: Tape, critic_tape: Tape, policy_adam: Adam,
    critic_adam: Adam, data: Segments, choice: NDArray[np.int64], behaviour: Floats, settings: Settings, step: int,
    td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member; the symbols are those of Algorithm 2."""
    count, n = data.observation.shape[1], behaviour.shape[2]
    kind = policy.parameters.dtype
    logits, d_logits = np.zeros((count, n), kind), np.zeros((count, n), kind)
    q, d_q, nothing = np.zeros((count, n), kind), np.zeros((count, n), kind), np.zeros((count, 0), kind)
    pi, log_pi, pi_average, log_average = (
        np.empty((count, n)),
        np.empty((count, n)),
        np.empty((count, n)),
        np.empty((count, n)),
    )
    for m in range(data.length.shape[0]):
        forward(average, m, policy_tape, data.observation[m], nothing, logits)
        probabilities(logits, pi_average, log_average)
        forward(policy, m, policy_tape, data.observation[m], nothing, logits)
        probabilities(logits, pi, log_pi)
        forward(critic, m, critic_tape, data.observation[m], nothing, q)
        _gradients(data, m, choice[m], behaviour[m], pi, log_pi, pi_average, q, settings, d_logits, d_q, td_error[m])
        backward(policy, m, policy_tape, d_logits, True, nothing)
        adam_step(policy, m, policy_adam, step, data.rate_factor[m])
        backward(critic, m, critic_tape, d_q, True, nothing)
        adam_step(critic, m, critic_adam, step, data.rate_factor[m])
        track(average, policy, m, settings.tau)


@kernel
def _gradients(
    data: Segments, m: int, choice: NDArray[np.int64], behaviour: Floats, pi: Doubles, log_pi: Doubles,
    pi_average: Doubles, q: Floats, settings: Settings, d_logits: Floats, d_q: Floats, td_error: Floats,
) -> None:  # fmt: skip
    """Write the gradients of one member's losses, averaged over the batch's steps, with respect to logits and Q."""
    length = data.length[m]
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
            ratio[t] = clipped(np.log(at_least(pi[r, done]) / at_least(behaviour[r, done])), settings.log_bound)
            q_done[t] = q[r, done]
            q_used[t], v_used[t] = settings.control * q_done[t], settings.control * v[r]
        future = v[count + b] if data.goes_on[m, b] else 0.0
        traces(ratio[:own], 1.0, settings.cap, trace)
        reward = data.reward[m, first : first + own]
        retrace(reward, q_used[:own], v_used[:own], trace, future, settings.discount, ret)
        truncated_weights(ratio[:own], settings.bound, 0.0, weight)
        error = 0.0
        for t in range(own):
            r, done = first + t, choice[first + t]
            likely = weight[t] * (ret[t] - v[r])
            policy_gradient(pi[r], log_pi[r], behaviour[r], q[r], done, likely, settings.bound, settings.entropy, g)
            for i in range(n):
                k[i] = -pi_average[r, i] / at_least(pi[r, i])
            project(g, k, settings.delta)
            to_logits(pi[r], g, -data.actor_weight[m, b] / total, d_logits[r])
            d_q[r, done] = -data.weight[m, b] / total * (ret[t] - q_done[t])
            error += np.abs(ret[t] - q_done[t])
        td_error[b] = error / max(1, own)
