"""TD3 (Fujimoto et al. 2018) and TD3+BC (Fujimoto & Gu 2021)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import AdamConfig, Batch, LearnerSetting, NormaliseConfig, Schedule
from replaybench.controllers.interface.exploration import DeterministicConfig
from replaybench.controllers.interface.noise import Explored, RandomActions
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.temporal_difference import Experiences, targets
from replaybench.controllers.losses.twin_critics import Twins, fit_twins, lesser_value, twin_workspace
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import TrainState, differentiate, evaluate
from replaybench.runtime.arrays import AnyFloats, Bools
from replaybench.runtime.configuration import Episodes, NonNegative, Number, Positive, Share, Widths
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_normal


@dataclass(frozen=True, kw_only=True)
class TD3Config(AdamConfig, DeterministicConfig):
    """Settings of TD3, where smoothing, delay, `tau` and learning rates are those of Fujimoto et al. (2018).

    That paper uses 400-300 units, batches of 100 and one update per step, for tasks with far more dimensions. With the
    white exploration noise of 0.1 in that paper, half of the learners fail on the pendulum. The default is therefore
    the correlated noise of de Bruin et al. (2018). `smoothing` is the standard deviation of the noise in the target's
    action. In the first `warmup_episodes` episodes (iterations, if updates follow a fixed number of steps), actions are
    uniformly random and nothing is learned.
    """

    actor_hidden: Widths = (64, 64)
    critic_hidden: Widths = (64, 64)
    actor_rate: Positive = 1e-3
    critic_rate: Positive = 1e-3
    tau: Share = 0.005
    smoothing: NonNegative = 0.2
    smoothing_clip: NonNegative = 0.5
    policy_delay: Number = 2
    n_step: Number = 1
    warmup_episodes: Episodes = 0

    @property
    def schedule(self) -> Schedule:
        """The number and time of updates. Target networks are updated as rarely as the policy."""
        rate = self.tau / self.policy_delay
        return super().schedule._replace(n_step=self.n_step, warmup_episodes=self.warmup_episodes, target_rate=rate)


class TD3(Learner):
    """Twin delayed deterministic policy gradient, with M independent actors, twin critics and target networks."""

    config: TD3Config
    supports_chunks = True
    supports_losses = True
    imitation = np.nan
    """Weight α of the critic's value compared with the imitation of recorded actions, or NaN without imitation."""

    def __init__(self, config: TD3Config, setting: LearnerSetting) -> None:
        s, a = setting.task.observation_size, setting.task.action_size
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=0)
        shapes = {"actor": Shape((s, *config.actor_hidden, a), tanh=True), "critic1": critic, "critic2": critic}
        rates = {"actor": config.actor_rate, "critic1": config.critic_rate, "critic2": config.critic_rate}
        super().__init__(config, setting, shapes, rates, targets=shapes)
        self.actor, self.critic, _ = self.networks.values()
        self.random_actions, self.smoothing_stream = RandomActions(setting), setting.stream("update")
        self._actor = self.train_state("actor")
        self._critics = self.train_state("critic1"), self.train_state("critic2")

    def _advance(self, observation: AnyFloats, active: Bools) -> None:
        # Exploration also advances during warm-up, because an episode may outlast the warm-up.
        super()._advance(observation, active)
        if self.warming_up:
            self.random_actions.advance(observation, active)

    def perturb(self, observation: AnyFloats) -> Explored:
        if self.warming_up:
            return self.random_actions.explored(self.act(observation))
        return super().perturb(observation)

    def value(self, observation: AnyFloats) -> AnyFloats:
        normalised = self.normalised(observation)
        return self.normaliser.rewards.restored(self.critic(normalised, self.actor(normalised))[:, :, 0])

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        config, first, delta = self.config, self.begin_updates(batch), self.empty_per_sample(batch)
        smoothing = (self.smoothing_stream.state, config.smoothing, config.smoothing_clip)
        pace, x = (config.tau, config.policy_delay, first), self.experiences(batch, first)
        _update(self._actor, self._critics, x, self.imitation, *smoothing, *pace, delta)
        return {"td_error": delta}

    def _extra_state(self) -> dict[str, np.ndarray]:
        own = {"smoothing_stream": self.smoothing_stream.state, "warm_up_stream": self.random_actions.stream.state}
        return {**super()._extra_state(), **own}


