"""Twin delayed deep deterministic policy gradient for a population (Fujimoto et al. 2018, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.agent import Batch, Task
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.exploration.forms import ExplorationConfig, make_exploration
from replaybench.controllers.exploration.process_noise import Explored, ProcessNoise
from replaybench.controllers.exploration.random_actions import RandomActions
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.twin_critics import (
    TwinAdams,
    TwinRoom,
    Twins,
    bootstrap,
    fit_twins,
    lesser_value,
    twin_room,
)
from replaybench.controllers.networks.adam import Adam, adam_step, make_adam, track
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.normaliser import NormaliseConfig, Normaliser
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_normal


@dataclass(frozen=True, kw_only=True)
class TD3Config:
    """Settings; those of the smoothing, the delay, `tau` and both rates are the paper's.

    The paper has 400-300 units, batches of 100 and one update per step for tasks with far more dimensions, and explores
    with white noise of 0.1, which leaves four of eight learners on the pendulum hanging: the default is the correlated
    process of the 2018 benchmarks. `smoothing` is the standard deviation of the noise in the target's action.
    In the first `warmup_episodes` episodes (rounds of steps, if updates follow steps) actions are uniformly random and
    nothing is learned.
    """

    actor_hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (64, 64)
    actor_rate: float = 1e-3
    critic_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    tau: float = 0.005
    smoothing: float = 0.2
    smoothing_clip: float = 0.5
    policy_delay: int = 2
    batch_size: int = 64
    replays_per_experience: float = 32.0
    warmup_episodes: int = 0
    exploration: ExplorationConfig = field(default_factory=ProcessNoise)
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)

    def __post_init__(self) -> None:
        positive("TD3", actor_rate=self.actor_rate, critic_rate=self.critic_rate, epsilon=self.epsilon)
        positive("TD3", replays_per_experience=self.replays_per_experience)
        between("TD3", 0, 1, tau=self.tau)
        betas("TD3", self.betas)
        between("TD3", 0, np.inf, smoothing=self.smoothing, smoothing_clip=self.smoothing_clip)
        between("TD3", 0, np.inf, warmup_episodes=self.warmup_episodes)
        counts("TD3", policy_delay=self.policy_delay, batch_size=self.batch_size)
        widths("TD3", actor_hidden=self.actor_hidden, critic_hidden=self.critic_hidden)


class TD3(Learner):
    """M independent actors with twin critics, and slow copies of all.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz (exploration with `per_second`).
        dtype: float32; float64 for comparisons in tests.
    """

    networks: Mapping[str, PopulationMLP]
    targets: Mapping[str, PopulationMLP]

    def __init__(
        self,
        config: TD3Config,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        m, s, a = len(members), task.observation_size, task.action_size
        actor = Shape((s, *config.actor_hidden, a), tanh=True)
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=0)
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.warmup_episodes = config.warmup_episodes
        shapes = {"actor": actor, "critic1": critic, "critic2": critic}
        rates = {"actor": config.actor_rate, "critic1": config.critic_rate, "critic2": config.critic_rate}
        self.networks = {name: PopulationMLP(shape, m, dtype) for name, shape in shapes.items()}
        self.targets = {name: PopulationMLP(shape, m, dtype) for name, shape in shapes.items()}
        stream = Stream(root, members, "initialisation")
        for network in self.networks.values():
            network.initialise(stream)
        self._aim_targets()
        self.adams = {
            name: make_adam(network, rates[name], betas=config.betas, epsilon=config.epsilon)
            for name, network in self.networks.items()
        }
        actors = self.networks["actor"]
        self.exploration = make_exploration(config.exploration, root, members, a, frequency, actors)
        self.normaliser = Normaliser(config.normalise, m, s, task.reward_scale, dtype)
        self.random_actions = RandomActions(root, members, a)
        self.smoothing_stream = Stream(root, members, "update")
        self.steps = np.zeros(1, np.int64)
        self._actor_tape = self.networks["actor"].tape(config.batch_size)
        self._room = twin_room(self.networks["critic1"].tape(config.batch_size), config.batch_size, a, dtype)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin an episode of exploration of the chosen `members` `[M]`."""
        self.exploration.start_episode(episode, members)

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return what explores around π(s), while warming up uniform actions `[M, A]`; only `active` `[M]` draw."""
        self.normaliser.observations.update(observation, active)
        # Also while warming up: an episode may go on after it, and parameter noise learns where members are.
        self.exploration.advance(self.normaliser.observations(observation), active)
        if self.warming_up:
            self.random_actions.draw(active)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the exploration or the random action of the present step."""
        if self.warming_up:
            return self.random_actions.explored(self.act(observation))
        seen = self.normaliser.observations(observation)
        return self.exploration.disturb(self.networks["actor"](seen[:, None])[:, 0], seen)

    def policy(self, observation: Floats) -> Floats:
        """Return π(s) `[M, N, A]` for observations `[M, N, S]`."""
        return self.networks["actor"](self.normaliser.observations(observation))

    def policy_form(self) -> PolicyForm:
        """Return π as the actor's outputs."""
        return PolicyForm(self.networks["actor"], 0, self.task.action_size)

    def value(self, observation: Floats) -> Floats:
        """Return Q₁(s, π(s)) `[M, N]`, which the actor climbs, in units of the reward times `reward_scale`."""
        seen = self.normaliser.observations(observation)
        return self.normaliser.rewards.restored(self.networks["critic1"](seen, self.networks["actor"](seen))[:, :, 0])

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update of the critics, and in turn of the actor; return `td_error` `[M, B]`, the mean of both |δ|."""
        self.steps += 1
        config = self.config
        td_error = np.empty(batch.weight.shape, self._room.q.dtype)
        nets, targets = ({name: n.network for name, n in held.items()} for held in (self.networks, self.targets))
        _update(
            nets["actor"],
            targets["actor"],
            (nets["critic1"], nets["critic2"]),
            (targets["critic1"], targets["critic2"]),
            self.adams["actor"],
            (self.adams["critic1"], self.adams["critic2"]),
            self._actor_tape,
            self._room,
            self.normaliser.observations(batch.observation),
            batch.action,
            batch.reward,
            self.normaliser.observations(batch.next_observation),
            batch.terminated,
            batch.weight,
            batch.actor_weight,
            batch.rate_factor,
            self.task.discount,
            self.normaliser.rewards.factor,
            config.tau,
            config.smoothing,
            config.smoothing_clip,
            config.policy_delay,
            self.smoothing_stream.state,
            int(self.steps[0]),
            td_error,
        )
        return {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {
            **{f"exploration_{name}": array for name, array in self.exploration.state_dict().items()},
            "smoothing_stream": self.smoothing_stream.state,
            "warm_up_stream": self.random_actions.stream.state,
        }


@kernel
def smooth(action: Floats, stream: NDArray[np.uint64], deviation: float, bound: float) -> None:
    """Disturb target actions `[B, A]` in place: a ← clip(a + clip(ε, ±bound), ±1), ε ~ N(0, deviation²) (eq. 14)."""
    kind = action.dtype.type
    for b in range(action.shape[0]):
        for a in range(action.shape[1]):
            noise = min(max(deviation * next_normal(stream), -bound), bound)
            action[b, a] = np.minimum(np.maximum(action[b, a] + kind(noise), kind(-1)), kind(1))


@kernel
def _update(
    actor: Network, actor_target: Network, critics: Twins, critic_targets: Twins, actor_adam: Adam,
    critic_adams: TwinAdams, actor_tape: Tape, room: TwinRoom,
    observation: Floats, action: Floats, reward: Floats, next_observation: Floats, terminated: Floats,
    weight: Floats, actor_weight: Floats, rate_factor: Floats,
    discount: float, reward_factor: NDArray[np.float64], tau: float, smoothing: float, smoothing_clip: float,
    policy_delay: int, stream: NDArray[np.uint64], step: int, td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member, in the order of Algorithm 1."""
    batch, actions = action.shape[1], action.shape[2]
    kind = room.q.dtype.type
    pi, y = np.empty((batch, actions), room.q.dtype), np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    for m in range(action.shape[0]):
        forward(actor_target, m, actor_tape, next_observation[m], nothing, pi)
        smooth(pi, stream[m], smoothing, smoothing_clip)
        lesser_value(critic_targets, m, room, next_observation[m], pi)
        bootstrap(reward[m], terminated[m], room.q, reward_factor[m], discount, y)
        fit_twins(
            critics, critic_adams, m, room, observation[m], action[m], y, weight[m], 1.0, step, rate_factor[m],
            td_error[m],
        )  # fmt: skip
        if step % policy_delay:
            continue
        forward(actor, m, actor_tape, observation[m], nothing, pi)
        forward(critics[0], m, room.tape, observation[m], pi, room.q)
        for b in range(batch):
            room.d_q[b, 0] = kind(-1 / batch) * actor_weight[m, b]
        backward(critics[0], m, room.tape, room.d_q, False, room.d_action)
        backward(actor, m, actor_tape, room.d_action, True, nothing)
        adam_step(actor, m, actor_adam, step // policy_delay, rate_factor[m])
        track(actor_target, actor, m, tau)
        for i in range(2):
            track(critic_targets[i], critics[i], m, tau)
