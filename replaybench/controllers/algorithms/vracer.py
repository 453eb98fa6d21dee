"""V-RACER, an off-policy actor-critic that stores Retrace returns (Novati & Koumoutsakos 2019)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import AdamConfig, Batch, LearnerSetting, RecurrentConfig, Schedule
from replaybench.controllers.interface.exploration import BEHAVIOUR
from replaybench.controllers.interface.noise import Explored, PolicyDraws
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.refer import (
    Q_RET,
    TRUNCATED,
    Rules,
    StoredReturns,
    divergence,
    divergence_gradient,
    gives_gradient,
    importance_weights,
)
from replaybench.controllers.losses.temporal_difference import Experiences
from replaybench.controllers.networks.adam import adam_step, make_adam
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import PolicyHead, TrainState, differentiate, evaluate, of_member
from replaybench.data.batch import MEMORY
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Bools, Floats
from replaybench.runtime.configuration import Episodes, Positive, Widths
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True, kw_only=True)
class VRACERConfig(AdamConfig, RecurrentConfig):
    """Settings of V-RACER, chosen so that it learns the pendulum with ReF-ER.

    Novati & Koumoutsakos (2019) use 2 × 128 SoftSign units, batches of 256, γ = 0.995 and a learning rate of 1e-4. They
    train for 10⁶ steps and more. In their paper, the policy's standard deviation σ is an output of the network
    (`sigma = "network"`). In their public code, σ is a parameter (`free`), initially √0.2 (`first_sigma`). With
    `fixed`, σ keeps its initial value. With `bounded`, tanh bounds the policy's mean. Exploring actions have no bound.
    """

    hidden: Widths = (64, 64)
    activation: Literal["tanh", "softsign", "relu"] = "tanh"
    learning_rate: Positive = 1e-3
    sigma: Literal["free", "fixed", "network"] = "free"
    first_sigma: Positive = 0.2**0.5
    bounded: bool = False
    replays_per_experience: Positive = 64.0
    warmup_episodes: Episodes = 5

    @property
    def schedule(self) -> Schedule:
        """The number and time of updates. Without target networks, stored returns follow V at about the given rate."""
        return super().schedule._replace(warmup_episodes=self.warmup_episodes, target_rate=0.005)


class HeadForm(NamedTuple):
    """The rules that convert the outputs of a V-RACER network into a Gaussian policy.

    With `free`, log σ is a parameter that does not depend on the state. Otherwise, log σ is an output. With `bounded`,
    tanh bounds the mean of the policy.
    """

    free: bool
    bounded: bool


class VRACER(Learner):
    """V-RACER, with M independent networks that compute a value and a Gaussian policy.

    The outputs are V, the mean of the policy and, with `sigma = "network"`, log σ. Actions are stored without clipping,
    and importance weights ρ are those of the unclipped actions. The environment clips the actions that it applies.
    Retrace returns are stored with every step (`StoredReturns`). Without ReF-ER, the only bound on ρ is |log ρ| ≤ 7.
    """

    config: VRACERConfig
    exploration: PolicyDraws
    supports_refer = True

    def __init__(self, config: VRACERConfig, setting: LearnerSetting) -> None:
        task, a, rate = setting.task, setting.task.action_size, config.learning_rate
        outputs = 1 + 2 * a if config.sigma == "network" else 1 + a
        sizes = task.observation_size, *config.hidden, outputs
        shape = Shape(sizes, activation=config.activation, scheme="xavier", output_scale=0.1)
        super().__init__(config, setting, {"network": shape}, {"network": rate})
        self.network, self.deviation = self.networks["network"], self.free_numbers(math.log(config.first_sigma), a)
        self.networks["log_sigma"], spread_rate = self.deviation, 0.0 if config.sigma == "fixed" else rate
        self.networks.adams["log_sigma"] = make_adam(self.deviation.parameters, spread_rate, config.adam)
        self._spread = self.train_state("log_sigma", 1)
        self._policy = self.train_state("network")
        factor = self.normaliser.rewards.factor
        members, refer = len(setting.members), self.density.refer
        self.traces: StoredReturns = StoredReturns(refer, self.steps, members, task.discount, factor)
        self.first_value = FirstValue(members, task.discount)
        self.fields = {**dict.fromkeys(BEHAVIOUR, a), **self.memory.fields}
        self.metric_names = self.memory.metric_names(("kl", "far", "beta", "sigma"))

    def _heads(self, observation: AnyFloats, state: AnyFloats | None) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
        a = self.task.action_size
        outputs = self.memory.evaluate("network", self.normalised(observation), state)
        mean = elementwise.tanh(outputs[:, :, 1 : 1 + a]) if self.config.bounded else outputs[:, :, 1 : 1 + a]
        first = np.broadcast_to(self.deviation.parameters[:, None], mean.shape)
        log_sigma = first + outputs[:, :, 1 + a :] if self.config.sigma == "network" else first
        return outputs[:, :, 0], mean, log_sigma

    def perturb(self, observation: AnyFloats) -> Explored:
        value, mean, log_sigma = (head[:, 0] for head in self._heads(observation[:, None], self.memory.state))
        action = (mean + elementwise.exp(log_sigma) * self.exploration.drawn).astype(np.float32)
        extras = {"behaviour_mean": mean, "behaviour_log_sigma": log_sigma, "value": value[:, None]}
        stored = {name: array.astype(np.float32) for name, array in extras.items()}
        stored |= self.memory.remembered()
        return Explored(action, np.abs(action - mean).sum(axis=1), stored)

    def on_step(
        self, reward: Floats, successor: AnyFloats, terminated: Bools, ended: Bools, active: Bools
    ) -> Mapping[str, AnyFloats]:
        """Return the fields `truncated` and `q_ret` to store with the step. `q_ret` is used if the episode ends."""
        super().on_step(reward, successor, terminated, ended, active)
        self.first_value.update(reward, terminated, ended, active)
        return self._last_return(reward, successor, terminated, ended)

    def on_recorded_step(
        self, experience: Mapping[str, AnyFloats], ended: Bools, active: Bools
    ) -> Mapping[str, AnyFloats]:
        remembered = super().on_recorded_step(experience, np.zeros_like(ended), active)
        reward, terminated = experience["reward"][:, 0], experience["terminated"][:, 0] != 0
        self.first_value.update(reward, terminated, ended, active)
        value = self._heads(experience["observation"][:, None], self.memory.state)[0]
        last = self._last_return(reward, experience["next_observation"], terminated, ended)
        self.memory.forget(ended)
        return {"value": value, **last, **remembered}

    def _last_return(
        self, reward: np.ndarray, successor: AnyFloats, terminated: Bools, ended: Bools
    ) -> dict[str, AnyFloats]:
        truncated = ended & ~terminated
        after = self.memory.after[:, None]
        value = self._heads(successor[:, None], after)[0][:, 0] if truncated.any() else np.zeros(len(ended))
        q_ret = self.normaliser.rewards.factor * reward + self.task.discount * np.where(truncated, value, 0)
        return {"truncated": truncated[:, None].astype(np.float32), "q_ret": q_ret[:, None].astype(np.float32)}

    def policy(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        return np.clip(self._heads(observation, state)[1], -1, 1)

    def sample(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        _, mean, log_sigma = self._heads(observation, state)
        noise = self.exploration.stream.normal(mean[0].size).reshape(mean.shape)
        return np.asarray(mean + elementwise.exp(log_sigma) * noise, mean.dtype)

    def policy_head(self) -> PolicyHead:
        return PolicyHead(self.network, 1, self.task.action_size, "tanh" if self.config.bounded else "clip")

    def value(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        return self.normaliser.rewards.restored(self._heads(observation, state)[0])

    def metrics(self, stored: Mapping[str, AnyFloats]) -> Mapping[str, np.ndarray]:
        """Return the divergence `kl` from past policies, the far-policy fraction `far`, β of ReF-ER, and the mean σ."""
        pi = [np.asarray(head, np.float64) for head in self._heads(stored["observation"], stored.get(MEMORY))[1:]]
        kl = divergence(*pi, *(stored[name].astype(np.float64) for name in BEHAVIOUR))
        sigma = elementwise.exp(pi[1]).mean(axis=(1, 2))
        beta = self.density.refer.beta.copy()
        return {"kl": kl.mean(axis=1), "far": self.traces.fraction, "beta": beta, "sigma": sigma}

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        """Do one update, and return the TD errors Q_ret − V and the values from which stored returns are updated."""
        first, config = self.begin_updates(batch), self.config
        if not self.first_value.taken[0]:
            *_, bias = (array for name, array in self.network.named_weights("").items() if name.endswith("bias"))
            bias[:, 0] = self.normaliser.rewards.factor * self.first_value.take()
        delta, rho, value, bootstrap = (np.zeros(batch.weight.shape, self.setting.dtype) for _ in range(4))
        assert batch.traces is not None
        form = HeadForm(config.sigma != "network", config.bounded)
        x, rules = self.experiences(batch, first), self.density.refer.rules(first)
        _update(self._policy, self._spread, form, x, batch.traces, rules, first, delta, rho, value, bootstrap)
        return {"td_error": delta, "rho": rho, "value": value, "bootstrap": bootstrap}

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Load `weights`. The initial value V is then not estimated from rewards, because V has loaded weights."""
        super().load_weights(weights)
        self.first_value.taken[:] = True

    def _extra_state(self) -> dict[str, np.ndarray]:
        own = {"noise": self.exploration.drawn, "beta": self.density.refer.beta}
        return {**super()._extra_state(), **own, **self.first_value.state_dict(), **self.traces.state_dict()}