@kernel
def smooth(action: AnyFloats, stream: NDArray[np.uint64], deviation: float, bound: float) -> None:
    """Add smoothing noise to B target actions `[B, A]` in place (Fujimoto et al. 2018, eq. 14).

    The result is clip(a + clip(ε, ±bound), ±1), with ε ~ N(0, deviation²).
    """
    kind = action.dtype.type
    for b in range(action.shape[0]):
        for a in range(action.shape[1]):
            noise = min(max(deviation * next_normal(stream), -bound), bound)
            action[b, a] = np.minimum(np.maximum(action[b, a] + kind(noise), kind(-1)), kind(1))


@kernel
def _update(
    actor: TrainState, critics: Twins, x: Experiences, imitation: float,
    stream: NDArray[np.uint64],
    smoothing: float, smoothing_clip: float, tau: float, policy_delay: int, first: int, delta: AnyFloats,
) -> None:  # fmt: skip
    """Update the networks of every member by Algorithm 1 of Fujimoto et al. (2018).

    `first` is the number, from 1, of the first update on the batch. If `imitation`, α, is a number, the actor's loss is
    that of TD3+BC (Fujimoto & Gu 2021, eq. 4 and 5),

        mean_b [(π(s_b) − a_b)² − λ Q₁(s_b, π(s_b))],    λ = α / mean_b |Q₁|.

    λ is held fixed in the gradient. |Q₁| is computed at π(s_b), as in the authors' code. The paper prints |Q₁| at the
    recorded actions a_b. The square is a mean over action dimensions.
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    workspace = twin_workspace(critics, batch, actions)
    dtype, kind = workspace.q.dtype, workspace.q.dtype.type
    pi, y, nothing = np.empty((batch, actions), dtype), np.empty((batch, 1), dtype), np.empty((batch, 0), dtype)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    imitates = not np.isnan(imitation)
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        evaluate(actor.target, m, actor.tape, x.next_observation[row], nothing, pi)
        smooth(pi, stream[m], smoothing, smoothing_clip)
        lesser_value((critics[0].target, critics[1].target), m, workspace, x.next_observation[row], pi)
        targets(x, row, workspace.q, y)
        fit_twins(critics, m, workspace, x, row, y, 1.0, step, delta[row])
        if step % policy_delay:
            continue
        evaluate(actor.network, m, actor.tape, x.observation[row], nothing, pi)
        evaluate(critics[0].network, m, workspace.tape, x.observation[row], pi, workspace.q)
        size = 0.0
        for b in range(batch):
            size += abs(workspace.q[b, 0]) / batch
        weight = kind(-imitation / (size * batch)) if imitates else kind(-1 / batch)
        for b in range(batch):
            workspace.d_q[b, 0] = weight * x.actor_weight[row, b]
        differentiate(critics[0].network, m, workspace.tape, workspace.d_q, False, workspace.d_action)
        if imitates:
            for b in range(batch):
                pull = kind(2 / (batch * actions)) * x.actor_weight[row, b]
                for a in range(actions):
                    workspace.d_action[b, a] += pull * (pi[b, a] - x.action[row, b, a])
        differentiate(actor.network, m, actor.tape, workspace.d_action, True, nothing)
        adam_step(actor.network, m, actor.adam, step // policy_delay, x.rate_factor[row])
        track(actor.target, actor.network, m, tau)
        for i in range(2):
            track(critics[i].target, critics[i].network, m, tau)


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(TD3Config):
    """Settings of TD3+BC, where `alpha` and normalised observations are those of Fujimoto & Gu (2021).

    These values are in section 5 and table 3 of the paper. `alpha` is the weight of the critic's value compared with
    imitation. Near 0, the policy copies the recorded actions. Large values give TD3. The paper divides observations by
    their standard deviation plus 1e-3. Here, the divisor is the standard deviation, but at least 1e-2. The paper has
    256-256 units, batches of 256 and learning rates of 3e-4, for 10⁶ updates on robots. Here, these values are those of
    `TD3`. With them, 20,000 updates are enough for a pendulum (with rates of 3e-4, they are not). Exploration noise is
    not used if the learner is trained on recorded experiences only.
    """

    alpha: NonNegative = 2.5
    normalise: NormaliseConfig = field(default_factory=lambda: NormaliseConfig(observations=True))


class TD3BC(TD3):
    """TD3 with behaviour cloning (TD3+BC), with M independent learners whose actors stay near recorded actions."""

    supports_chunks = True

    def __init__(self, config: TD3BCConfig, setting: LearnerSetting) -> None:
        super().__init__(config, setting)
        self.imitation = config.alpha
