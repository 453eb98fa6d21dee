"""Q-learning with normalised advantage functions (Gu et al. 2016; Novati & Koumoutsakos 2019, section 2)."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from replaybench.controllers.interface.agent import AdamConfig, Batch, LearnerSetting, RecurrentConfig, Schedule
from replaybench.controllers.interface.exploration import DeterministicConfig, GaussianNoise, ProcessNoise
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.refer import Rules, divergence_gradient, gives_gradient, importance_weights
from replaybench.controllers.losses.temporal_difference import Experiences, outcome, td_error
from replaybench.controllers.networks.adam import adam_step, track
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import PolicyHead, TrainState, differentiate, evaluate, of_member
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.configuration import Positive, Share, Widths
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True, kw_only=True)
class NAFConfig(AdamConfig, DeterministicConfig, RecurrentConfig):
    """Settings of NAF (normalised advantage functions), chosen so that it learns the pendulum.

    Novati & Koumoutsakos (2019) use 2 × 128 units, batches of 256, one update per step and a learning rate of 1e-4.
    They train for a thousand times as many steps. Their paper prints the advantage −‖Lᵀ(a − m)‖² without the factor ½
    of their code and of Gu et al. (2016). `half` includes this factor. The function `diagonal` makes the diagonal of
    the triangular matrix L positive, by exp (Gu et al. 2016) or softplus. With `bounded`, tanh bounds the best action
    m. Otherwise, the policy is clipped to ±1.
    """

    hidden: Widths = (64, 64)
    learning_rate: Positive = 1e-3
    half: bool = True
    bounded: bool = True
    diagonal: Literal["exp", "softplus"] = "exp"
    tau: Share = 0.01
    exploration: ProcessNoise | GaussianNoise = field(default_factory=ProcessNoise)

    @property
    def schedule(self) -> Schedule:
        return super().schedule._replace(target_rate=self.tau)


class NAF(Learner):
    """Normalised advantage functions, with M independent networks and their target networks.

    The outputs are the value V, the best action m and the triangular matrix L. The advantage of an action a is
    −c ‖Lᵀ(a − m)‖², where c is ½ or 1. ReF-ER (Novati & Koumoutsakos 2019) requires Gaussian exploration.
    """

    config: NAFConfig
    supports_chunks = True
    supports_refer = True

    def __init__(self, config: NAFConfig, setting: LearnerSetting) -> None:
        task = setting.task
        shapes = {"network": Shape((task.observation_size, *config.hidden, output_size(task.action_size)))}
        super().__init__(config, setting, shapes, {"network": config.learning_rate}, targets=shapes)
        self.network = self.networks["network"]
        self.form = AdvantageForm(0.5 if config.half else 1.0, config.bounded, config.diagonal == "softplus")
        self._state = self.train_state("network")

    def mean(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        mean = self.memory.evaluate("network", self.normalised(observation), state)[:, :, 1 : 1 + self.task.action_size]
        return elementwise.tanh(mean) if self.config.bounded else mean

    def policy(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        return np.clip(self.mean(observation, state), -1, 1)

    def policy_head(self) -> PolicyHead:
        return PolicyHead(self.network, 1, self.task.action_size, "tanh" if self.config.bounded else "clip")

    def value(self, observation: AnyFloats) -> AnyFloats:
        return self.normaliser.rewards.restored(self.network(self.normalised(observation))[:, :, 0])

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        first, delta, rho = self.begin_updates(batch), self.empty_per_sample(batch), self.empty_per_sample(batch)
        x, rules = self.experiences(batch, first), self.density.refer.rules(first)
        _update(self._state, self.form, x, rules, self.density.log_sigma, self.config.tau, first, delta, rho)
        return {"td_error": delta, "rho": rho} if self.density.known else {"td_error": delta}


class AdvantageForm(NamedTuple):
    """The rules that convert the outputs of a NAF network into action values Q(s, a) = V − c ‖Lᵀ(a − m)‖².

    With `bounded`, the best action m is tanh of its output. The diagonal of the triangular matrix L is softplus of its
    output with `softplus`, otherwise exp.
    """

    c: float
    bounded: bool
    softplus: bool


def output_size(actions: int) -> int:
    """Return the number of outputs, which are the value V, the best action m and the triangular matrix L of NAF."""
    return 1 + actions + actions * (actions + 1) // 2


@kernel
def means(outputs: AnyFloats, form: AdvantageForm, mean: AnyFloats) -> None:
    """Write the best actions of B samples to `mean` `[B, A]`, given the `outputs` of the NAF network."""
    for b in range(mean.shape[0]):
        for i in range(mean.shape[1]):
            mean[b, i] = np.tanh(outputs[b, 1 + i]) if form.bounded else outputs[b, 1 + i]


@kernel
def action_values(
    outputs: AnyFloats, action: AnyFloats, mean: AnyFloats, form: AdvantageForm, q: AnyFloats, d_q: AnyFloats
) -> None:
    """Write the action values Q(s, a) of B samples to `q` `[B]`, and their gradient with respect to `outputs` to `d_q`.

    NAF computes Q = V − c ‖u‖² with u = Lᵀe and e = a − m. `mean` `[B, A]` contains the best actions m. The gradients
    are ∂Q/∂L_ij = −2c e_i u_j and ∂Q/∂m = 2c L u.
    """
    batch, actions = action.shape
    kind = outputs.dtype.type
    one, c2 = kind(1), kind(2 * form.c)
    u = np.empty(actions, outputs.dtype)
    for b in range(batch):
        u[:] = 0
        entry = 1 + actions
        for i in range(actions):
            e = action[b, i] - mean[b, i]
            for j in range(i):
                u[j] += outputs[b, entry] * e
                entry += 1
            u[i] += _positive(outputs[b, entry], form.softplus) * e
            entry += 1
        advantage = kind(0)
        for j in range(actions):
            advantage -= u[j] * u[j]
        q[b] = outputs[b, 0] + kind(form.c) * advantage
        d_q[b, 0] = one
        entry = 1 + actions
        for i in range(actions):
            e = action[b, i] - mean[b, i]
            pulled = kind(0)
            for j in range(i):
                pulled += outputs[b, entry] * u[j]
                d_q[b, entry] = -c2 * e * u[j]
                entry += 1
            diagonal = _positive(outputs[b, entry], form.softplus)
            slope = one - np.exp(-diagonal) if form.softplus else diagonal
            d_q[b, entry] = -c2 * e * u[i] * slope
            entry += 1
            inner = one - mean[b, i] * mean[b, i] if form.bounded else one
            d_q[b, 1 + i] = c2 * (pulled + diagonal * u[i]) * inner


@kernel
def _positive(x: float, softplus: bool) -> Any:
    """Return exp(x) or, with `softplus`, y = log(1 + exp(x)); the slope of y is 1 − exp(−y)."""
    if softplus:
        return np.log1p(np.exp(-np.abs(x))) + (x if x > 0 else x - x)
    return np.exp(x)


@kernel
def _update(
    net: TrainState, form: AdvantageForm, x: Experiences, rules: Rules, log_sigma: AnyFloats, tau: float, first: int,
    delta: AnyFloats, rho: AnyFloats,
) -> None:  # fmt: skip
    """Update the NAF network of every member, where `first` is the number, from 1, of the first update on the batch.

    The loss is ½ δ², for the TD error δ. With Rule 2 of ReF-ER, the loss has the weight β, and the divergence from the
    behaviour has the weight 1 − β (Novati & Koumoutsakos 2019, eq. 10).
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    dtype, kind = net.network.parameters.dtype, net.network.parameters.dtype.type
    width = 1 + actions + actions * (actions + 1) // 2
    outputs, next_outputs, d_outputs = np.empty((3, batch, width), dtype)
    mean, sigmas, d_mean, d_log_sigma = np.empty((4, batch, actions), dtype)
    q_tm1, nothing = np.empty(batch, dtype), np.empty((batch, 0), dtype)
    known = x.mu_mean.shape[2] > 0
    updates = x.action.shape[0] // net.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        evaluate(net.target, m, net.tape, of_member(x.next_observation, row), nothing, next_outputs)
        evaluate(net.network, m, net.tape, of_member(x.observation, row), nothing, outputs)
        means(outputs, form, mean)
        action_values(outputs, x.action[row], mean, form, q_tm1, d_outputs)
        if known:
            sigmas[:] = kind(log_sigma[m])
            importance_weights(x.action[row], mean, sigmas, x.mu_mean[row], x.mu_log_sigma[row], rho[row])
            divergence_gradient(mean, sigmas, x.mu_mean[row], x.mu_log_sigma[row], rules.mu_pi, d_mean, d_log_sigma)
        beta = rules.beta[m]
        for b in range(batch):
            r_t, discount_t = outcome(x, row, b, kind)
            delta[row, b] = td_error(q_tm1[b], r_t, discount_t, next_outputs[b, 0])
            used = gives_gradient(rho[row, b], rules)
            factor = kind(-beta / batch) * x.weight[row, b] * delta[row, b] if used else kind(0)
            for k in range(outputs.shape[1]):
                d_outputs[b, k] *= factor
            if rules.pull:
                for i in range(actions):
                    inner = kind(1) - mean[b, i] * mean[b, i] if form.bounded else kind(1)
                    d_outputs[b, 1 + i] += kind((1 - beta) / batch) * d_mean[b, i] * inner
        differentiate(net.network, m, net.tape, d_outputs, True, nothing)
        adam_step(net.network, m, net.adam, step, x.rate_factor[row])
        track(net.target, net.network, m, tau)
