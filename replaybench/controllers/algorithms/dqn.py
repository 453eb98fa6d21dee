"""Deep Q-network over evenly spaced actions, for a population (Mnih et al. 2015; de Bruin et al. 2018, section 6.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.action_table import ActionLevels
from replaybench.controllers.agent import Batch
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.experiences import Experiences, outcome
from replaybench.controllers.exploration.process_noise import Explored, decayed
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.td import td_error
from replaybench.controllers.networks.adam import adam_step
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, PopulationMLP, Shape, backward, forward
from replaybench.controllers.networks.network import Learned, slow_copy
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.kernel import kernel
from replaybench.data.kernels.nearest_level import nearest_level
from replaybench.data.kernels.total import total
from replaybench.data.streams import next_double


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

    Raises:
        UserError: fewer than 2 levels, more than 1000 choices, or other levels than the plant takes.

    Attributes:
        choices: `[K, A]`, the last dimension changing fastest.
    """

    several_at_once = True
    discrete = True
    networks: dict[str, PopulationMLP]

    def __init__(self, config: DQNConfig, setting: LearnerSetting) -> None:
        task = setting.task
        levels = ActionLevels(config.levels, task.action_size, task.action_choices)
        self.choices, self._counts = levels.table, levels.counts
        shapes = {"critic": Shape((task.observation_size, *config.hidden, len(self.choices)))}
        super().__init__(config, setting, shapes, slow=shapes)
        self.critic = self.networks["critic"]
        self.adams = self._make_adams({"critic": config.rate}, betas=config.betas, epsilon=config.epsilon)
        self._learned = self.learned("critic")
        self.stream = setting.stream("exploration")
        self.random = np.full(len(setting.members), config.first_random)
        self.tried = np.full(len(setting.members), -1)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Set the probability of a random choice in this episode (counted from 0) of the chosen `members` `[M]`."""
        config = self.config
        self.random[members] = decayed(config.first_random, config.last_random, config.decay_episodes, episode)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        _draw_choices(self.stream.state, active, self.random, len(self.choices), self.tried)

    def re_explore(self, observation: Floats) -> Explored:
        """Return the greedy action, or the random choice if this step, with the episode's probability, has one."""
        greedy = np.ascontiguousarray(self.act(observation))
        explored = Explored(np.empty(greedy.shape, np.float32), np.empty(len(greedy), np.float32))
        _try(greedy, self.tried, self.choices, *explored[:2])
        return explored

    def policy(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`; NaN where a value is."""
        q = self.critic(self.seen(observation))
        failed = np.isnan(q).any(axis=2, keepdims=True)
        return np.where(failed, np.float32(np.nan), self.choices[q.argmax(axis=2)])

    def policy_form(self) -> PolicyForm:
        """Return the choice of the largest value."""
        return PolicyForm(self.critic, 0, len(self.choices), table=self.choices)

    def value(self, observation: Floats) -> Floats:
        """Return max_a Q(s, a) `[M, N]`, in units of the reward times `reward_scale`."""
        return self.normaliser.rewards.restored(self.critic(self.seen(observation)).max(axis=2))

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Update the network, copying it every so often; annotate `td_error` `[M·U, B]`, before each update."""
        config, first, delta = self.config, self.begin_updates(batch), self.annotations(batch)
        settings = (np.inf if config.huber is None else config.huber, config.double, config.copy_every)
        _update(self._learned, self.experiences(batch, first), self._counts, *settings, first, delta)
        return {"td_error": delta}

    def _further(self) -> dict[str, NDArray[Any]]:
        return {"exploration_stream": self.stream.state, "random": self.random}


@kernel
def _draw_choices(
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
def _try(
    greedy: Floats, tried: NDArray[np.int64], choices: NDArray[np.float32], action: Floats, deviation: Floats
) -> None:
    """Write the actions `[M, A]` of the choices tried, or greedy ones, and how far they are from these, ‖·‖₁ `[M]`."""
    apart = np.empty(action.shape[1], np.float32)
    for m in range(action.shape[0]):
        for a in range(action.shape[1]):
            action[m, a] = greedy[m, a] if tried[m] < 0 else choices[tried[m], a]
            apart[a] = abs(action[m, a] - np.float32(greedy[m, a]))
        deviation[m] = total(apart)


@kernel
def choice_of(action: Floats, counts: NDArray[np.int64]) -> int:
    """Return the index of the choice nearest to an action `[A]`, given the levels of each dimension `[A]`."""
    index = 0
    for a in range(action.size):
        index = index * counts[a] + nearest_level(action[a], counts[a])
    return index


@kernel
def _update(
    critic: Learned, x: Experiences, counts: NDArray[np.int64], huber: float, double: bool, copy_every: int, first: int,
    delta: Floats,
) -> None:  # fmt: skip
    """Updates of every member, counted from `first`.

    δ = r + γ (1 − terminated) Q⁻(s′, a*) − Q(s, a), a* the best of Q⁻ or, doubly, Q.
    """
    net, slow, tape, batch = critic.network, slow_copy(critic), critic.tape, x.action.shape[1]
    dtype, kind = net.parameters.dtype, net.parameters.dtype.type
    q_tm1 = np.empty((batch, net.plan[-1, 0]), dtype)
    q_t, judge, d_q = np.empty_like(q_tm1), np.empty_like(q_tm1), np.empty_like(q_tm1)
    nothing = np.empty((batch, 0), dtype)
    updates = x.action.shape[0] // net.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        forward(slow, m, tape, x.next_observation[row], nothing, q_t)
        if double:
            forward(net, m, tape, x.next_observation[row], nothing, judge)
        else:
            judge[:] = q_t
        forward(net, m, tape, x.observation[row], nothing, q_tm1)
        d_q[:] = 0
        for b in range(batch):
            best, chosen = np.argmax(judge[b]), choice_of(x.action[row, b], counts)
            r_t, discount_t = outcome(x, row, b, kind)
            delta[row, b] = td_error(q_tm1[b, chosen], r_t, discount_t, q_t[b, best])
            bounded = np.minimum(np.maximum(delta[row, b], kind(-huber)), kind(huber))
            d_q[b, chosen] = kind(-1 / batch) * x.weight[row, b] * bounded
        backward(net, m, tape, d_q, True, nothing)
        adam_step(net, m, critic.adam, step, x.rate_factor[row])
        if step % copy_every == 0:
            slow.parameters[m] = net.parameters[m]
