"""Soft actor-critic (SAC) in the version of Haarnoja et al. (2018a) and in that of Haarnoja et al. (2018b)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import AdamConfig, Batch, LearnerSetting, Schedule
from replaybench.controllers.interface.noise import Explored, PolicyDraws, RandomActions
from replaybench.controllers.learner import Learner
from replaybench.controllers.losses.temporal_difference import Experiences, targets
from replaybench.controllers.losses.twin_critics import Twins, fit_twins, lesser_gradient, lesser_value, twin_workspace
from replaybench.controllers.networks.adam import Adam, adam_step, make_adam, track
from replaybench.controllers.networks.mlp import Network, Shape
from replaybench.controllers.networks.network import PolicyHead, TrainState, differentiate, evaluate
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Bools, Floats
from replaybench.runtime.configuration import Episodes, Number, Positive, Share, Widths
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_normal


@dataclass(frozen=True, kw_only=True)
class SACConfig(AdamConfig):
    """Settings of SAC, with larger learning rates and smaller networks and batches than in the papers.

    The papers use learning rates of 3e-4, 256-256 units and batches of 256. With these values, SAC learns slowly on the
    plants of this package. With `version = "first"`, a value network with a target network gives the critics' targets
    (Haarnoja et al. 2018a). `temperature` is the weight α of the entropy. None means that α is learned, with the
    initial value `first_temperature` and the target entropy −A for A action dimensions. The first version needs a fixed
    temperature. Studies of replay that use this version have 0.2, in units of the scaled reward. In the first
    `warmup_episodes` episodes (iterations, if updates follow a fixed number of steps), actions are uniformly random and
    nothing is learned.
    """

    version: Literal["present", "first"] = "present"
    actor_hidden: Widths = (64, 64)
    critic_hidden: Widths = (64, 64)
    actor_rate: Positive = 1e-3
    critic_rate: Positive = 1e-3
    temperature_rate: Positive = 1e-3
    tau: Share = 0.005
    temperature: Positive | None = None
    first_temperature: Positive = 1.0
    n_step: Number = 1
    warmup_episodes: Episodes = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version == "first" and self.temperature is None:
            raise UserError('SAC: version = "first" has a fixed temperature; set it, e.g. temperature = 0.2')

    @property
    def schedule(self) -> Schedule:
        return super().schedule._replace(n_step=self.n_step, warmup_episodes=self.warmup_episodes, target_rate=self.tau)


class SAC(Learner):
    """Soft actor-critic, with M independent stochastic actors and twin critics.

    The version of Haarnoja et al. (2018a) also has a value network. No exploration noise is added to the policy's
    random actions.
    """

    config: SACConfig
    exploration: PolicyDraws
    supports_chunks = True
    supports_losses = True
    metric_names: tuple[str, ...] = ("temperature",)

    def __init__(self, config: SACConfig, setting: LearnerSetting) -> None:
        s, a = setting.task.observation_size, setting.task.action_size
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=0)
        shapes = {"actor": Shape((s, *config.actor_hidden, 2 * a)), "critic1": critic, "critic2": critic}
        if config.version == "first":
            shapes["value"] = Shape((s, *config.critic_hidden, 1))
        rates = {"actor": config.actor_rate, **dict.fromkeys(("critic1", "critic2", "value"), config.critic_rate)}
        targets = ["value"] if "value" in shapes else ["critic1", "critic2"]
        super().__init__(config, setting, shapes, rates, targets)
        self.actor = self.networks["actor"]
        self.log_temperature = self.free_numbers(math.log(config.temperature or config.first_temperature))
        temperature = make_adam(self.log_temperature.parameters, config.temperature_rate, config.adam)
        self.networks.adams["temperature"] = temperature
        self.random_actions, self.update_stream = RandomActions(setting), setting.stream("update")
        self._states = {name: self.train_state(name) for name in shapes}

    def _advance(self, observation: AnyFloats, active: Bools) -> None:
        if self.warming_up:
            self.random_actions.advance(observation, active)
        else:
            super()._advance(observation, active)

    def perturb(self, observation: AnyFloats) -> Explored:
        if self.warming_up:
            return self.random_actions.explored(self.act(observation))
        explored = self._tried(observation[:, None], self.exploration.drawn[:, None])
        return Explored(explored.action[:, 0], explored.deviation[:, 0])

    def policy(self, observation: AnyFloats) -> AnyFloats:
        return self._greedy(self.normalised(observation))

    def _greedy(self, normalised: AnyFloats) -> AnyFloats:
        return elementwise.tanh(self.actor(normalised)[..., : self.task.action_size])

    def sample(self, observation: AnyFloats, state: AnyFloats | None = None) -> AnyFloats:
        members, count, _ = observation.shape
        noise = self.exploration.stream.normal(count * self.task.action_size).reshape(members, count, -1)
        return self._tried(observation, noise).action

    def _tried(self, observation: AnyFloats, noise: AnyFloats) -> Explored:
        mean, log_std = np.split(self.actor(self.normalised(observation)), 2, axis=2)
        spread = elementwise.exp(np.clip(log_std, *LOG_STD_BOUNDS))
        action = elementwise.tanh(mean + spread * noise).astype(np.float32)
        return Explored(action, np.abs(action - elementwise.tanh(mean)).sum(axis=2, dtype=np.float32))

    def policy_head(self) -> PolicyHead:
        return PolicyHead(self.actor, 0, self.task.action_size, "tanh")

    def value(self, observation: AnyFloats) -> AnyFloats:
        normalised = self.normalised(observation)
        action = self._greedy(normalised)
        both = (self.networks[name](normalised, action)[:, :, 0] for name in ("critic1", "critic2"))
        return self.normaliser.rewards.restored(np.minimum(*both))

    def value_bonus(self) -> Floats:
        """Return the largest entropy bonus, α A ln 2 `[M]`, which is that of the uniform policy on [−1, 1]^A."""
        alpha = elementwise.exp(self.log_temperature.parameters.astype(np.float64))
        return self.normaliser.rewards.restored(alpha * self.task.action_size * math.log(2.0))[:, 0]

    def metrics(self, stored: Mapping[str, AnyFloats]) -> Mapping[str, np.ndarray]:
        return {"temperature": elementwise.exp(self.log_temperature.parameters[:, 0])}

    def weights(self) -> dict[str, NDArray[np.generic]]:
        """Return all weights by name, where the actor has separate last layers for the outputs μ and log σ."""
        named, actions = super().weights(), self.task.action_size
        last = len(self.config.actor_hidden)
        for part in ("weight", "bias"):
            both = named[f"actor.{last}.{part}"]
            named[f"actor.{last}.{part}"], named[f"log_std.{part}"] = both[..., :actions], both[..., actions:]
        return named

    def update(self, batch: Batch) -> dict[str, AnyFloats]:
        first, delta = self.begin_updates(batch), self.empty_per_sample(batch)
        states, config = self._states, self.config
        actor, critics, x = states["actor"], (states["critic1"], states["critic2"]), self.experiences(batch, first)
        stream = self.update_stream.state
        if config.version == "first":
            value, alpha = states["value"], config.temperature or 0.0  # settings without a temperature are refused
            _update_first(actor, critics, value, x, config.tau, alpha, stream, first, delta)
        else:
            temperature = (self.log_temperature.network, self.networks.adams["temperature"], config.temperature is None)
            entropy = -float(self.task.action_size)
            _update(actor, critics, *temperature, x, config.tau, entropy, stream, first, delta)
        return {"td_error": delta}

    def _extra_state(self) -> dict[str, np.ndarray]:
        return {
            **super()._extra_state(),
            "log_temperature": self.log_temperature.parameters,
            "update_stream": self.update_stream.state,
            "warm_up_stream": self.random_actions.stream.state,
        }


LOG_STD_BOUNDS = (-20.0, 2.0)
_LOWEST, _HIGHEST = LOG_STD_BOUNDS
_SOFTENING = 1e-6
_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


@kernel
def draw_normals(stream: NDArray[np.uint64], noise: AnyFloats) -> None:
    """Fill `noise` with standard normal numbers from one random stream."""
    for b in range(noise.shape[0]):
        for a in range(noise.shape[1]):
            noise[b, a] = next_normal(stream)


@kernel
def sample(head: AnyFloats, noise: AnyFloats, action: AnyFloats, log_prob: AnyFloats) -> None:
    """Write actions a = tanh(μ + σ ε) `[B, A]` and log π(a) `[B]` for B samples.

    `head` `[B, 2A]` contains the actor's outputs μ and log σ, and `noise` `[B, A]` contains ε.
    """
    actions = noise.shape[1]
    kind = head.dtype.type
    for b in range(noise.shape[0]):
        total = kind(0)
        for a in range(actions):
            log_std = np.minimum(np.maximum(head[b, actions + a], kind(_LOWEST)), kind(_HIGHEST))
            squashed = np.tanh(head[b, a] + np.exp(log_std) * noise[b, a])
            correction = np.log(kind(1) - squashed * squashed + kind(_SOFTENING))
            total -= kind(0.5) * noise[b, a] * noise[b, a] + log_std + kind(_LOG_ROOT_2PI) + correction
            action[b, a] = squashed
        log_prob[b] = total


@kernel
def differentiate_sample(
    head: AnyFloats, noise: AnyFloats, action: AnyFloats, d_action: AnyFloats, d_log_prob: AnyFloats, d_head: AnyFloats
) -> None:
    """Propagate the gradient of a loss L from sampled actions to the actor's outputs μ and log σ, `head` `[B, 2A]`.

    `sample` has drawn the actions a = tanh(x) with x = μ + σ ε. `d_action` `[B, A]` is ∂L/∂a at fixed log π, and
    `d_log_prob` `[B]` is ∂L/∂(log π). The derivatives are ∂log π/∂x = 2 a (1 − a²) / (1 − a² + 10⁻⁶), ∂log π/∂(log σ) =
    −1 at fixed x, and ∂x/∂(log σ) = σ ε. If log σ is clamped, the gradient with respect to log σ is zero.
    """
    actions = noise.shape[1]
    kind = head.dtype.type
    for b in range(noise.shape[0]):
        for a in range(actions):
            slope = kind(1) - action[b, a] * action[b, a]
            by_squashing = kind(2) * action[b, a] * slope / (slope + kind(_SOFTENING))
            d_x = d_action[b, a] * slope + d_log_prob[b] * by_squashing
            log_std = head[b, actions + a]
            d_head[b, a] = d_x
            clamped = log_std < kind(_LOWEST) or log_std > kind(_HIGHEST)
            d_head[b, actions + a] = kind(0) if clamped else d_x * np.exp(log_std) * noise[b, a] - d_log_prob[b]


@kernel
def temper(
    log_temperature: Network, m: int, adam: Adam, log_prob: AnyFloats, weight: AnyFloats, step: int, rate_factor: float,
    target_entropy: float,
) -> None:  # fmt: skip
    """Do one step of Adam on the logarithm of the m-th learner's temperature α (Haarnoja et al. 2018b, eq. 18).

    The loss is −log α · mean_b w_b (log π(a_b|s_b) + H̄), with the sample weights w and the target entropy H̄.
    """
    total = 0.0
    for b in range(log_prob.size):
        total += weight[b] * (log_prob[b] + target_entropy)
    log_temperature.gradient[m, 0] = -total / log_prob.size
    adam_step(log_temperature, m, adam, step, rate_factor)


@kernel
def _update(
    actor: TrainState, critics: Twins, log_temperature: Network, temperature_adam: Adam, automatic: bool,
    x: Experiences, tau: float, target_entropy: float, stream: NDArray[np.uint64], first: int, delta: AnyFloats,
) -> None:  # fmt: skip
    """Update the networks of every member by Algorithm 1 of Haarnoja et al. (2018b).

    `first` is the number, from 1, of the first update on the batch. |δ| is written to `delta`, as in `fit_twins`.
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    workspace = twin_workspace(critics, batch, actions)
    dtype, kind = workspace.q.dtype, workspace.q.dtype.type
    pi, noise = np.empty((2, batch, actions), dtype)
    head, d_head = np.empty((2, batch, 2 * actions), dtype)
    log_prob, d_log_prob = np.empty((2, batch), dtype)
    y, nothing = np.empty((batch, 1), dtype), np.empty((batch, 0), dtype)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        alpha = np.exp(log_temperature.parameters[m, 0])

        evaluate(actor.network, m, actor.tape, x.next_observation[row], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_value((critics[0].target, critics[1].target), m, workspace, x.next_observation[row], pi)
        for b in range(batch):
            workspace.q[b, 0] -= alpha * log_prob[b]
        targets(x, row, workspace.q, y)
        fit_twins(critics, m, workspace, x, row, y, 0.5, step, delta[row])

        evaluate(actor.network, m, actor.tape, x.observation[row], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_gradient(critics, m, workspace, x.observation[row], pi)
        for b in range(batch):
            share = kind(1 / batch) * x.actor_weight[row, b]
            d_log_prob[b] = alpha * share
            for a in range(actions):
                workspace.d_action[b, a] *= -share
        differentiate_sample(head, noise, pi, workspace.d_action, d_log_prob, d_head)
        differentiate(actor.network, m, actor.tape, d_head, True, nothing)
        adam_step(actor.network, m, actor.adam, step, x.rate_factor[row])
        if automatic:
            weight, rate = x.actor_weight[row], x.rate_factor[row]
            temper(log_temperature, m, temperature_adam, log_prob, weight, step, rate, target_entropy)
        for i in range(2):
            track(critics[i].target, critics[i].network, m, tau)


@kernel
def _update_first(
    actor: TrainState, critics: Twins, value: TrainState, x: Experiences, tau: float, temperature: float,
    stream: NDArray[np.uint64], first: int, delta: AnyFloats,
) -> None:  # fmt: skip
    """Update the networks of every member by Algorithm 1 of Haarnoja et al. (2018a).

    `first` is the number, from 1, of the first update on the batch. The losses are those of equations 5 (value),
    7 (critics) and 12 (policy). In equations 5 and 12, the value of an action is the smaller value of the two critics.
    All gradients are computed with the weights before the update. The paper scales rewards, whereas here the
    temperature scales the entropy. Wang & Ross (2019) and Sun et al. (2020) test replay strategies with this version.
    Sample weights for the critics alone do not apply to the value network.
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    workspace = twin_workspace(critics, batch, actions)
    dtype, kind = workspace.q.dtype, workspace.q.dtype.type
    alpha = kind(temperature)
    pi, noise = np.empty((2, batch, actions), dtype)
    head, d_head = np.empty((2, batch, 2 * actions), dtype)
    log_prob, d_log_prob = np.empty((2, batch), dtype)
    (y, v, d_v), nothing = np.empty((3, batch, 1), dtype), np.empty((batch, 0), dtype)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        evaluate(actor.network, m, actor.tape, x.observation[row], nothing, head)
        draw_normals(stream[m], noise)
        sample(head, noise, pi, log_prob)
        lesser_gradient(critics, m, workspace, x.observation[row], pi)

        evaluate(value.network, m, value.tape, x.observation[row], nothing, v)
        for b in range(batch):
            soft = workspace.q[b, 0] - alpha * log_prob[b]
            share = kind(1 / batch) * x.actor_weight[row, b]
            d_v[b, 0] = share * (v[b, 0] - soft)
            d_log_prob[b] = alpha * share
            for a in range(actions):
                workspace.d_action[b, a] *= -share
        differentiate(value.network, m, value.tape, d_v, True, nothing)
        differentiate_sample(head, noise, pi, workspace.d_action, d_log_prob, d_head)
        differentiate(actor.network, m, actor.tape, d_head, True, nothing)

        evaluate(value.target, m, value.tape, x.next_observation[row], nothing, v)
        targets(x, row, v, y)
        fit_twins(critics, m, workspace, x, row, y, 0.5, step, delta[row])
        adam_step(value.network, m, value.adam, step, x.rate_factor[row])
        adam_step(actor.network, m, actor.adam, step, x.rate_factor[row])
        track(value.target, value.network, m, tau)
