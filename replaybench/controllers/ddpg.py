"""Deep deterministic policy gradient for a population, as in de Bruin et al. (2018), section 3.2 and B.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.agent import Batch, Task
from replaybench.controllers.exploration import Exploration, ExplorationConfig, Explored
from replaybench.controllers.layers import Floats, Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.learner import Learner
from replaybench.controllers.optimiser import Adam, adam_step, make_adam, track
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream


@dataclass(frozen=True, kw_only=True)
class DDPGConfig:
    """Settings with the paper's values; the paper is silent on `tau` and prints `l2` = 5e-3.

    With that printed value, coupled into Adam, and these reward scales, learning degrades after a few hundred
    episodes, so the default is 0; the printed value is the variant `l2 = 0.005`.
    """

    actor_hidden: tuple[int, ...] = (50, 50)
    critic_hidden: tuple[int, ...] = (50, 50, 20)
    action_layer: int = 1
    actor_rate: float = 1e-4
    critic_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    l2: float = 0.0
    l2_form: Literal["coupled", "decoupled"] = "coupled"
    clip: float | None = None
    tau: float = 0.01
    batch_size: int = 16
    replays_per_experience: float = 8.0
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)

    def __post_init__(self) -> None:
        positive = {"actor_rate": self.actor_rate, "critic_rate": self.critic_rate, "epsilon": self.epsilon}
        positive |= {"replays_per_experience": self.replays_per_experience}
        for name, value in positive.items():
            if not 0 < value < np.inf:
                raise UserError(f"DDPG: {name} must be a finite number above 0, not {value}")
        if not (0 <= self.tau <= 1 and all(0 <= beta < 1 for beta in self.betas) and 0 <= self.l2 < np.inf):
            raise UserError("DDPG: tau must lie in [0, 1], betas in [0, 1), l2 must be finite and ≥ 0")
        if self.clip is not None and not 0 < self.clip < np.inf:
            raise UserError(f"DDPG: clip must be a finite number above 0, not {self.clip}")
        if self.batch_size < 1 or min((*self.actor_hidden, *self.critic_hidden), default=1) < 1:
            raise UserError("DDPG: batch_size and all layer widths must be at least 1")
        if not 0 <= self.action_layer <= len(self.critic_hidden):
            raise UserError(f"DDPG: action_layer must lie in [0, {len(self.critic_hidden)}], not {self.action_layer}")


class DDPG(Learner):
    """M independent actor-critic pairs with target networks.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz (exploration with `per_second`).
        dtype: float32; float64 for comparisons in tests.
    """

    def __init__(
        self,
        config: DDPGConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        m, s, a = len(members), task.observation_size, task.action_size
        actor = Shape((s, *config.actor_hidden, a), tanh=True)
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=config.action_layer)
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.actor, self.actor_target = (PopulationMLP(actor, m, dtype) for _ in range(2))
        self.critic, self.critic_target = (PopulationMLP(critic, m, dtype) for _ in range(2))
        stream = Stream(root, members, "initialisation")
        self.actor.initialise(stream)
        self.critic.initialise(stream)
        self.actor_adam = make_adam(
            self.actor, config.actor_rate, betas=config.betas, epsilon=config.epsilon, clip=config.clip
        )
        self.critic_adam = make_adam(
            self.critic,
            config.critic_rate,
            betas=config.betas,
            epsilon=config.epsilon,
            l2=config.l2,
            coupled=config.l2_form == "coupled",
            clip=config.clip,
        )
        self.networks = {"actor": self.actor, "critic": self.critic}
        self.targets = {"actor": self.actor_target, "critic": self.critic_target}
        self.adams = {"actor": self.actor_adam, "critic": self.critic_adam}
        self._aim_targets()
        self.exploration = Exploration(config.exploration, root, members, a, frequency)
        self.steps = np.zeros(1, np.int64)
        self._tapes = (self.actor.tape(config.batch_size), self.critic.tape(config.batch_size))

    def start_episode(self, episode: int) -> None:
        """Put exploration to rest and set its amplitude."""
        self.exploration.start_episode(episode)

    def act(self, observation: Floats) -> Floats:
        """Return π(s) `[M, A]` for observation `[M, S]`."""
        return self.policy(observation[:, None])[:, 0]

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return π(s) with exploration added, clipped to ±1, `[M, A]`; only `active` `[M]` members draw."""
        self.exploration.advance(active)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the exploration of the present step."""
        return self.exploration.disturb(self.act(observation))

    def policy(self, observation: Floats) -> Floats:
        """Return π(s) `[M, N, A]` for observations `[M, N, S]`."""
        return self.actor(observation)

    def value(self, observation: Floats) -> Floats:
        """Return Q(s, π(s)) `[M, N]`, in units of the scaled reward."""
        return self.critic(observation, self.policy(observation))[:, :, 0]

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one critic and one actor update; return `td_error` `[M, B]` (eq. 4, before the update)."""
        self.steps += 1
        td_error = np.empty(batch.weight.shape, self.actor.parameters.dtype)
        _update(
            self.actor.network,
            self.critic.network,
            self.actor_target.network,
            self.critic_target.network,
            *self._tapes,
            self.actor_adam,
            self.critic_adam,
            batch.observation,
            batch.action,
            batch.reward,
            batch.next_observation,
            batch.terminated,
            batch.weight,
            batch.actor_weight,
            batch.rate_factor,
            self.task.discount,
            self.task.reward_scale,
            self.config.tau,
            int(self.steps[0]),
            td_error,
        )
        return {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.exploration.stream.state}


