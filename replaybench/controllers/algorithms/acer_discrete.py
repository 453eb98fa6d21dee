"""Actor-critic with experience replay for discretised actions, for a population: Wang et al. (2017), Algorithm 2.

The policy is a softmax over a table of actions, the critic gives Q of each, V = Σ_a π(a) Q(a). Each episode is learned
from once as it came (Algorithm 1), then segments are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers import checks
from replaybench.controllers.action_table import ActionLevels
from replaybench.controllers.agent import Batch
from replaybench.controllers.algorithms.acer_discrete_update import ACERDiscreteNumbers, probabilities, update_members
from replaybench.controllers.exploration.process_noise import Explored
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.segments import as_segments, rows
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, PopulationMLP, Shape
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.kernels import elementwise
from replaybench.data.streams import next_double

Doubles = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ACERDiscreteConfig:
    """Settings; the paper's values except where said.

    The paper learns Atari games with one network of two heads; here policy and critic are networks of their own. The
    number of replays after each update on policy is drawn from Poisson(4) there; here it is its mean, because all
    members advance together, and by default 64: on the pendulum (J = 1.91e-4, FIFO[Uniform], C = 10⁴) that reaches −38
    per step in 300 episodes with all of 8 learners, 16 are not through after 500. The paper's entropy weight is 1e-3;
    with 0.02 or less the policy soon does nothing for ever, which costs less there than anything random.

    Attributes:
        levels: values of each action dimension, evenly spaced in [−1, 1]; all combinations are the actions. None means
            the plant's own where it takes choices, else 15.
        policy_hidden, critic_hidden: hidden layers.
        output_scale: factor on the first weights of the last layers.
        truncate_at: c of eq. 9, whose correction takes Q(x, a) of the summed a (Algorithm 2 prints Q(x, a_i)).
        delta, average: δ, and α of the average policy θ_a ← α θ_a + (1 − α) θ.
        entropy: weight of the policy's entropy; reading: its gradient is part of what is projected.
        log_ratio_bound: log ρ of what was done is clipped to ± this (reading: the paper does not bound ρ).
        segment, batch_size: k steps, and B segments per update; 10 × 20 are an episode of 4 s at 50 Hz.
        replays_per_experience: the ratio of replay; 0 replays nothing, which leaves A3C (with Q for a baseline and,
            with `trust_region`, Trust-A3C), synchronous over the batch.
        on_policy: whether each episode is followed by an update on the B newest segments that are stored; a retention
            that discards what it is offered, as Resv does, makes these older.
        retrace: False takes returns by importance sampling (appendix E.4).
        trust_region: False omits the projection.
        truncation: False sets c = ∞ (appendix E.4).
    """

    levels: int | None = None
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
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)

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


def numbers_of(config: ACERDiscreteConfig, discount: float) -> ACERDiscreteNumbers:
    """Translate a configuration."""
    return ACERDiscreteNumbers(
        discount=discount,
        entropy=config.entropy,
        log_bound=config.log_ratio_bound,
        cap=1.0 if config.retrace else np.inf,
        control=float(config.retrace),
        bound=config.truncate_at if config.truncation else np.inf,
        delta=config.delta if config.trust_region else np.inf,
        tau=1.0 - config.average,
    )


class ACERDiscrete(Learner):
    """M independent learners with policy, average policy and critic networks.

    Raises:
        UserError: there are more than 1000 actions, or the plant takes others.

    Attributes:
        table: float32 `[n, A]`, the actions.
    """

    several_at_once = True
    discrete = True
    metric_names = ("kl", "ratio_truncated", "entropy")
    networks: dict[str, PopulationMLP]
    targets: dict[str, PopulationMLP]

    def __init__(self, config: ACERDiscreteConfig, setting: LearnerSetting) -> None:
        task = setting.task
        self.table = ActionLevels(config.levels, task.action_size, task.action_choices).table
        s, n = task.observation_size, len(self.table)
        shapes = {"policy": Shape((s, *config.policy_hidden, n)), "critic": Shape((s, *config.critic_hidden, n))}
        super().__init__(config, setting, shapes, slow=["policy"], output_scale=config.output_scale)
        self.policy_network, self.critic = self.networks.values()
        self.average, self.numbers = self.targets["policy"], numbers_of(config, task.discount)
        self.fields, self._uniform = {"choice": 1, "behaviour": n}, np.zeros(len(setting.members))
        self.exploration = setting.stream("exploration")
        self.adams = self._make_adams({"policy": config.policy_rate, "critic": config.critic_rate})
        batch = config.batch_size * (config.segment + 1)
        self._policy, self._critic = (self.learned(name, batch) for name in shapes)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        _draw_uniform(self._uniform, self.exploration.state, active)

    def re_explore(self, observation: Floats) -> Explored:
        """Return a sample of the policy `[M, A]` with the draw of the present step; the probabilities go with it."""
        probability = self.probability(observation[:, None])[:, 0]
        choice = _chosen(probability, self._uniform)
        action = self._actions(choice, probability)
        deviation = np.abs(action - self.act(observation)).sum(axis=1)
        extras = {"choice": choice[:, None].astype(np.float32), "behaviour": probability.astype(np.float32)}
        return Explored(action, deviation, extras)

    def probability(self, observation: Floats) -> Floats:
        """Return π(·|s) `[M, N, n]` for observations `[M, N, S]`."""
        logits = self._logits(observation)
        return _softmax(logits)[0].astype(logits.dtype)

    def _logits(self, observation: Floats) -> Floats:
        return self.policy_network(self.seen(observation))

    def policy(self, observation: Floats) -> Floats:
        """Return the most probable actions `[M, N, A]` for observations `[M, N, S]`; NaN where a member has failed."""
        logits = self._logits(observation)
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
        """Return V = Σ_a π(a) Q(a) `[M, N]`, in units of the reward times the task's `reward_scale`."""
        q = self.critic(self.seen(observation))
        return self.normaliser.rewards.restored((self.probability(observation) * q).sum(axis=2))

    def metrics(self, stored: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
        """Return over stored steps mean D_KL(behaviour ‖ policy), share with ρ > c, mean entropy (nats), `[M]` each."""
        members, n = len(self._uniform), len(self.table)
        column = {name: array[:, :: self.segment] for name, array in stored.items()}
        observation = column["observation"].reshape(members, -1, self.task.observation_size)
        behaviour, choice = (
            column[name].reshape(members, -1, width) for name, width in (("behaviour", n), ("choice", 1))
        )
        # Padding: probabilities of own steps add up to 1.
        own = behaviour.sum(axis=2) > 0.5
        steps = np.maximum(own.sum(axis=1), 1)
        pi, log_pi = _softmax(self._logits(observation))
        chosen = choice.astype(np.int64)
        done = np.take_along_axis(pi, chosen, axis=2)[:, :, 0]
        truncated = done > self.config.truncate_at * np.take_along_axis(behaviour, chosen, axis=2)[:, :, 0]
        mu = behaviour.astype(np.float64)
        kl = (mu * (elementwise.log(np.where(mu > 0, mu, 1)) - log_pi)).sum(axis=2)
        entropy = -(pi * log_pi).sum(axis=2)
        found = {"kl": kl, "ratio_truncated": truncated, "entropy": entropy}
        return {name: np.where(own, values, 0).sum(axis=1) / steps for name, values in found.items()}

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do updates of both networks; return `td_error` `[M·U, B]`, mean |Q_ret − Q| of each segment."""
        first, kind, delta = self.begin_updates(batch), self.setting.dtype, self.annotations(batch)
        choice, behaviour = rows(batch, "choice", kind)[:, :, 0].astype(np.int64), rows(batch, "behaviour", kind)
        data = as_segments(batch, self.normaliser, kind)
        update_members(self._policy, self._critic, data, choice, behaviour, self.numbers, first, delta)
        return {"td_error": delta}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.exploration.state}


def _softmax(logits: Floats) -> tuple[Doubles, Doubles]:
    """Return probabilities and their logarithms in the shape of `logits` `[…, n]`, as the update computes them."""
    pi, log_pi = np.empty(logits.shape), np.empty(logits.shape)
    each = (-1, logits.shape[-1])
    probabilities(logits.reshape(each), pi.reshape(each), log_pi.reshape(each))
    return pi, log_pi


def _chosen(probability: Floats, uniform: Doubles) -> NDArray[np.int64]:
    """Return which of the last axis's n choices each number in [0, 1) falls on; NaN falls on the first."""
    below = np.cumsum(probability, axis=-1, dtype=np.float64)
    choice: NDArray[np.int64] = (below[..., :-1] <= uniform[..., None] * below[..., -1:]).sum(axis=-1)
    return choice


@kernel
def _draw_uniform(uniform: Doubles, stream: NDArray[np.uint64], active: NDArray[np.bool_]) -> None:
    for m in range(uniform.size):
        if active[m]:
            uniform[m] = next_double(stream[m])
