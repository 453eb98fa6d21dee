"""Soft actor-critic for a population, in its present form (Haarnoja et al. 2018b) and its first (2018a)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch
from replaybench.controllers.algorithms.sac_first import update_first
from replaybench.controllers.algorithms.sac_present import update_present
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.exploration.process_noise import Explored, Exploring, draw_active
from replaybench.controllers.exploration.random_actions import RandomActions
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.squashed_gaussian import LOG_STD_BOUNDS
from replaybench.controllers.losses.twin_critics import twin_room
from replaybench.controllers.networks.adam import make_adam
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, PopulationMLP, Shape
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.compilation.sequence import Call, Each, Whole, make_all
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.kernels import elementwise
from replaybench.data.kernels.total import total


@dataclass(frozen=True, kw_only=True)
class SACConfig:
    """Settings. The paper's rates are 3e-4, with 256-256 units and batches of 256, which is slow on these plants.

    `version = "first"` learns a value network beside the critics, whose slow copy gives the targets. `temperature` is
    the weight α of the entropy; None learns it towards the entropy −A, from `first_temperature` on. The first version
    has a fixed one, 0.2 in the work on replay that uses it, in units of the scaled reward. In the first
    `warmup_episodes` episodes (rounds of steps, if updates follow steps) actions are uniformly random and nothing is
    learned.
    """

    version: Literal["present", "first"] = "present"
    actor_hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (64, 64)
    actor_rate: float = 1e-3
    critic_rate: float = 1e-3
    temperature_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    tau: float = 0.005
    temperature: float | None = None
    first_temperature: float = 1.0
    batch_size: int = 64
    replays_per_experience: float = 32.0
    warmup_episodes: int = 0
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)

    def __post_init__(self) -> None:
        positive("SAC", actor_rate=self.actor_rate, critic_rate=self.critic_rate, epsilon=self.epsilon)
        positive("SAC", temperature_rate=self.temperature_rate, replays_per_experience=self.replays_per_experience)
        positive("SAC", temperature=self.temperature, first_temperature=self.first_temperature)
        between("SAC", 0, 1, tau=self.tau)
        betas("SAC", self.betas)
        between("SAC", 0, np.inf, warmup_episodes=self.warmup_episodes)
        counts("SAC", batch_size=self.batch_size)
        widths("SAC", actor_hidden=self.actor_hidden, critic_hidden=self.critic_hidden)
        if self.version == "first" and self.temperature is None:
            raise UserError('SAC: version = "first" has a fixed temperature; set it, e.g. temperature = 0.2')


class SAC(Learner):
    """M independent actors with twin critics and, in the first version, a value network; the policy itself explores."""

    several_at_once = greedy_by_form = True
    metric_names: tuple[str, ...] = ("temperature",)
    networks: dict[str, PopulationMLP]

    def __init__(self, config: SACConfig, setting: LearnerSetting) -> None:
        m, s, a = len(setting.members), setting.task.observation_size, setting.task.action_size
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=0)
        shapes = {"actor": Shape((s, *config.actor_hidden, 2 * a)), "critic1": critic, "critic2": critic}
        if config.version == "first":
            shapes["value"] = Shape((s, *config.critic_hidden, 1))
        super().__init__(config, setting, shapes, ["value"] if "value" in shapes else ["critic1", "critic2"])
        self.actor = self.networks["actor"]
        rates = {"actor": config.actor_rate, **dict.fromkeys(("critic1", "critic2", "value"), config.critic_rate)}
        adam: dict[str, Any] = {"betas": config.betas, "epsilon": config.epsilon}
        self.adams = self._make_adams(rates, **adam)
        self.log_temperature = self._numbers(math.log(config.temperature or config.first_temperature))
        self.adams["temperature"] = make_adam(self.log_temperature, config.temperature_rate, **adam)
        self.noise, self.random_actions = np.zeros((m, a)), RandomActions(setting.root, setting.members, a)
        self.exploration_stream, self.update_stream = setting.stream("exploration"), setting.stream("update")
        self._learned = {name: self.learned(name) for name in shapes}
        self._room = twin_room(self._learned["critic1"].tape, config.batch_size, a, setting.dtype)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        if self.warming_up:
            self.random_actions.draw(active)
        else:
            draw_active(self.exploration_stream.state, active, self.noise)

    def re_explore(self, observation: Floats) -> Explored:
        """Return a ~ π(·|s) with the ε of the present step, while warming up its random action."""
        if self.warming_up:
            return self.random_actions.explored(self.act(observation))
        explored = self._tried(observation[:, None], self.noise[:, None])
        return Explored(explored.action[:, 0], explored.deviation[:, 0])

    def exploring(self, observation: Floats, active: NDArray[np.bool_]) -> Exploring | None:
        """Return what does `explore`; None while warming up."""
        if self.warming_up:
            return None
        explored, calls = self._trying(observation[:, None], self.noise[:, None])
        drawn = Call(draw_active, (self.exploration_stream.state, active, self.noise))
        return Explored(explored.action[:, 0], explored.deviation[:, 0]), [drawn, *calls]

    def policy(self, observation: Floats) -> Floats:
        """Return tanh μ(s) `[M, N, A]` for observations `[M, N, S]`."""
        return self._greedy(self.seen(observation))

    def sample(self, observation: Floats) -> Floats:
        """Return a ~ π(·|s) `[M, N, A]` for observations `[M, N, S]`, drawn from the exploration streams."""
        members, count, _ = observation.shape
        noise = self.exploration_stream.normal(count * self.task.action_size).reshape(members, count, -1)
        return self._tried(observation, noise).action

    def _tried(self, observation: Floats, noise: Floats) -> Explored:
        """Return what `_trying` says of observations `[M, N, S]` as they are collected, done."""
        explored, calls = self._trying(np.ascontiguousarray(self.seen(observation), self.setting.dtype), noise)
        make_all(calls)
        return explored

    def _trying(self, seen: Floats, noise: Floats) -> tuple[Explored, Sequence[Call]]:
        """Return the calls that try tanh(μ + σ ε) `[M, N, A]`, and what they fill in, for `noise` ε `[M, N, A]`."""
        evaluation, head = self.actor.evaluating(seen)
        explored = Explored(np.empty(noise.shape, np.float32), np.empty(noise.shape[:2], np.float32))
        return explored, [evaluation, Call(_squash, (head, noise, explored.action, explored.deviation))]

    def policy_form(self) -> PolicyForm:
        """Return tanh μ among the actor's outputs."""
        return PolicyForm(self.actor, 0, self.task.action_size, "tanh")

    def value(self, observation: Floats) -> Floats:
        """Return min_i Q_i(s, tanh μ(s)) `[M, N]`, in units of the reward times `reward_scale`."""
        seen = self.seen(observation)
        action = self._greedy(seen)
        both = (self.networks[name](seen, action)[:, :, 0] for name in ("critic1", "critic2"))
        return self.normaliser.rewards.restored(np.minimum(*both))

    def value_bonus(self) -> NDArray[np.float64]:
        """Return α A ln 2 `[M]`, in the unit of `value`: no policy has more entropy than the uniform over [−1, 1]^A."""
        alpha = elementwise.exp(self.log_temperature.parameters.astype(np.float64))
        return self.normaliser.rewards.restored(alpha * self.task.action_size * math.log(2.0))[:, 0]

    def _greedy(self, seen: Floats) -> Floats:
        return elementwise.tanh(self.actor(seen)[..., : self.task.action_size])

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return α `[M]`."""
        return {"temperature": elementwise.exp(self.log_temperature.parameters[:, 0])}

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return the networks layer by layer; the actor's last layer gives μ, `log_std` stands beside it."""
        named, actions = super().weights(), self.task.action_size
        last = len(self.config.actor_hidden)
        for part in ("weight", "bias"):
            both = named[f"actor.{last}.{part}"]
            named[f"actor.{last}.{part}"], named[f"log_std.{part}"] = both[..., :actions], both[..., actions:]
        return named

    def call_for(self, batch: Batch, first: int | Each) -> tuple[Call, dict[str, Floats]]:
        """Do updates of everything; annotate `td_error` `[M·U, B]`, the mean of both critics' |δ|."""
        delta, x, learned, config = self.annotations(batch), self.experiences(batch, first), self._learned, self.config
        actor, critics = learned["actor"], (learned["critic1"], learned["critic2"])
        stream = self.update_stream.state
        if config.version == "first":
            pace = (x, config.tau, config.temperature, stream, first, delta)
            call = Call(update_first, (actor, critics, learned["value"], Whole(self._room), *pace))
        else:
            temperature = (self.log_temperature.network, self.adams["temperature"], config.temperature is None)
            pace = (x, config.tau, -float(self.task.action_size), stream, first, delta)
            call = Call(update_present, (actor, critics, *temperature, Whole(self._room), *pace))
        return call, {"td_error": delta}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {
            "log_temperature": self.log_temperature.parameters,
            "exploration_stream": self.exploration_stream.state,
            "update_stream": self.update_stream.state,
            "warm_up_stream": self.random_actions.stream.state,
        }


@kernel
def _squash(head: Floats, noise: NDArray[np.float64], action: Floats, deviation: Floats) -> None:
    """Write tanh(μ + σ ε) `[M, N, A]`, and how far it is from tanh μ (‖·‖₁, `[M, N]`); head `[M, N, 2A]`: μ, log σ."""
    actions, kind = action.shape[2], head.dtype.type
    low, high = kind(LOG_STD_BOUNDS[0]), kind(LOG_STD_BOUNDS[1])
    apart = np.empty(actions, np.float32)
    for m in range(action.shape[0]):
        for n in range(action.shape[1]):
            for a in range(actions):
                mean, log_std = head[m, n, a], head[m, n, actions + a]
                log_std = low if log_std < low else high if log_std > high else log_std
                action[m, n, a] = np.tanh(mean + np.exp(log_std) * noise[m, n, a])
                apart[a] = abs(action[m, n, a] - np.float32(np.tanh(mean)))
            deviation[m, n] = total(apart)