class FirstValue:
    """The mean discounted return of each member before the first update, which becomes the critic's initial value.

    Without this value, all advantages would have the same sign until the critic has learned a value far from 0. The
    mean V̄ is over all n steps. A reward r[j], j steps after the start of its episode, has the weight
    w[j] = 1 + γ + … + γʲ. The return after the last step of a truncated episode is taken as V̄:

        n V̄ = Σ w[j] r[j] + V̄ Σ γ w[last]

    Attributes:
        weighted: Sum Σ w r of unscaled rewards; float64, shape `[M]`.
        steps: Factor n − Σ γ w[last] of V̄ in this equation, over the episodes that have ended; float64, shape `[M]`.
        reach: Weight w of the latest step, or 0 at the start of an episode; float64, shape `[M]`.
        taken: Whether the critic already has this value, after which no rewards are collected; bool, shape `[1]`.
    """

    def __init__(self, members: int, discount: float) -> None:
        self.discount = discount
        self.weighted, self.steps, self.reach = np.zeros(members), np.zeros(members), np.zeros(members)
        self.taken = np.zeros(1, np.bool_)

    def update(self, reward: np.ndarray, terminated: Bools, ended: Bools, active: Bools) -> None:
        if self.taken[0]:
            return
        self.reach = np.where(active, 1 + self.discount * self.reach, self.reach)
        self.weighted += np.where(active, self.reach * reward, 0)
        self.steps += active - np.where(active & ended & ~terminated, self.discount * self.reach, 0)
        self.reach[active & ended] = 0

    def take(self) -> Floats:
        """Return the mean return V̄ `[M]` in units of rewards, or 0 without rewards, and stop collecting rewards."""
        self.taken[0] = True
        steps = self.steps - self.discount * self.reach  # an unfinished episode continues with V̄
        return np.divide(self.weighted, steps, out=np.zeros_like(steps), where=steps > 0)

    def state_dict(self) -> dict[str, np.ndarray]:
        return {f"first_value.{name}": getattr(self, name) for name in ("weighted", "steps", "reach", "taken")}


