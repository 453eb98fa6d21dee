"""Q-learning with normalised advantage functions for a population (Gu et al. 2016; Novati & Koumoutsakos 2019, 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.agent import Actions, Batch, Task
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.exploration.forms import make_exploration
from replaybench.controllers.exploration.gaussian_noise import GaussianNoise
from replaybench.controllers.exploration.process_noise import Explored, ProcessNoise
from replaybench.controllers.losses.gaussian import divergence_gradient, importance_weights
from replaybench.controllers.losses.quadratic_advantage import Form, action_values, means, output_size
from replaybench.controllers.memory.config import MemoryConfig
from replaybench.controllers.memory.learner import RememberingLearner
from replaybench.controllers.memory.memory import FIELD, Memory, feed_forward, make_network
from replaybench.controllers.networks.adam import Adam, adam_step, make_adam, track
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, Shape
from replaybench.controllers.networks.network import (
    AnyTape,
    Approximator,
    Inputs,
    differentiate,
    evaluate,
    of_member,
    outputs_of,
)
from replaybench.controllers.normaliser import NormaliseConfig, Normaliser
from replaybench.controllers.refer.density import Density, need_density
from replaybench.controllers.refer.rules import Rules, Settings, near_policy
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream


@dataclass(frozen=True, kw_only=True)
class NAFConfig:
    """Settings that learn on the pendulum.

    The paper has 2 × 128 units, batches of 256, one update per step and a rate of 1e-4, for a thousand times as many
    steps. It prints the quadratic form without the ½ that the authors' public code and Gu et al. (2016) have (`half`);
    L's diagonal is made positive by exp (Gu et al.) or by softplus. Where the mean is not `bounded` by tanh, the policy
    is clipped to what the plant takes.
    """

    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    half: bool = True
    bounded: bool = True
    diagonal: Literal["exp", "softplus"] = "exp"
    tau: float = 0.01
    batch_size: int = 64
    replays_per_experience: float = 32.0
    exploration: ProcessNoise | GaussianNoise = field(default_factory=ProcessNoise)
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)
    memory: MemoryConfig | None = None

    def __post_init__(self) -> None:
        positive("NAF", learning_rate=self.learning_rate, epsilon=self.epsilon)
        positive("NAF", replays_per_experience=self.replays_per_experience)
        between("NAF", 0, 1, tau=self.tau)
        betas("NAF", self.betas)
        counts("NAF", batch_size=self.batch_size)
        widths("NAF", hidden=self.hidden)


class NAF(RememberingLearner):
    """M independent networks, each with a slow copy: V, the best action m, and L of the advantage.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz (exploration with `per_second`).
        dtype: float32; float64 for comparisons in tests.
        refer: ReF-ER as the strategy states it; needs Gaussian exploration.

    Raises:
        UserError: ReF-ER is asked for and the exploration has no density.
    """

    heeds_refer = True

    def __init__(
        self,
        config: NAFConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
        refer: Settings | None = None,
    ) -> None:
        m, s, a = len(members), task.observation_size, task.action_size
        shape = Shape((s, *config.hidden, output_size(a)))
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.network, self.network_target = (make_network(config.memory, shape, m, dtype) for _ in range(2))
        self.network.initialise(Stream(root, members, "initialisation"))
        self.adam = make_adam(self.network, config.learning_rate, betas=config.betas, epsilon=config.epsilon)
        self.networks, self.targets = {"network": self.network}, {"network": self.network_target}
        self.adams = {"network": self.adam}
        self._aim_targets()
        self.normaliser = Normaliser(config.normalise, m, s, task.reward_scale, dtype)
        self.memory = Memory(config.memory, self.networks)
        self.form = Form(0.5 if config.half else 1.0, config.bounded, config.diagonal == "softplus")
        self.exploration = make_exploration(config.exploration, root, members, a, frequency, self.network)
        self.steps = np.zeros(1, np.int64)
        self.density = Density("NAF", refer, self.exploration, self.steps, m, a, config.learning_rate)
        self.fields, self.window = {**self.density.fields, **self.memory.fields}, self.memory.window
        self.traces, self.metric_names = self.density.traces, self.memory.told(self.density.names)
        self._tape = self.memory.tape("network", config.batch_size)

    @classmethod
    def check(cls, config: NAFConfig, actions: Actions, refer: bool) -> None:
        """Check also that there is a behaviour density where ReF-ER is asked for.

        Raises:
            UserError: there is none, or the plant takes choices.
        """
        super().check(config, actions, refer)
        if refer:
            need_density("NAF", config.exploration)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin an episode of exploration of the chosen `members` `[M]`."""
        self.memory.forget(members)
        self.exploration.start_episode(episode, members)

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return the action `[M, A]` that explores around m(s); only `active` `[M]` members draw."""
        self.normaliser.observations.update(observation, active)
        seen = self.seen(observation)
        self.memory.advance(seen, active)
        self.exploration.advance(seen, active)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the exploration of the present step."""
        mean = self.mean(observation[:, None], self.memory.before[:, None])[:, 0]
        return self.memory.noted(self.exploration.disturb(mean, self.seen(observation)))

    def mean(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return m(s) `[M, N, A]` for observations `[M, N, S]`."""
        mean = self.memory.evaluate("network", self.seen(observation), state)[:, :, 1 : 1 + self.task.action_size]
        return np.tanh(mean) if self.config.bounded else mean

    def policy(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return m(s) `[M, N, A]`, within ±1."""
        return np.clip(self.mean(observation, state), -1, 1)

    def policy_form(self) -> PolicyForm:
        """Return m among the outputs."""
        network = feed_forward(self.network, "a policy as a module")
        return PolicyForm(network, 1, self.task.action_size, "tanh" if self.config.bounded else "clip")

    def value(self, observation: Floats) -> Floats:
        """Return V(s) `[M, N]`, in units of the reward times the task's `reward_scale`."""
        return self.normaliser.rewards.restored(self.network(self.seen(observation))[:, :, 0])

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return what is known of the stored behaviours: see `Density`."""
        return self.density.metrics(stored, lambda observation: self.mean(observation, stored.get(FIELD)))

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update; return `td_error` `[M, B]` (r + γ V⁻(s′) − Q(s, a) before it), and `rho` where it is known."""
        self.steps += 1
        td_error, rho = (np.empty(batch.weight.shape, self.network.parameters.dtype) for _ in range(2))
        mu_mean, mu_log_sigma = self.density.behaviour(batch)
        observation, next_observation = self.memory.inputs(batch, self.seen)
        _update(
            self.network.network,
            self.network_target.network,
            self._tape,
            self.adam,
            self.form,
            self.density.rules(),
            observation,
            batch.action,
            batch.reward,
            next_observation,
            batch.terminated,
            mu_mean,
            mu_log_sigma,
            self.density.log_sigma,
            batch.weight,
            batch.rate_factor * np.float32(self.density.annealed()),
            self.task.discount,
            self.normaliser.rewards.factor,
            self.config.tau,
            int(self.steps[0]),
            td_error,
            rho,
        )
        return {"td_error": td_error, "rho": rho} if self.density.known else {"td_error": td_error}

    def _further(self) -> dict[str, NDArray[Any]]:
        exploration = {f"exploration_{name}": array for name, array in self.exploration.state_dict().items()}
        return {**exploration, **self.density.state_dict(), **self.memory.state_dict()}


@kernel
def _update(
    network: Approximator, target: Approximator, tape: AnyTape, adam: Adam, form: Form, rules: Rules,
    observation: Inputs, action: Floats, reward: Floats, next_observation: Inputs, terminated: Floats,
    mu_mean: Floats, mu_log_sigma: Floats, log_sigma: NDArray[np.float64], weight: Floats, rate_factor: Floats,
    discount: float, reward_factor: NDArray[np.float64], tau: float, step: int, td_error: Floats, rho: Floats,
) -> None:  # fmt: skip
    """One update of every member: ½ δ², and ReF-ER's mixture (eq. 10) where the behaviours are known."""
    batch, actions = action.shape[1], action.shape[2]
    kind = network.parameters.dtype.type
    outputs = np.empty((batch, outputs_of(network)), network.parameters.dtype)
    future, d_outputs = np.empty_like(outputs), np.empty_like(outputs)
    mean = np.empty((batch, actions), outputs.dtype)
    sigmas = np.empty_like(mean)
    d_mean, d_log_sigma = np.empty_like(mean), np.empty_like(mean)
    q = np.empty(batch, outputs.dtype)
    nothing = np.empty((batch, 0), outputs.dtype)
    known = mu_mean.shape[2] > 0
    for m in range(action.shape[0]):
        evaluate(target, m, tape, of_member(next_observation, m), nothing, future)
        evaluate(network, m, tape, of_member(observation, m), nothing, outputs)
        means(outputs, form, mean)
        action_values(outputs, action[m], mean, form, q, d_outputs)
        if known:
            sigmas[:] = kind(log_sigma[m])
            importance_weights(action[m], mean, sigmas, mu_mean[m], mu_log_sigma[m], rho[m])
            divergence_gradient(mean, sigmas, mu_mean[m], mu_log_sigma[m], rules.mu_pi, d_mean, d_log_sigma)
        beta = rules.beta[m]
        for b in range(batch):
            alive = kind(1) - terminated[m, b, 0]
            delta = kind(reward_factor[m]) * reward[m, b, 0] + kind(discount) * alive * future[b, 0] - q[b]
            td_error[m, b] = delta
            heeded = not rules.mask or near_policy(rho[m, b], rules.c_max)
            factor = kind(-beta / batch) * weight[m, b] * delta if heeded else kind(0)
            for k in range(outputs.shape[1]):
                d_outputs[b, k] *= factor
            if rules.pull:
                for i in range(actions):
                    inner = kind(1) - mean[b, i] * mean[b, i] if form.bounded else kind(1)
                    d_outputs[b, 1 + i] += kind((1 - beta) / batch) * d_mean[b, i] * inner
        differentiate(network, m, tape, d_outputs, True, nothing)
        adam_step(network, m, adam, step, rate_factor[m])
        track(target, network, m, tau)
