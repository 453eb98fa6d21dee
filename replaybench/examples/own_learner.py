"""A learner of your own: an actor-critic with target networks, `examples/own_learner.py:ActorCritic`.

The critic Q moves towards r_t + discount_t Q′(s_t, π′(s_t)) with the target networks Q′ and π′. The actor π moves up
the gradient of Q(s, π(s)). This is DDPG (Lillicrap et al., 2016) in its plainest form. One compiled loop updates all
members, which are independent learners.
"""

from dataclasses import dataclass

import numpy as np

from replaybench.extend import (
    AnyFloats,
    Batch,
    DeterministicConfig,
    Experiences,
    Learner,
    LearnerSetting,
    Number,
    PolicyHead,
    Positive,
    Schedule,
    Shape,
    Share,
    TrainState,
    Widths,
    adam_step,
    differentiate,
    evaluate,
    kernel,
    outcome,
    td_error,
    track,
)


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(DeterministicConfig):
    """The settings of `ActorCritic`, whose types have bounds.

    Studies change them in the table `[learner."examples/own_learner.py:ActorCritic"]`.
    """

    hidden: Widths = (50, 50, 20)
    actor_rate: Positive = 1e-4
    critic_rate: Positive = 1e-3
    tau: Share = 0.01
    batch_size: Number = 16
    replays_per_experience: Positive = 8.0

    @property
    def schedule(self) -> Schedule:
        """The number of updates, and the rate τ at which targets follow."""
        return super().schedule._replace(target_rate=self.tau)


class ActorCritic(Learner):
    """A population of M independent actors and critics with target networks."""

    config: ActorCriticConfig

    def __init__(self, config: ActorCriticConfig, setting: LearnerSetting) -> None:
        s, a = setting.task.observation_size, setting.task.action_size
        shapes = {
            "actor": Shape((s, *config.hidden, a), tanh=True),
            "critic": Shape((s, *config.hidden, 1), actions=a, inject=1),  # actions join the second layer
        }
        rates = {"actor": config.actor_rate, "critic": config.critic_rate}
        super().__init__(config, setting, shapes, rates, targets=["actor", "critic"])
        self.actor, self.critic = self.networks.values()
        self._actor, self._critic = self.train_state("actor"), self.train_state("critic")

    def policy(self, observation: AnyFloats) -> AnyFloats:
        """Return the actions π(s) `[M, N, A]` for N observations of each member, `[M, N, S]`."""
        return self.actor(self.normalised(observation))

    def policy_head(self) -> PolicyHead:
        """Return which outputs of the actor are the actions, for exported policies."""
        return PolicyHead(self.actor, 0, self.task.action_size)

    def value(self, observation: AnyFloats) -> AnyFloats:
        """Return Q(s, π(s)) `[M, N]` for N observations of each member, `[M, N, S]`, for figures."""
        normalised = self.normalised(observation)
        return self.normaliser.rewards.restored(self.critic(normalised, self.actor(normalised))[:, :, 0])

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        """Update every actor and critic once, and return the TD errors `[M, B]`, on which sampling may depend."""
        self.steps += 1
        delta = self.empty_per_sample(batch)
        _update(self._actor, self._critic, self.experiences(batch), self.config.tau, int(self.steps[0]), delta)
        return {"td_error": delta}


@kernel
def _update(actor: TrainState, critic: TrainState, x: Experiences, tau: float, step: int, delta: AnyFloats) -> None:
    """Update the networks of every member m, from its own samples alone."""
    batch, actions = x.action.shape[1], x.action.shape[2]
    dtype, kind = actor.network.parameters.dtype, actor.network.parameters.dtype.type
    pi, d_pi = np.empty((2, batch, actions), dtype)
    q_tm1, q_t, d_q = np.empty((3, batch, 1), dtype)
    nothing = np.empty((batch, 0), dtype)
    for m in range(x.action.shape[0]):
        s_tm1, s_t = x.observation[m], x.next_observation[m]
        evaluate(actor.target, m, actor.tape, s_t, nothing, pi)
        evaluate(critic.target, m, critic.tape, s_t, pi, q_t)
        evaluate(critic.network, m, critic.tape, s_tm1, x.action[m], q_tm1)
        for b in range(batch):
            r_t, discount_t = outcome(x, m, b, kind)
            delta[m, b] = td_error(q_tm1[b, 0], r_t, discount_t, q_t[b, 0])
            d_q[b, 0] = kind(-2 / batch) * x.weight[m, b] * delta[m, b]
        differentiate(critic.network, m, critic.tape, d_q, True, nothing)
        adam_step(critic.network, m, critic.adam, step, x.rate_factor[m])

        evaluate(actor.network, m, actor.tape, s_tm1, nothing, pi)
        evaluate(critic.network, m, critic.tape, s_tm1, pi, q_tm1)
        for b in range(batch):
            d_q[b, 0] = kind(-1 / batch) * x.actor_weight[m, b]
        differentiate(critic.network, m, critic.tape, d_q, False, d_pi)
        differentiate(actor.network, m, actor.tape, d_pi, True, nothing)
        adam_step(actor.network, m, actor.adam, step, x.rate_factor[m])
        track(critic.target, critic.network, m, tau)
        track(actor.target, actor.network, m, tau)