@kernel
def _update(
    net: TrainState, deviation: TrainState, form: HeadForm, x: Experiences, traces: AnyFloats,
    rules: Rules, step: int, delta: AnyFloats, rho: AnyFloats, value: AnyFloats, bootstrap: AnyFloats,
) -> None:  # fmt: skip
    """Do update number `step` (from 1) of every member with stored returns, and fill the last four arrays `[M, B]`."""
    batch, actions = x.action.shape[1], x.action.shape[2]
    network, kind = net.network, net.network.parameters.dtype.type
    width = 1 + actions if form.free else 1 + 2 * actions
    outputs, d_outputs = np.empty((2, batch, width), network.parameters.dtype)
    mean, log_sigma, d_mean, d_log_sigma = np.empty((4, batch, actions), outputs.dtype)
    nothing = np.empty((batch, 0), outputs.dtype)
    for m in range(x.action.shape[0]):
        beta, truncated = rules.beta[m], traces[m, :, TRUNCATED] > 0
        if truncated.any():  # in few batches
            evaluate(network, m, net.tape, of_member(x.next_observation, m), nothing, outputs)
            bootstrap[m] = np.where(truncated, outputs[:, 0], 0)
        evaluate(network, m, net.tape, of_member(x.observation, m), nothing, outputs)
        read_policy(outputs, deviation.network.parameters[m], form, mean, log_sigma)
        importance_weights(x.action[m], mean, log_sigma, x.mu_mean[m], x.mu_log_sigma[m], rho[m])
        for b in range(batch):
            value[m, b] = outputs[b, 0]
            delta[m, b] = traces[m, b, Q_RET] - value[m, b]
        if rules.pull:
            divergence_gradient(mean, log_sigma, x.mu_mean[m], x.mu_log_sigma[m], rules.mu_pi, d_mean, d_log_sigma)
        else:
            d_mean[:], d_log_sigma[:] = 0, 0
        policy_gradient(
            x.action[m], mean, log_sigma, rho[m], delta[m], x.actor_weight[m], rules, beta, d_mean, d_log_sigma
        )
        value_gradient(rho[m], delta[m], x.weight[m], rules, beta, d_outputs[:, 0])
        spread = deviation.network.gradient[m]
        spread[:] = 0
        for b in range(batch):
            for i in range(actions):
                inner = kind(1) - mean[b, i] * mean[b, i] if form.bounded else kind(1)
                d_outputs[b, 1 + i] = d_mean[b, i] * inner
                if form.free:
                    spread[i] += d_log_sigma[b, i]
                else:
                    d_outputs[b, 1 + actions + i] = d_log_sigma[b, i]
        differentiate(network, m, net.tape, d_outputs, True, nothing)
        adam_step(network, m, net.adam, step, x.rate_factor[m])
        if form.free:
            adam_step(deviation.network, m, deviation.adam, step, x.rate_factor[m])


