"""Deep Q-network over evenly spaced actions, for a population (Mnih et al. 2015; de Bruin et al. 2018, section 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.action_table import ActionLevels
from replaybench.controllers.agent import Actions, Batch, Task
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.exploration.process_noise import Explored, decayed
from replaybench.controllers.learner import Learner
from replaybench.controllers.networks.adam import Adam, adam_step, make_adam
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, Network, PopulationMLP, Shape, Tape, backward, forward
from replaybench.controllers.normaliser import NormaliseConfig, Normaliser
from replaybench.data.kernel import kernel
from replaybench.data.nearest_level import nearest_level
from replaybench.data.streams import Stream, next_double


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """Settings; 15 levels, both ε, `decay_episodes` and `copy_every` (updates) are those of the 2018 paper.

    It does not state the rest. Every action dimension has `levels` evenly spaced values in [−1, 1], and all their
    combinations are the choices; None means the plant's own where it takes choices, else 15. The loss is ½ δ², beyond
    |δ| = `huber` linear; None keeps it quadratic. With `double` the learning network chooses the successor's action and
    the slow one values it (van Hasselt et al. 2016).
    """

    hidden: tuple[int, ...] = (64, 64)
    levels: int | None = None
    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    huber: float | None = None
    double: bool = False
    copy_every: int = 200
    first_random: float = 0.7
    last_random: float = 0.01
    decay_episodes: int = 500
    batch_size: int = 64
    replays_per_experience: float = 32.0
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)

    def __post_init__(self) -> None:
        positive("DQN", rate=self.rate, epsilon=self.epsilon, huber=self.huber)
        positive("DQN", replays_per_experience=self.replays_per_experience)
        between("DQN", 0, 1, first_random=self.first_random, last_random=self.last_random)
        betas("DQN", self.betas)
        counts("DQN", decay_episodes=self.decay_episodes, copy_every=self.copy_every, batch_size=self.batch_size)
        widths("DQN", hidden=self.hidden)


class DQN(Learner):
    """M independent Q-networks with an output for each choice.

    What was chosen is read off the stored action, the nearest choice if there is none like it: synthetic experiences
    and those of other learners can be replayed, too.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: not used.
        dtype: float32; float64 for comparisons in tests.

    Raises:
        UserError: fewer than 2 levels, more than 1000 choices, or other levels than the plant takes.

    Attributes:
        choices: `[K, A]`, the last dimension changing fastest.
    """

    chooses = True

    def __init__(
        self,
        config: DQNConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        levels = ActionLevels(config.levels, task.action_size, task.action_choices)
        self.choices, self._counts = levels.table, levels.counts
        shape = Shape((task.observation_size, *config.hidden, len(self.choices)))
        self.critic, self.critic_target = (PopulationMLP(shape, len(members), dtype) for _ in range(2))
        self.critic.initialise(Stream(root, members, "initialisation"))
        self.networks, self.targets = {"critic": self.critic}, {"critic": self.critic_target}
        self._aim_targets()
        self.critic_adam = make_adam(self.critic, config.rate, betas=config.betas, epsilon=config.epsilon)
        self.adams = {"critic": self.critic_adam}
        self.normaliser = Normaliser(config.normalise, len(members), task.observation_size, task.reward_scale, dtype)
        self.stream = Stream(root, members, "exploration")
        self.random = np.full(len(members), config.first_random)
        self.tried = np.full(len(members), -1)
        self.steps = np.zeros(1, np.int64)
        self._tape = self.critic.tape(config.batch_size)

    @classmethod
    def check(cls, config: DQNConfig, actions: Actions, refer: bool) -> None:
        """Check that the `actions` are those of `levels` and do not make too many, and that ReF-ER is not asked for.

        Raises:
            UserError: they are not, or do, or it is.
        """
        super().check(config, actions, refer)
        ActionLevels(config.levels, actions.size, actions.choices)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Set the probability of a random choice in this episode (counted from 0) of the chosen `members` `[M]`."""
        config, begun = self.config, np.full(int(members.sum()), episode)
        self.random[members] = decayed(config.first_random, config.last_random, config.decay_episodes, begun)

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return the greedy action or, with the episode's probability, a random choice; only `active` members draw."""
        self.normaliser.observations.update(observation, active)
        _draw(self.stream.state, active, self.random, len(self.choices), self.tried)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation; where the choice was random it is the same choice."""
        greedy = self.act(observation)
        action = np.where(self.tried[:, None] < 0, greedy, self.choices[self.tried])
        return Explored(action, np.abs(action - greedy).sum(axis=1))

    def policy(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`; NaN where a value is."""
        q = self.critic(self.normaliser.observations(observation))
        failed = np.isnan(q).any(axis=2, keepdims=True)
        return np.where(failed, np.float32(np.nan), self.choices[q.argmax(axis=2)])

    def policy_form(self) -> PolicyForm:
        """Return the choice of the largest value."""
        return PolicyForm(self.critic, 0, len(self.choices), table=self.choices)

    def value(self, observation: Floats) -> Floats:
        """Return max_a Q(s, a) `[M, N]`, in units of the reward times `reward_scale`."""
        return self.normaliser.rewards.restored(self.critic(self.normaliser.observations(observation)).max(axis=2))

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update, copying the network every so often; return `td_error` `[M, B]`, before the update."""
        self.steps += 1
        config = self.config
        td_error = np.empty(batch.weight.shape, self.critic.parameters.dtype)
        _update(
            self.critic.network,
            self.critic_target.network,
            self.critic_adam,
            self._tape,
            self.normaliser.observations(batch.observation),
            batch.action,
            batch.reward,
            self.normaliser.observations(batch.next_observation),
            batch.terminated,
            batch.weight,
            batch.rate_factor,
            self.task.discount,
            self.normaliser.rewards.factor,
            self._counts,
            np.inf if config.huber is None else config.huber,
            config.double,
            int(self.steps[0]),
            td_error,
        )
        if self.steps[0] % config.copy_every == 0:
            self._aim_targets()
        return {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.stream.state, "random": self.random}


@kernel
def _draw(
    stream: NDArray[np.uint64],
    active: NDArray[np.bool_],
    probability: NDArray[np.float64],
    choices: int,
    tried: NDArray[np.int64],
) -> None:
    """Write each active member's random choice, or −1 for the greedy one; always two draws."""
    for m in range(tried.size):
        if active[m]:
            at_random, which = next_double(stream[m]) < probability[m], next_double(stream[m])
            tried[m] = int(which * choices) if at_random else -1


