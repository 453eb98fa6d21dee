"""Twin delayed deep deterministic policy gradient for a population (Fujimoto et al. 2018, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.experiences import Experiences
from replaybench.controllers.exploration.forms import ExplorationConfig, make_exploration
from replaybench.controllers.exploration.process_noise import Explored, ProcessNoise
from replaybench.controllers.exploration.random_actions import RandomActions
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.td import targets
from replaybench.controllers.losses.twin_critics import TwinRoom, Twins, fit_twins, lesser_value, twin_room
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, PopulationMLP, Shape, backward, forward
from replaybench.controllers.networks.network import Learned, slow_copy
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_normal


@dataclass(frozen=True, kw_only=True)
class TD3Config:
    """Settings; those of the smoothing, the delay, `tau` and both rates are the paper's.

    The paper has 400-300 units, batches of 100 and one update per step for tasks with far more dimensions, and explores
    with white noise of 0.1, which leaves four of eight learners on the pendulum hanging: the default is the correlated
    process of the 2018 benchmarks. `smoothing` is the standard deviation of the noise in the target's action.
    In the first `warmup_episodes` episodes (rounds of steps, if updates follow steps) actions are uniformly random and
    nothing is learned.
    """

    called: ClassVar[str] = "TD3"
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
        positive(self.called, actor_rate=self.actor_rate, critic_rate=self.critic_rate, epsilon=self.epsilon)
        positive(self.called, replays_per_experience=self.replays_per_experience)
        between(self.called, 0, 1, tau=self.tau)
        betas(self.called, self.betas)
        between(self.called, 0, np.inf, smoothing=self.smoothing, smoothing_clip=self.smoothing_clip)
        between(self.called, 0, np.inf, warmup_episodes=self.warmup_episodes)
        counts(self.called, policy_delay=self.policy_delay, batch_size=self.batch_size)
        widths(self.called, actor_hidden=self.actor_hidden, critic_hidden=self.critic_hidden)


class TD3(Learner):
    """M independent actors with twin critics, and slow copies of all."""

    several_at_once = True
    networks: dict[str, PopulationMLP]

    def __init__(self, config: TD3Config, setting: LearnerSetting) -> None:
        s, a = setting.task.observation_size, setting.task.action_size
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=0)
        shapes = {"actor": Shape((s, *config.actor_hidden, a), tanh=True), "critic1": critic, "critic2": critic}
        super().__init__(config, setting, shapes, slow=shapes)
        self.actor = self.networks["actor"]
        rates = {"actor": config.actor_rate, "critic1": config.critic_rate, "critic2": config.critic_rate}
        self.adams = self._make_adams(rates, betas=config.betas, epsilon=config.epsilon)
        self.exploration = make_exploration(config.exploration, setting, self.actor)
        self.random_actions = RandomActions(setting.root, setting.members, a)
        self.smoothing_stream = setting.stream("update")
        self._actor, self._critics = self.learned("actor"), (self.learned("critic1"), self.learned("critic2"))
        self._room = twin_room(self._critics[0].tape, config.batch_size, a, setting.dtype)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin an episode of exploration of the chosen `members` `[M]`."""
        self.exploration.start_episode(episode, members)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        # Also while warming up: an episode may go on after it, and parameter noise learns where members are.
        self.exploration.advance(self.seen(observation), active)
        if self.warming_up:
            self.random_actions.draw(active)

    def re_explore(self, observation: Floats) -> Explored:
        """Return π(s), disturbed as in the present step, while warming up its random action."""
        if self.warming_up:
            return self.random_actions.explored(self.act(observation))
        seen = self.seen(observation)
        return self.exploration.disturb(self.actor(seen[:, None])[:, 0], seen)

    def policy(self, observation: Floats) -> Floats:
        """Return π(s) `[M, N, A]` for observations `[M, N, S]`."""
        return self.actor(self.seen(observation))

    def policy_form(self) -> PolicyForm:
        """Return π as the actor's outputs."""
        return PolicyForm(self.actor, 0, self.task.action_size)

    def value(self, observation: Floats) -> Floats:
        """Return Q₁(s, π(s)) `[M, N]`, which the actor climbs, in units of the reward times `reward_scale`."""
        seen = self.seen(observation)
        return self.normaliser.rewards.restored(self.networks["critic1"](seen, self.actor(seen))[:, :, 0])

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Update the critics, and in turn the actor; annotate `td_error` `[M·U, B]`, the mean of both |δ|."""
        arguments = self._arguments(batch)
        _update(*arguments)
        return {"td_error": arguments[-1]}

    def _arguments(self, batch: Batch) -> tuple[Any, ...]:
        """Count the updates of a batch; return what they work on, the annotation `td_error` last."""
        first, config = self.begin_updates(batch), self.config
        smoothing = (self.smoothing_stream.state, config.smoothing, config.smoothing_clip)
        pace = (config.tau, config.policy_delay, first)
        x, delta = self.experiences(batch, first), self.annotations(batch)
        return self._actor, self._critics, self._room, x, *smoothing, *pace, delta

    def _further(self) -> dict[str, NDArray[Any]]:
        exploration = {f"exploration_{name}": array for name, array in self.exploration.state_dict().items()}
        smoothing, warm_up = self.smoothing_stream.state, self.random_actions.stream.state
        return {**exploration, "smoothing_stream": smoothing, "warm_up_stream": warm_up}


@kernel
def smooth(action: Floats, stream: NDArray[np.uint64], deviation: float, bound: float) -> None:
    """Disturb target actions `[B, A]` in place: a ← clip(a + clip(ε, ±bound), ±1), ε ~ N(0, deviation²) (eq. 14)."""
    kind = action.dtype.type
    for b in range(action.shape[0]):
        for a in range(action.shape[1]):
            noise = min(max(deviation * next_normal(stream), -bound), bound)
            action[b, a] = np.minimum(np.maximum(action[b, a] + kind(noise), kind(-1)), kind(1))


@kernel
def fit_critics(
    actor: Learned, critics: Twins, room: TwinRoom, x: Experiences, row: int, m: int, stream: NDArray[np.uint64],
    smoothing: float, smoothing_clip: float, step: int, pi: Floats, y: Floats, delta: Floats,
) -> None:  # fmt: skip
    """Fit both critics of member m to y = r_t + discount_t min_i Q′_i(s_t, smoothed π′(s_t)), on a row of x."""
    nothing = np.empty((pi.shape[0], 0), pi.dtype)
    forward(slow_copy(actor), m, actor.tape, x.next_observation[row], nothing, pi)
    smooth(pi, stream[m], smoothing, smoothing_clip)
    lesser_value((slow_copy(critics[0]), slow_copy(critics[1])), m, room, x.next_observation[row], pi)
    targets(x, row, room.q, y)
    fit_twins(critics, m, room, x, row, y, 1.0, step, delta[row])


@kernel
def follow(actor: Learned, critics: Twins, m: int, tau: float) -> None:
    """Move the slow copies of member m a step of tau towards what they are copies of."""
    track(slow_copy(actor), actor.network, m, tau)
    for i in range(2):
        track(slow_copy(critics[i]), critics[i].network, m, tau)


@kernel
def _update(
    actor: Learned, critics: Twins, room: TwinRoom, x: Experiences, stream: NDArray[np.uint64], smoothing: float,
    smoothing_clip: float, tau: float, policy_delay: int, first: int, delta: Floats,
) -> None:  # fmt: skip
    """Updates of every member, counted from `first`, in the order of Algorithm 1."""
    batch, actions = x.action.shape[1], x.action.shape[2]
    kind = room.q.dtype.type
    pi, y = np.empty((batch, actions), room.q.dtype), np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        fit_critics(actor, critics, room, x, row, m, stream, smoothing, smoothing_clip, step, pi, y, delta)
        if step % policy_delay:
            continue
        forward(actor.network, m, actor.tape, x.observation[row], nothing, pi)
        forward(critics[0].network, m, room.tape, x.observation[row], pi, room.q)
        for b in range(batch):
            room.d_q[b, 0] = kind(-1 / batch) * x.actor_weight[row, b]
        backward(critics[0].network, m, room.tape, room.d_q, False, room.d_action)
        backward(actor.network, m, actor.tape, room.d_action, True, nothing)
        adam_step(actor.network, m, actor.adam, step // policy_delay, x.rate_factor[row])
        follow(actor, critics, m, tau)
