"""Soft actor-critic for a population, in its present form (Haarnoja et al. 2018b) and its first (2018a)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.agent import Batch, Task
from replaybench.controllers.algorithms.sac_first import update_first
from replaybench.controllers.algorithms.sac_present import update_present
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.exploration.process_noise import Explored, draw_active
from replaybench.controllers.exploration.random_actions import RandomActions
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.squashed_gaussian import LOG_STD_BOUNDS
from replaybench.controllers.losses.twin_critics import twin_room
from replaybench.controllers.networks.adam import make_adam
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, PopulationMLP, Shape
from replaybench.controllers.normaliser import NormaliseConfig, Normaliser
from replaybench.data.errors import UserError
from replaybench.data.streams import Stream


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
    """M independent actors with twin critics and, in the first version, a value network.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: not used; the policy itself explores.
        dtype: float32; float64 for comparisons in tests.
    """

    metric_names = ("temperature",)
    networks: Mapping[str, PopulationMLP]
    targets: Mapping[str, PopulationMLP]

    def __init__(
        self,
        config: SACConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        m, s, a = len(members), task.observation_size, task.action_size
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.warmup_episodes = config.warmup_episodes
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=0)
        shapes = {"actor": Shape((s, *config.actor_hidden, 2 * a)), "critic1": critic, "critic2": critic}
        slow: tuple[str, ...] = ("critic1", "critic2")
        if config.version == "first":
            shapes["value"] = Shape((s, *config.critic_hidden, 1))
            slow = ("value",)
        self.networks = {name: PopulationMLP(shape, m, dtype) for name, shape in shapes.items()}
        self.targets = {name: PopulationMLP(shapes[name], m, dtype) for name in slow}
        stream = Stream(root, members, "initialisation")
        for network in self.networks.values():
            network.initialise(stream)
        self._aim_targets()
        # A network without inputs is its bias: a learned number per member.
        self.log_temperature = PopulationMLP(Shape((0, 1)), m, dtype)
        start = config.first_temperature if config.temperature is None else config.temperature
        self.log_temperature.parameters[:] = np.log(start)
        learned = {**self.networks, "temperature": self.log_temperature}
        rates = {"actor": config.actor_rate, "temperature": config.temperature_rate}
        self.adams = {
            name: make_adam(network, rates.get(name, config.critic_rate), betas=config.betas, epsilon=config.epsilon)
            for name, network in learned.items()
        }
        self.normaliser = Normaliser(config.normalise, m, s, task.reward_scale, dtype)
        self.noise = np.zeros((m, a))
        self.exploration_stream = Stream(root, members, "exploration")
        self.random_actions = RandomActions(root, members, a)
        self.update_stream = Stream(root, members, "update")
        self.steps = np.zeros(1, np.int64)
        self._tapes = {name: network.tape(config.batch_size) for name, network in self.networks.items()}
        self._room = twin_room(self._tapes["critic1"], config.batch_size, a, dtype)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Nothing lasts for an episode."""

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return a ~ π(·|s) `[M, A]`, while warming up uniform ones; only `active` `[M]` members draw."""
        self.normaliser.observations.update(observation, active)
        if self.warming_up:
            self.random_actions.draw(active)
        else:
            draw_active(self.exploration_stream.state, active, self.noise)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the ε or the random action of the present step."""
        if self.warming_up:
            return self.random_actions.explored(self.act(observation))
        action, greedy = (actions[:, 0] for actions in self._actions(observation[:, None], self.noise[:, None]))
        return Explored(action, np.abs(action - greedy).sum(axis=1))

    def policy(self, observation: Floats) -> Floats:
        """Return tanh μ(s) `[M, N, A]` for observations `[M, N, S]`."""
        return self._greedy(self.normaliser.observations(observation))

    def sample(self, observation: Floats) -> Floats:
        """Return a ~ π(·|s) `[M, N, A]` for observations `[M, N, S]`, drawn from the exploration streams."""
        members, count, _ = observation.shape
        noise = self.exploration_stream.normal(count * self.task.action_size).reshape(members, count, -1)
        return self._actions(observation, noise)[0]

    def _actions(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return tanh(μ + σ ε) and tanh μ, float32 `[M, N, A]`."""
        head = self.networks["actor"](self.normaliser.observations(observation))
        mean, log_std = np.split(head, 2, axis=2)
        action = np.tanh(mean + np.exp(np.clip(log_std, *LOG_STD_BOUNDS)) * noise)
        return action.astype(np.float32), np.tanh(mean).astype(np.float32)

    def policy_form(self) -> PolicyForm:
        """Return tanh μ among the actor's outputs."""
        return PolicyForm(self.networks["actor"], 0, self.task.action_size, "tanh")

    def value(self, observation: Floats) -> Floats:
        """Return min_i Q_i(s, tanh μ(s)) `[M, N]`, in units of the reward times `reward_scale`."""
        seen = self.normaliser.observations(observation)
        action = self._greedy(seen)
        both = (self.networks[name](seen, action)[:, :, 0] for name in ("critic1", "critic2"))
        return self.normaliser.rewards.restored(np.minimum(*both))

    def _greedy(self, seen: Floats) -> Floats:
        return np.tanh(self.networks["actor"](seen)[..., : self.task.action_size])

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return α `[M]`."""
        return {"temperature": np.exp(self.log_temperature.parameters[:, 0])}

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return the networks layer by layer; the actor's last layer gives μ, `log_std` stands beside it."""
        named, actions = super().weights(), self.task.action_size
        last = len(self.config.actor_hidden)
        for part in ("weight", "bias"):
            both = named[f"actor.{last}.{part}"]
            named[f"actor.{last}.{part}"], named[f"log_std.{part}"] = both[..., :actions], both[..., actions:]
        return named

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update of everything; return `td_error` `[M, B]`, the mean of both critics' |δ|."""
        self.steps += 1
        td_error = np.empty(batch.weight.shape, self._room.q.dtype)
        experiences = (
            self.normaliser.observations(batch.observation), batch.action, batch.reward,
            self.normaliser.observations(batch.next_observation), batch.terminated, batch.weight, batch.actor_weight,
            batch.rate_factor, self.task.discount, self.normaliser.rewards.factor, self.config.tau,
        )  # fmt: skip
        nets, targets = ({name: n.network for name, n in held.items()} for held in (self.networks, self.targets))
        critics = nets["critic1"], nets["critic2"]
        adams, tapes = self.adams, self._tapes
        critic_adams = adams["critic1"], adams["critic2"]
        stream, step = self.update_stream.state, int(self.steps[0])
        if self.config.version == "first":
            update_first(
                nets["actor"], critics, nets["value"], targets["value"], adams["actor"], critic_adams, adams["value"],
                tapes["actor"], tapes["value"], self._room, *experiences, self.config.temperature, stream, step,
                td_error,
            )  # fmt: skip
        else:
            update_present(
                nets["actor"], critics, (targets["critic1"], targets["critic2"]), self.log_temperature.network,
                adams["actor"], critic_adams, adams["temperature"], tapes["actor"], self._room, *experiences,
                self.config.temperature is None, -float(self.task.action_size), stream, step, td_error,
            )  # fmt: skip
        return {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {
            "log_temperature": self.log_temperature.parameters,
            "exploration_stream": self.exploration_stream.state,
            "update_stream": self.update_stream.state,
            "warm_up_stream": self.random_actions.stream.state,
        }