@kernel
def choice_of(action: Floats, counts: NDArray[np.int64]) -> int:
    """Return the index of the choice nearest to an action `[A]`, given the levels of each dimension `[A]`."""
    index = 0
    for a in range(action.size):
        index = index * counts[a] + nearest_level(action[a], counts[a])
    return index


@kernel
def _update(
    critic: Network, critic_target: Network, adam: Adam, tape: Tape,
    observation: Floats, action: Floats, reward: Floats, next_observation: Floats, terminated: Floats,
    weight: Floats, rate_factor: Floats,
    discount: float, reward_factor: NDArray[np.float64], counts: NDArray[np.int64], huber: float, double: bool,
    step: int, td_error: Floats,
) -> None:  # fmt: skip
    """One update of every member: δ = r + γ (1 − terminated) Q⁻(s′, a*) − Q(s, a), a* the best of Q⁻ or, doubly, Q."""
    batch = action.shape[1]
    kind = critic.parameters.dtype.type
    q = np.empty((batch, critic.plan[-1, 0]), critic.parameters.dtype)
    q_next, judge, d_q = np.empty_like(q), np.empty_like(q), np.empty_like(q)
    nothing = np.empty((batch, 0), critic.parameters.dtype)
    for m in range(action.shape[0]):
        forward(critic_target, m, tape, next_observation[m], nothing, q_next)
        if double:
            forward(critic, m, tape, next_observation[m], nothing, judge)
        else:
            judge[:] = q_next
        forward(critic, m, tape, observation[m], nothing, q)
        d_q[:] = 0
        for b in range(batch):
            best = np.argmax(judge[b])
            chosen = choice_of(action[m, b], counts)
            future = kind(discount) * (kind(1) - terminated[m, b, 0]) * q_next[b, best]
            delta = kind(reward_factor[m]) * reward[m, b, 0] + future - q[b, chosen]
            td_error[m, b] = delta
            bounded = np.minimum(np.maximum(delta, kind(-huber)), kind(huber))
            d_q[b, chosen] = kind(-1 / batch) * weight[m, b] * bounded
        backward(critic, m, tape, d_q, True, nothing)
        adam_step(critic, m, adam, step, rate_factor[m])
