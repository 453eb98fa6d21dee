"""Actor-critic with experience replay for continuous actions, for a population: Wang et al. (2017), Algorithm 3.

The stochastic policy is N(φ(x), σ²) with fixed σ; a stochastic dueling network gives V and Q̃; replayed segments give
Retrace targets; the policy gradient is truncated, corrected and projected into a trust region around an average policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers import checks
from replaybench.controllers.agent import Batch, Task
from replaybench.controllers.algorithms.acer_update import ACERNumbers, update_members
from replaybench.controllers.exploration.process_noise import Explored, draw_active
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.segments import as_segments, rows
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, PopulationMLP, Shape
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError


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
        on_policy: whether each episode is followed by an update on the B newest segments that are stored; a retention
            that discards what it is offered, as Resv does, makes these older.
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
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)

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


def numbers_of(config: ACERConfig, task: Task) -> ACERNumbers:
    """Translate a configuration for a task."""
    power, cap, policy = 1.0 / task.action_size, 1.0, config.policy_return == "opc"
    if config.trajectory_weights:
        power = 0.0
    elif not config.retrace:
        power, cap, policy = 1.0, np.inf, False
    bound = config.truncate_at if config.truncation else np.inf
    return ACERNumbers(
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
    """M independent learners with policy, average policy, V and A (or Q) networks."""

    several_at_once = greedy_by_form = True
    metric_names = ("kl", "ratio_truncated")
    networks: dict[str, PopulationMLP]

    def __init__(self, config: ACERConfig, setting: LearnerSetting) -> None:
        m, s, a = len(setting.members), setting.task.observation_size, setting.task.action_size
        shapes = {
            "policy": Shape((s, *config.policy_hidden, a), tanh=True),
            "value": Shape((s, *config.value_hidden, 1)),
            "advantage": Shape((s, *config.advantage_hidden, 1), actions=a, inject=0),
        }
        super().__init__(config, setting, shapes, slow=["policy"], output_scale=config.output_scale)
        self.policy_network, self.value_network, self.advantage = self.networks.values()
        self.average, self.numbers = self.targets["policy"], numbers_of(config, setting.task)
        self.fields, self._noise = {"behaviour_mean": a}, np.zeros((m, a))
        self.exploration, self.draws = setting.stream("exploration"), setting.stream("update")
        rate = config.critic_rate
        self.adams = self._make_adams({"policy": config.policy_rate, "value": rate, "advantage": rate})
        batch, tried = config.batch_size * config.segment, 1 + self.numbers.samples
        rooms = {"policy": batch, "value": batch + config.batch_size, "advantage": batch * tried}
        learned = (self.learned(name, room) for name, room in rooms.items())
        self._policy, self._value, self._advantage = learned
        self._other_tape = self.advantage.tape(batch)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        draw_active(self.exploration.state, active, self._noise)

    def re_explore(self, observation: Floats) -> Explored:
        """Return an unbounded sample of the policy `[M, A]`, with the noise of the present step."""
        mean = self.act(observation).astype(np.float32)
        action = (mean + self.config.sigma * self._noise).astype(np.float32)
        return Explored(action, np.abs(action - mean).sum(axis=1), {"behaviour_mean": mean})

    def policy(self, observation: Floats) -> Floats:
        """Return the policy's means `[M, N, A]` for observations `[M, N, S]`."""
        return self.policy_network(self.seen(observation))

    def sample(self, observation: Floats) -> Floats:
        """Return samples of the policy `[M, N, A]`, unbounded."""
        mean = self.policy(observation)
        noise = self.exploration.normal(mean[0].size).reshape(mean.shape)
        return np.asarray(mean + self.config.sigma * noise, mean.dtype)

    def policy_form(self) -> PolicyForm:
        """Return the policy's means."""
        return PolicyForm(self.policy_network, 0, self.task.action_size)

    def value(self, observation: Floats) -> Floats:
        """Return V `[M, N]`, in units of the reward times the task's `reward_scale`."""
        return self.normaliser.rewards.restored(self.value_network(self.seen(observation))[:, :, 0])

    def metrics(self, stored: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
        """Return mean D_KL(μ‖π) over stored steps, μ the behaviour, and the share of them with ρ > c, `[M]` each."""
        column = {name: array[:, :: self.segment] for name, array in stored.items()}
        width, members = self.task.action_size, len(self._noise)
        observation = column["observation"].reshape(members, -1, self.task.observation_size)
        action, behaviour = (column[name].reshape(members, -1, width) for name in ("action", "behaviour_mean"))
        mean = self.policy(observation)
        # Padding: an action that was sampled differs from its mean.
        own = (action != behaviour).any(axis=2)
        steps = np.maximum(own.sum(axis=1), 1)
        double = 2.0 * self.config.sigma**2
        log_rho = ((action - behaviour) ** 2 - (action - mean) ** 2).sum(axis=2) / double
        kl = ((mean - behaviour) ** 2).sum(axis=2) / double
        truncated = log_rho > math.log(self.config.truncate_at)
        return {
            "kl": np.where(own, kl, 0).sum(axis=1) / steps,
            "ratio_truncated": (own & truncated).sum(axis=1) / steps,
        }

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do updates of all networks; return `td_error` `[M·U, B]`, mean |Q_ret − Q̃| of each segment."""
        first, kind, delta = self.begin_updates(batch), self.setting.dtype, self.annotations(batch)
        data, behaviour = as_segments(batch, self.normaliser, kind), rows(batch, "behaviour_mean", kind)
        nets, stream = (self._policy, self._value, self._advantage, self._other_tape), self.draws.state
        update_members(*nets, data, behaviour, stream, self.numbers, first, delta)
        return {"td_error": delta}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.exploration.state, "draws_stream": self.draws.state}
