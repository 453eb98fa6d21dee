"""Deep deterministic policy gradient for a population, as in de Bruin et al. (2018), section 3.2 and B.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.agent import Actions, Batch, Task
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.device import check_device
from replaybench.controllers.exploration.forms import ExplorationConfig, make_exploration
from replaybench.controllers.exploration.parameter_noise import ParameterNoise
from replaybench.controllers.exploration.process_noise import Explored, ProcessNoise
from replaybench.controllers.losses.gaussian import divergence_gradient, importance_weights
from replaybench.controllers.memory.config import MemoryConfig
from replaybench.controllers.memory.learner import RememberingLearner
from replaybench.controllers.memory.memory import FIELD, Memory, feed_forward, make_network
from replaybench.controllers.networks.adam import Adam, adam_step, make_adam, track
from replaybench.controllers.networks.greedy_form import PolicyForm
from replaybench.controllers.networks.mlp import Floats, Shape
from replaybench.controllers.networks.network import AnyTape, Approximator, Inputs, differentiate, evaluate, of_member
from replaybench.controllers.normaliser import NormaliseConfig, Normaliser
from replaybench.controllers.refer.density import Density, need_density
from replaybench.controllers.refer.rules import Rules, Settings, near_policy
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream


@dataclass(frozen=True, kw_only=True)
class DDPGConfig:
    """Settings with the paper's values; the paper is silent on `tau` and prints `l2` = 5e-3.

    With that printed value, coupled into Adam, and these reward scales, learning degrades after a few hundred
    episodes, so the default is 0; the printed value is the variant `l2 = 0.005`. With a `memory`, the action joins the
    critic's right behind it, whatever `action_layer` says. `layer_norm` normalises every hidden layer before its
    activation, and `output_bound` is the bound of the last layers' first weights and biases: the paper's Roboschool
    networks have both, 3e-3 the latter (section 8.5).
    """

    actor_hidden: tuple[int, ...] = (50, 50)
    critic_hidden: tuple[int, ...] = (50, 50, 20)
    action_layer: int = 1
    layer_norm: bool = False
    output_bound: float | None = None
    actor_rate: float = 1e-4
    critic_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    l2: float = 0.0
    l2_form: Literal["coupled", "decoupled"] = "coupled"
    clip: float | None = None
    tau: float = 0.01
    batch_size: int = 16
    replays_per_experience: float = 8.0
    exploration: ExplorationConfig = field(default_factory=ProcessNoise)
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)
    memory: MemoryConfig | None = None

    def __post_init__(self) -> None:
        positive("DDPG", actor_rate=self.actor_rate, critic_rate=self.critic_rate, epsilon=self.epsilon)
        positive("DDPG", replays_per_experience=self.replays_per_experience, clip=self.clip)
        positive("DDPG", output_bound=self.output_bound)
        between("DDPG", 0, 1, tau=self.tau)
        between("DDPG", 0, np.inf, l2=self.l2)
        betas("DDPG", self.betas)
        counts("DDPG", batch_size=self.batch_size)
        widths("DDPG", actor_hidden=self.actor_hidden, critic_hidden=self.critic_hidden)
        if not 0 <= self.action_layer <= len(self.critic_hidden):
            raise UserError(f"DDPG: action_layer must lie in [0, {len(self.critic_hidden)}], not {self.action_layer}")
        if self.memory is not None and self.layer_norm:
            raise UserError("DDPG: layer_norm is for networks without memory; leave out one of the two")
        if self.memory is not None and isinstance(self.exploration, ParameterNoise):
            raise UserError("DDPG: parameter noise disturbs networks without memory; leave out one of the two")


class DDPG(RememberingLearner):
    """M independent actor-critic pairs with target networks.

    Args:
        config: settings.
        task: sizes, discount and reward scale.
        root, members: seed of the study and member numbers `[M]`.
        frequency: control rate in Hz (exploration with `per_second`).
        dtype: float32; float64 for comparisons in tests.
        refer: ReF-ER as the strategy states it (Novati & Koumoutsakos 2019); needs Gaussian exploration. Rule 1 masks
            the critic's errors; the actor's gradient does not depend on stored actions and is only weighed by Rule 2.
        device: `cpu`, or `cuda` (`cuda:1`), where updates are computed in PyTorch; acting stays here.

    Raises:
        UserError: ReF-ER is asked for and the exploration has no density; or the device is not there, or not for this.
    """

    heeds_refer = True

    def __init__(
        self,
        config: DDPGConfig,
        task: Task,
        root: int,
        members: Sequence[int],
        frequency: float = 50.0,
        dtype: DTypeLike = np.float32,
        refer: Settings | None = None,
        device: str = "cpu",
    ) -> None:
        self.check_runs_on(device, config, refer is not None)
        m, s, a = len(members), task.observation_size, task.action_size
        norm = config.layer_norm
        actor = Shape((s, *config.actor_hidden, a), tanh=True, layer_norm=norm)
        critic = Shape((s, *config.critic_hidden, 1), actions=a, inject=config.action_layer, layer_norm=norm)
        self.config, self.task = config, task
        self.batch_size, self.replays_per_experience = config.batch_size, config.replays_per_experience
        self.actor, self.actor_target = (make_network(config.memory, actor, m, dtype) for _ in range(2))
        self.critic, self.critic_target = (make_network(config.memory, critic, m, dtype) for _ in range(2))
        stream = Stream(root, members, "initialisation")
        self.actor.initialise(stream, output_bound=config.output_bound)
        self.critic.initialise(stream, output_bound=config.output_bound)
        self.actor_adam = make_adam(
            self.actor, config.actor_rate, betas=config.betas, epsilon=config.epsilon, clip=config.clip
        )
        self.critic_adam = make_adam(
            self.critic,
            config.critic_rate,
            betas=config.betas,
            epsilon=config.epsilon,
            l2=config.l2,
            coupled=config.l2_form == "coupled",
            clip=config.clip,
        )
        self.networks = {"actor": self.actor, "critic": self.critic}
        self.targets = {"actor": self.actor_target, "critic": self.critic_target}
        self.adams = {"actor": self.actor_adam, "critic": self.critic_adam}
        self._aim_targets()
        self.memory = Memory(config.memory, self.networks)
        self.exploration = make_exploration(config.exploration, root, members, a, frequency, self.actor)
        self.normaliser = Normaliser(config.normalise, m, s, task.reward_scale, dtype)
        self.steps = np.zeros(1, np.int64)
        self.density = Density("DDPG", refer, self.exploration, self.steps, m, a, config.actor_rate)
        self.fields, self.window = {**self.density.fields, **self.memory.fields}, self.memory.window
        self.traces, self.metric_names = self.density.traces, self.memory.told(self.density.names)
        self._tapes = [self.memory.tape(name, config.batch_size) for name in ("actor", "critic")]
        if check_device(device) != "cpu":
            from replaybench.controllers.cuda.ddpg import DeviceDDPG

            self.on_device = DeviceDDPG(self, device)

    @classmethod
    def check(cls, config: DDPGConfig, actions: Actions, refer: bool) -> None:
        """Check also that there is a behaviour density where ReF-ER is asked for.

        Raises:
            UserError: there is none, or the plant takes choices.
        """
        super().check(config, actions, refer)
        if refer:
            need_density("DDPG", config.exploration)

    @classmethod
    def check_runs_on(cls, device: str, config: DDPGConfig, refer: bool) -> None:
        """Check that nothing is asked for that is done on the CPU only.

        Raises:
            UserError: something is.
        """
        further = config.memory or config.layer_norm or isinstance(config.exploration, ParameterNoise)
        if device != "cpu" and (refer or further):
            what = "ReF-ER, parameter noise, layer normalisation or a memory"
            raise UserError(f'DDPG runs with {what} on the CPU only; set device = "cpu"')

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin an episode of exploration of the chosen `members` `[M]`."""
        self.memory.forget(members)
        self.exploration.start_episode(episode, members)

    def explore(self, observation: Floats, active: NDArray[np.bool_]) -> Explored:
        """Return the action `[M, A]` that explores around π(s); only `active` `[M]` members draw."""
        self.normaliser.observations.update(observation, active)
        seen = self.seen(observation)
        self.memory.advance(seen, active)
        self.exploration.advance(seen, active)
        return self.explore_again(observation)

    def explore_again(self, observation: Floats) -> Explored:
        """Return the same for another observation, with the exploration of the present step."""
        pi = self.policy(observation[:, None], self.memory.before[:, None])[:, 0]
        return self.memory.noted(self.exploration.disturb(pi, self.seen(observation)))

    def policy(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return π(s) `[M, N, A]` for observations `[M, N, S]`."""
        self.fetch("actor")
        return self.memory.evaluate("actor", self.seen(observation), state)

    def policy_form(self) -> PolicyForm:
        """Return π as the actor's outputs."""
        self.fetch("actor")
        return PolicyForm(feed_forward(self.actor, "a policy as a module"), 0, self.task.action_size)

    def value(self, observation: Floats) -> Floats:
        """Return Q(s, π(s)) `[M, N]`, in units of the reward times the task's `reward_scale`."""
        self.fetch("actor", "critic")
        seen = self.seen(observation)
        return self.normaliser.rewards.restored(self.critic(seen, self.actor(seen))[:, :, 0])

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return what is known of the stored behaviours: see `Density`."""
        return self.density.metrics(stored, lambda observation: self.policy(observation, stored.get(FIELD)))

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one critic and one actor update; return `td_error` `[M, B]` (eq. 4, before it) and, if known, `rho`."""
        if self.on_device is not None:
            return self.on_device.update(batch)
        self.steps += 1
        td_error, rho = (np.empty(batch.weight.shape, self.actor.parameters.dtype) for _ in range(2))
        mu_mean, mu_log_sigma = self.density.behaviour(batch)
        observation, next_observation = self.memory.inputs(batch, self.seen)
        _update(
            self.actor.network,
            self.critic.network,
            self.actor_target.network,
            self.critic_target.network,
            self._tapes[0],
            self._tapes[1],
            self.actor_adam,
            self.critic_adam,
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
            batch.actor_weight,
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
    actor: Approximator, critic: Approximator, actor_target: Approximator, critic_target: Approximator,
    actor_tape: AnyTape, critic_tape: AnyTape, actor_adam: Adam, critic_adam: Adam, rules: Rules,
    observation: Inputs, action: Floats, reward: Floats, next_observation: Inputs, terminated: Floats,
    mu_mean: Floats, mu_log_sigma: Floats, log_sigma: NDArray[np.float64],
    weight: Floats, actor_weight: Floats, rate_factor: Floats,
    discount: float, reward_factor: NDArray[np.float64], tau: float, step: int, td_error: Floats, rho: Floats,
) -> None:  # fmt: skip
    """One update of every member; the symbols are those of equations 4 to 6."""
    batch, actions = action.shape[1], action.shape[2]
    kind = actor.parameters.dtype.type
    pi = np.empty((batch, actions), actor.parameters.dtype)
    d_pi, d_mean, d_log_sigma = np.empty_like(pi), np.empty_like(pi), np.empty_like(pi)
    sigmas = np.empty_like(pi)
    q = np.empty((batch, 1), actor.parameters.dtype)
    q_next, d_q = np.empty_like(q), np.empty_like(q)
    nothing = np.empty((batch, 0), actor.parameters.dtype)
    known = mu_mean.shape[2] > 0
    for m in range(action.shape[0]):
        seen, then = of_member(observation, m), of_member(next_observation, m)
        evaluate(actor_target, m, actor_tape, then, nothing, pi)
        evaluate(critic_target, m, critic_tape, then, pi, q_next)
        evaluate(critic, m, critic_tape, seen, action[m], q)
        evaluate(actor, m, actor_tape, seen, nothing, pi)
        if known:
            sigmas[:] = kind(log_sigma[m])
            importance_weights(action[m], pi, sigmas, mu_mean[m], mu_log_sigma[m], rho[m])
        for b in range(batch):
            future = kind(discount) * (kind(1) - terminated[m, b, 0]) * q_next[b, 0]
            delta = kind(reward_factor[m]) * reward[m, b, 0] + future - q[b, 0]
            td_error[m, b] = delta
            heeded = not rules.mask or near_policy(rho[m, b], rules.c_max)
            d_q[b, 0] = kind(-2 / batch) * weight[m, b] * delta if heeded else kind(0)
        differentiate(critic, m, critic_tape, d_q, True, nothing)
        adam_step(critic, m, critic_adam, step, rate_factor[m])

        evaluate(critic, m, critic_tape, seen, pi, q)
        beta = rules.beta[m]
        for b in range(batch):
            d_q[b, 0] = kind(-beta / batch) * actor_weight[m, b]
        differentiate(critic, m, critic_tape, d_q, False, d_pi)
        if rules.pull:
            divergence_gradient(pi, sigmas, mu_mean[m], mu_log_sigma[m], rules.mu_pi, d_mean, d_log_sigma)
            for b in range(batch):
                for i in range(actions):
                    d_pi[b, i] += kind((1 - beta) / batch) * d_mean[b, i]
        differentiate(actor, m, actor_tape, d_pi, True, nothing)
        adam_step(actor, m, actor_adam, step, rate_factor[m])

        track(critic_target, critic, m, tau)
        track(actor_target, actor, m, tau)
