"""Deep Q-network over evenly spaced actions (Mnih et al. 2015; de Bruin et al. 2018, section 6.3)."""

from dataclasses import dataclass

import numpy as np

from replaybench.controllers.interface.agent import (
    ActionLevels,
    AdamConfig,
    Batch,
    DiscreteConfig,
    LearnerSetting,
    Schedule,
)
from replaybench.controllers.interface.noise import Explored, PolicyDraws, decayed, draw_uniform
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.temporal_difference import (
    Experiences,
    loss_factor,
    loss_gradient,
    outcome,
    td_error,
)
from replaybench.controllers.networks.adam import adam_step
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import PolicyHead, TrainState, differentiate, evaluate
from replaybench.data.batch import SQUARED, CriticLoss
from replaybench.runtime.arrays import AnyFloats, Bools, Integers
from replaybench.runtime.configuration import Number, Positive, Share, Widths
from replaybench.runtime.elementwise import nearest_level
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True, kw_only=True)
class DQNConfig(AdamConfig, DiscreteConfig):
    """Settings of DQN, of which levels, exploration and `copy_every` are those of de Bruin et al. (2018).

    That paper does not state the other values. An action is any combination of the levels of its dimensions. The loss
    is ½ δ², and linear beyond |δ| = `huber`. If `huber` is None, the loss is always quadratic. The target network is a
    copy that is renewed every `copy_every` updates. With `double`, the network chooses the action in the next state,
    and the target network computes the value of this action (van Hasselt et al. 2016).
    """

    hidden: Widths = (64, 64)
    rate: Positive = 1e-3
    huber: Positive | None = None
    double: bool = False
    copy_every: Number = 200
    first_random: Share = 0.7
    last_random: Share = 0.01
    decay_episodes: Number = 500
    n_step: Number = 1

    @property
    def schedule(self) -> Schedule:
        return super().schedule._replace(n_step=self.n_step, target_rate=1.0 / self.copy_every)


class DQN(Learner):
    """Deep Q-network, with M independent networks that have an output for each discrete action.

    A stored action counts as the nearest discrete action. Therefore, the learner can replay synthetic experiences and
    experiences of other learners.

    Raises:
        UserError: There are more than 1000 actions, or the setting `levels` is below 2 or does not match the plant's
            own discrete actions.

    Attributes:
        choices: The K discrete actions; float32, shape `[K, A]`. The last dimension changes fastest.
    """

    config: DQNConfig
    exploration: PolicyDraws
    supports_chunks = True
    discrete = True
    supports_losses = True

    def __init__(self, config: DQNConfig, setting: LearnerSetting) -> None:
        task = setting.task
        levels = ActionLevels(config.levels, task.action_size, task.action_choices)
        self.choices, self._counts = levels.table, levels.counts
        shapes = {"critic": Shape((task.observation_size, *config.hidden, len(self.choices)))}
        super().__init__(config, setting, shapes, {"critic": config.rate}, targets=shapes)
        self.critic, self._state = self.networks["critic"], self.train_state("critic")
        self.exploration = PolicyDraws(setting, 2, draw_uniform)
        self.random = np.full(len(setting.members), config.first_random)

    @classmethod
    def check_loss(cls, loss: CriticLoss, strategy: str) -> None:
        super().check_loss(loss, strategy)
        if loss.separate:
            raise UserError(
                f"{strategy} draws samples for an actor, which DQN does not have; use LAP, or DDPG, TD3 or SAC"
            )

    def start_episode(self, episode: int, members: Bools) -> None:
        config = self.config
        self.random[members] = decayed(config.first_random, config.last_random, config.decay_episodes, episode)

    def perturb(self, observation: AnyFloats) -> Explored:
        at_random, which = self.exploration.drawn.T
        tried = np.where(at_random < self.random, (which * len(self.choices)).astype(np.int64), -1)
        greedy = self.act(observation).astype(np.float32)
        action = np.where(tried[:, None] < 0, greedy, self.choices[tried])
        return Explored(action, np.abs(action - greedy).sum(axis=1))

    def policy(self, observation: AnyFloats) -> AnyFloats:
        q = self.critic(self.normalised(observation))
        failed = np.isnan(q).any(axis=2, keepdims=True)
        return np.where(failed, np.float32(np.nan), self.choices[q.argmax(axis=2)])

    def policy_head(self) -> PolicyHead:
        return PolicyHead(self.critic, 0, len(self.choices), table=self.choices)

    def value(self, observation: AnyFloats) -> AnyFloats:
        return self.normaliser.rewards.restored(self.critic(self.normalised(observation)).max(axis=2))

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        config, first, delta = self.config, self.begin_updates(batch), self.empty_per_sample(batch)
        x = self.experiences(batch, first)
        if config.huber is not None and x.loss == SQUARED:
            x = x._replace(loss=CriticLoss(config.huber))
        _update(self._state, x, self._counts, config.double, config.copy_every, first, delta)
        return {"td_error": delta}

    def _extra_state(self) -> dict[str, np.ndarray]:
        return {**super()._extra_state(), "random": self.random}


@kernel
def choice_of(action: AnyFloats, counts: Integers) -> int:
    """Return the index of the discrete action nearest to an action `[A]`, given the levels of each dimension `[A]`."""
    index = 0
    for a in range(action.size):
        index = index * counts[a] + nearest_level(action[a], counts[a])
    return index


@kernel
def _update(
    critic: TrainState, x: Experiences, counts: Integers, double: bool, copy_every: int, first: int, delta: AnyFloats,
) -> None:  # fmt: skip
    """Update the Q-network of every member, where `first` is the number, from 1, of the first update on the batch.

    The TD error is δ = r + γ (1 − terminated) Q⁻(s′, a*) − Q(s, a), where Q⁻ is the target network. The action a*
    maximises Q⁻(s′, ·) or, with `double`, Q(s′, ·).
    """
    net, target, tape, batch = critic.network, critic.target, critic.tape, x.action.shape[1]
    dtype, kind = net.parameters.dtype, net.parameters.dtype.type
    q_tm1, q_t, judge, d_q = np.empty((4, batch, counts.prod()), dtype)
    nothing = np.empty((batch, 0), dtype)
    updates = x.action.shape[0] // net.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        evaluate(target, m, tape, x.next_observation[row], nothing, q_t)
        if double:
            evaluate(net, m, tape, x.next_observation[row], nothing, judge)
        else:
            judge[:] = q_t
        evaluate(net, m, tape, x.observation[row], nothing, q_tm1)
        d_q[:] = 0
        for b in range(batch):
            best, chosen = np.argmax(judge[b]), choice_of(x.action[row, b], counts)
            r_t, discount_t = outcome(x, row, b, kind)
            delta[row, b] = td_error(q_tm1[b, chosen], r_t, discount_t, q_t[b, best])
        factor = loss_factor(delta[row], x.loss)
        for b in range(batch):
            chosen = choice_of(x.action[row, b], counts)
            weight = x.weight[row, b]
            d_q[b, chosen] = loss_gradient(delta[row, b], b, batch, x.loss, factor, -1.0, weight, kind)
        differentiate(net, m, tape, d_q, True, nothing)
        adam_step(net, m, critic.adam, step, x.rate_factor[row])
        if step % copy_every == 0:
            target.parameters[m] = net.parameters[m]