@kernel
def _update(
    actor: Network, critic: Network, actor_target: Network, critic_target: Network,
    actor_tape: Tape, critic_tape: Tape, actor_adam: Adam, critic_adam: Adam,
    observation: Floats, action: Floats, reward: Floats, next_observation: Floats, terminated: Floats,
    weight: Floats, actor_weight: Floats, rate_factor: Floats,
    discount: float, reward_scale: float, tau: float, step: int, td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member; the symbols are those of equations 4 to 6."""
    batch, actions = action.shape[1], action.shape[2]
    kind = actor.parameters.dtype.type
    pi = np.empty((batch, actions), actor.parameters.dtype)
    d_pi = np.empty_like(pi)
    q = np.empty((batch, 1), actor.parameters.dtype)
    q_next, d_q = np.empty_like(q), np.empty_like(q)
    nothing = np.empty((batch, 0), actor.parameters.dtype)
    for m in range(action.shape[0]):
        forward(actor_target, m, actor_tape, next_observation[m], nothing, pi)
        forward(critic_target, m, critic_tape, next_observation[m], pi, q_next)
        forward(critic, m, critic_tape, observation[m], action[m], q)
        for b in range(batch):
            future = kind(discount) * (kind(1) - terminated[m, b, 0]) * q_next[b, 0]
            delta = kind(reward_scale) * reward[m, b, 0] + future - q[b, 0]
            td_error[m, b] = delta
            d_q[b, 0] = kind(-2 / batch) * weight[m, b] * delta
        backward(critic, m, critic_tape, d_q, True, nothing)
        adam_step(critic, m, critic_adam, step, rate_factor[m])

        forward(actor, m, actor_tape, observation[m], nothing, pi)
        forward(critic, m, critic_tape, observation[m], pi, q)
        for b in range(batch):
            d_q[b, 0] = kind(-1 / batch) * actor_weight[m, b]
        backward(critic, m, critic_tape, d_q, False, d_pi)
        backward(actor, m, actor_tape, d_pi, True, nothing)
        adam_step(actor, m, actor_adam, step, rate_factor[m])

        track(critic_target, critic, m, tau)
        track(actor_target, actor, m, tau)