@kernel
def policy_gradient(
    action: AnyFloats, mean: AnyFloats, log_sigma: AnyFloats, rho: AnyFloats, advantage: AnyFloats, weight: AnyFloats,
    rules: Rules, beta: float, d_mean: AnyFloats, d_log_sigma: AnyFloats,
) -> None:  # fmt: skip
    """Write the gradient of V-RACER's policy loss with ReF-ER (Novati & Koumoutsakos 2019, eq. 5 and 10).

    On entry, `d_mean` and `d_log_sigma` `[B, A]` contain the gradients of the divergence D_KL with respect to mean and
    log σ at B samples. The gradients of the loss replace them. The loss is the mean of −β w ρ A log π(a|s) over the
    batch, with ρ held fixed, plus (1 − β) D_KL. Here, A is `advantage` and w is `weight`. With Rule 1 of ReF-ER, the
    first term is 0 for samples whose ρ is outside (1/c_max, c_max).
    """
    batch = action.shape[0]
    kind = mean.dtype.type
    one = kind(1)
    attraction = kind((1 - beta) / batch)
    for b in range(batch):
        used = gives_gradient(rho[b], rules)
        limited = kind(rules.limit) if rho[b] > rules.limit else rho[b]
        factor = kind(beta / batch) * weight[b] * advantage[b] * limited if used else kind(0)
        for i in range(action.shape[1]):
            inverse = np.exp(-log_sigma[b, i])
            z = (action[b, i] - mean[b, i]) * inverse
            d_mean[b, i] = attraction * d_mean[b, i] - factor * z * inverse
            d_log_sigma[b, i] = attraction * d_log_sigma[b, i] - factor * (z * z - one)


@kernel
def value_gradient(
    rho: AnyFloats, advantage: AnyFloats, weight: AnyFloats, rules: Rules, beta: float, d_value: AnyFloats
) -> None:
    """Write the gradient of V-RACER's value loss with respect to V `[B]` (Novati & Koumoutsakos 2019, eq. 9 and 10).

    The loss is the mean of ½ β w (V − V_tbc)² over B samples. The target V_tbc = V + min(1, ρ) A is held fixed. A is
    `advantage`, and w is `weight`. With Rule 1 of ReF-ER, the terms with ρ outside (1/c_max, c_max) are 0.
    """
    batch = rho.size
    kind = rho.dtype.type
    for b in range(batch):
        used = gives_gradient(rho[b], rules)
        kept = kind(1) if rho[b] > 1 else rho[b]
        d_value[b] = kind(-beta / batch) * weight[b] * kept * advantage[b] if used else kind(0)


@kernel
def read_policy(outputs: AnyFloats, first: AnyFloats, form: HeadForm, mean: AnyFloats, log_sigma: AnyFloats) -> None:
    """Write mean and log σ `[B, A]` of the policy, given the network's outputs for B samples.

    `first` `[A]` is log σ itself if `form.free` is true. Otherwise, it is added to the outputs for log σ.
    """
    actions = mean.shape[1]
    for b in range(mean.shape[0]):
        for i in range(actions):
            mean[b, i] = np.tanh(outputs[b, 1 + i]) if form.bounded else outputs[b, 1 + i]
            log_sigma[b, i] = first[i] if form.free else first[i] + outputs[b, 1 + actions + i]
