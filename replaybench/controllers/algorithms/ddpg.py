"""Deep deterministic policy gradient, as in de Bruin et al. (2018, section 3.2 and appendix B.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from replaybench.controllers.interface.agent import AdamConfig, Batch, LearnerSetting, RecurrentConfig, Schedule
from replaybench.controllers.interface.exploration import DeterministicConfig, ParameterNoise
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.refer import Rules, divergence_gradient, gives_gradient, importance_weights
from replaybench.controllers.losses.temporal_difference import (
    Experiences,
    loss_factor,
    loss_gradient,
    outcome,
    td_error,
)
from replaybench.controllers.networks.adam import AdamSettings, adam_step, track
from replaybench.controllers.networks.mlp import PopulationMLP, Shape
from replaybench.controllers.networks.network import TrainState, differentiate, evaluate, of_member
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.configuration import NonNegative, Number, Positive, Share, Widths
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(AdamConfig, DeterministicConfig, RecurrentConfig):
    """Settings of DDPG, with the values of de Bruin et al. (2018) where the paper states them.

    The paper does not state `tau`. The paper prints `l2` = 5e-3, but with this weight decay in Adam's gradient,
    learning degrades after a few hundred episodes. The default is therefore 0. `l2_form` selects how the critic's
    weight decay acts. `coupled` acts on all parameters through Adam's gradient, and `decoupled` on all parameters
    directly. `weights` acts through the gradient of weights but not of biases, as in the authors' fork of OpenAI
    Baselines for the paper's Roboschool results.

    The action joins the critic after hidden layer number `action_layer`, where 0 means next to the observation. With a
    `memory`, the action joins right after the LSTM. `layer_norm` normalises every hidden layer before its activation.
    `output_bound` bounds the initial weights and biases of the last layers. The paper's Roboschool networks have layer
    normalisation, and a bound of 3e-3 (section 8.5).
    """

    actor_hidden: Widths = (50, 50)
    critic_hidden: Widths = (50, 50, 20)
    action_layer: int = 1
    layer_norm: bool = False
    output_bound: Positive | None = None
    actor_rate: Positive = 1e-4
    critic_rate: Positive = 1e-3
    l2: NonNegative = 0.0
    l2_form: Literal["coupled", "decoupled", "weights"] = "coupled"
    clip: Positive | None = None
    tau: Share = 0.01
    batch_size: Number = 16
    replays_per_experience: Positive = 8.0
    n_step: Number = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.action_layer <= len(self.critic_hidden):
            raise UserError(f"DDPG: action_layer must lie in [0, {len(self.critic_hidden)}], not {self.action_layer}")
        if self.memory and self.l2_form == "weights":
            raise UserError('DDPG: l2_form = "weights" is for networks without a memory; use "coupled" with one')
        if self.memory and self.layer_norm:
            raise UserError("DDPG: layer_norm is for networks without memory; leave out one of the two")
        if self.memory and self.n_step > 1:
            raise UserError("DDPG: n_step is for networks without memory; leave out one of the two")
        if self.memory and isinstance(self.exploration, ParameterNoise):
            raise UserError("DDPG: parameter noise disturbs networks without memory; leave out one of the two")

    @property
    def schedule(self) -> Schedule:
        return super().schedule._replace(n_step=self.n_step, target_rate=self.tau)

    @property
    def adam(self) -> AdamSettings:
        return super().adam._replace(clip=self.clip)


class DDPG(Learner):
    """Deep deterministic policy gradient, with M independent actors and critics and their target networks.

    ReF-ER (Novati & Koumoutsakos 2019) requires Gaussian exploration. With Rule 1 of ReF-ER, samples with a very large
    or small importance weight do not contribute to the critic's gradient. In the actor's gradient, only the penalty of
    Rule 2 includes these samples (section 4 and eq. 10).
    """

    config: DDPGConfig
    supports_chunks = True
    supports_refer = True
    supports_losses = True

    def __init__(self, config: DDPGConfig, setting: LearnerSetting) -> None:
        s, a = setting.task.observation_size, setting.task.action_size
        plain = Shape((), layer_norm=config.layer_norm, output_bound=config.output_bound)
        actor = replace(plain, sizes=(s, *config.actor_hidden, a), tanh=True)
        critic = replace(plain, sizes=(s, *config.critic_hidden, 1), actions=a, inject=config.action_layer)
        shapes, rates = {"actor": actor, "critic": critic}, {"actor": config.actor_rate, "critic": config.critic_rate}
        super().__init__(config, setting, shapes, rates, targets=shapes)
        self.actor, self.critic = self.networks.values()
        adam = self.networks.adams["critic"]._replace(l2=config.l2, coupled=config.l2_form != "decoupled")
        if config.l2_form == "weights" and isinstance(self.critic, PopulationMLP):
            adam = adam._replace(penalised=self.critic.weights())
        self.networks.adams["critic"] = adam
        self._actor, self._critic = map(self.train_state, shapes)

    def value(self, observation: AnyFloats) -> AnyFloats:
        normalised = self.normalised(observation)
        return self.normaliser.rewards.restored(self.critic(normalised, self.actor(normalised))[:, :, 0])

    def update(self, batch: Batch) -> Mapping[str, AnyFloats]:
        first, delta, rho = self.begin_updates(batch), self.empty_per_sample(batch), self.empty_per_sample(batch)
        x, rules = self.experiences(batch, first), self.density.refer.rules(first)
        _update(self._actor, self._critic, x, rules, self.density.log_sigma, self.config.tau, first, delta, rho)
        return {"td_error": delta, "rho": rho} if self.density.known else {"td_error": delta}


@kernel
def _update(
    actor: TrainState, critic: TrainState, x: Experiences, rules: Rules, log_sigma: AnyFloats, tau: float,
    first: int, delta: AnyFloats, rho: AnyFloats,
) -> None:  # fmt: skip
    """Update the critic and actor of every member (de Bruin et al. 2018, eq. 4 to 6).

    `first` is the number, from 1, of the first update on the batch. The suffix `_tm1` means the sampled step t − 1, and
    `_t` means the next step.
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    dtype, kind = actor.network.parameters.dtype, actor.network.parameters.dtype.type
    pi, d_pi, d_mean, d_log_sigma, sigmas = np.empty((5, batch, actions), dtype)
    q_tm1, q_t, d_q = np.empty((3, batch, 1), dtype)
    nothing = np.empty((batch, 0), dtype)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        s_tm1, s_t = of_member(x.observation, row), of_member(x.next_observation, row)
        evaluate(actor.target, m, actor.tape, s_t, nothing, pi)
        evaluate(critic.target, m, critic.tape, s_t, pi, q_t)
        evaluate(critic.network, m, critic.tape, s_tm1, x.action[row], q_tm1)
        evaluate(actor.network, m, actor.tape, s_tm1, nothing, pi)
        if x.mu_mean.shape[2] > 0:  # else nothing reads rho: ReF-ER needs the densities of the behaviour
            sigmas[:] = kind(log_sigma[m])
            importance_weights(x.action[row], pi, sigmas, x.mu_mean[row], x.mu_log_sigma[row], rho[row])
        for b in range(batch):
            r_t, discount_t = outcome(x, row, b, kind)
            delta[row, b] = td_error(q_tm1[b, 0], r_t, discount_t, q_t[b, 0])
        factor = loss_factor(delta[row], x.loss)
        for b in range(batch):
            slope = loss_gradient(delta[row, b], b, batch, x.loss, factor, -2.0, x.weight[row, b], kind)
            d_q[b, 0] = slope if gives_gradient(rho[row, b], rules) else kind(0)
        differentiate(critic.network, m, critic.tape, d_q, True, nothing)
        adam_step(critic.network, m, critic.adam, step, x.rate_factor[row])

        evaluate(critic.network, m, critic.tape, s_tm1, pi, q_tm1)
        beta = rules.beta[m]
        for b in range(batch):
            used = gives_gradient(rho[row, b], rules)
            d_q[b, 0] = kind(-beta / batch) * x.actor_weight[row, b] if used else kind(0)
        differentiate(critic.network, m, critic.tape, d_q, False, d_pi)
        if rules.pull:
            divergence_gradient(pi, sigmas, x.mu_mean[row], x.mu_log_sigma[row], rules.mu_pi, d_mean, d_log_sigma)
            for b in range(batch):
                for i in range(actions):
                    d_pi[b, i] += kind((1 - beta) / batch) * d_mean[b, i]
        differentiate(actor.network, m, actor.tape, d_pi, True, nothing)
        adam_step(actor.network, m, actor.adam, step, x.rate_factor[row])

        track(critic.target, critic.network, m, tau)
        track(actor.target, actor.network, m, tau)
