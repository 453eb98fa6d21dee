"""V-RACER for a population: off-policy policy gradients with stored returns (Novati & Koumoutsakos 2019, section 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch
from replaybench.controllers.algorithms.vracer_update import SUCCESSORS, HeadForm, update_members
from replaybench.controllers.checks import betas, between, counts, positive, widths
from replaybench.controllers.exploration.process_noise import Explored, draw_active
from replaybench.controllers.first_value import FirstValue
from replaybench.controllers.losses.gaussian import divergence
from replaybench.controllers.memory.config import MemoryConfig
from replaybench.controllers.memory.learner import RememberingLearner
from replaybench.controllers.memory.memory import FIELD
from replaybench.controllers.networks.greedy_form import PolicyForm, Squash
from replaybench.controllers.networks.mlp import Floats, Shape
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.refer.stored_returns import StoredReturns
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.kernels import elementwise

METRICS = ("kl", "far", "beta", "sigma")
BEHAVIOUR = ("behaviour_mean", "behaviour_log_sigma")


@dataclass(frozen=True, kw_only=True)
class VRACERConfig:
    """Settings with which V-RACER with ReF-ER learns on the pendulum.

    The paper has 2 × 128 SoftSign units, batches of 256, γ 0.995 and a rate of 1e-4, for 10⁶ steps and more: too slow
    to judge before. Its `sigma` is an output of the network, that of the authors' public code a parameter of its own,
    √0.2 at first (`first_sigma`), where it stays if it is `fixed`. Where the mean is `bounded`, it is so by tanh;
    actions never are.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "softsign", "relu"] = "tanh"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    sigma: Literal["free", "fixed", "network"] = "free"
    first_sigma: float = 0.2**0.5
    bounded: bool = False
    batch_size: int = 64
    replays_per_experience: float = 64.0
    warmup_episodes: int = 5
    normalise: NormaliseConfig = field(default_factory=NormaliseConfig)
    memory: MemoryConfig | None = None

    def __post_init__(self) -> None:
        positive("V-RACER", learning_rate=self.learning_rate, epsilon=self.epsilon, first_sigma=self.first_sigma)
        positive("V-RACER", replays_per_experience=self.replays_per_experience)
        betas("V-RACER", self.betas)
        between("V-RACER", 0, np.inf, warmup_episodes=self.warmup_episodes)
        counts("V-RACER", batch_size=self.batch_size)
        widths("V-RACER", hidden=self.hidden)


class VRACER(RememberingLearner):
    """M independent networks with outputs V, the mean of a Gaussian policy and, if `sigma` is the network's, log σ.

    What the policy samples is stored and enters importance weights as sampled; the environment clips what it applies.
    Returns are traces along stored episodes (`StoredReturns`). Without ReF-ER this is plain replay, |log ρ| ≤ 7.
    """

    def __init__(self, config: VRACERConfig, setting: LearnerSetting) -> None:
        task, a, rate = setting.task, setting.task.action_size, config.learning_rate
        outputs = 1 + 2 * a if config.sigma == "network" else 1 + a
        shapes = {"network": Shape((task.observation_size, *config.hidden, outputs), activation=config.activation)}
        super().__init__(config, setting, shapes, (), rate, scheme="xavier", output_scale=0.1)
        self.network, self.deviation = self.networks["network"], self._numbers(math.log(config.first_sigma), a)
        self.networks = {"network": self.network, "log_sigma": self.deviation}
        rates = {"network": rate, "log_sigma": 0.0 if config.sigma == "fixed" else rate}
        self.adams = self._make_adams(rates, betas=config.betas, epsilon=config.epsilon)
        self._policy, self._spread = self.learned("network"), self._with_tape("log_sigma", self.deviation.tape(1))
        self._successors = self.memory.tape("network", SUCCESSORS)
        factor = self.normaliser.rewards.factor
        self.traces = StoredReturns(self.refer, self.steps, len(setting.members), task.discount, factor)
        self.first_value = FirstValue(len(setting.members), task.discount)
        self.fields = {**dict.fromkeys(BEHAVIOUR, a), **self.memory.fields}
        self.metric_names = self.memory.metric_names(METRICS)
        self.stream, self.noise = setting.stream("exploration"), np.zeros((len(setting.members), a))

    def _heads(self, observation: Floats, state: Floats | None) -> tuple[Floats, Floats, Floats]:
        """Return V `[M, N]`, mean and log σ `[M, N, A]` for observations `[M, N, S]`."""
        a = self.task.action_size
        outputs = self.memory.evaluate("network", self.seen(observation), state)
        mean = elementwise.tanh(outputs[:, :, 1 : 1 + a]) if self.config.bounded else outputs[:, :, 1 : 1 + a]
        first = np.broadcast_to(self.deviation.parameters[:, None], mean.shape)
        log_sigma = first + outputs[:, :, 1 + a :] if self.config.sigma == "network" else first
        return outputs[:, :, 0], mean, log_sigma

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        self.memory.advance(self.seen(observation), active)
        draw_active(self.stream.state, active, self.noise)

    def re_explore(self, observation: Floats) -> Explored:
        """Return a sample `[M, A]` of the policy with the draw of the present step."""
        heads = self._heads(observation[:, None], self.memory.before[:, None])
        value, mean, log_sigma = (head[:, 0] for head in heads)
        action = (mean + elementwise.exp(log_sigma) * self.noise).astype(np.float32)
        extras = {"behaviour_mean": mean, "behaviour_log_sigma": log_sigma, "value": value[:, None]}
        stored = {name: array.astype(np.float32) for name, array in extras.items()}
        return self.memory.with_memory(Explored(action, np.abs(action - mean).sum(axis=1), stored))

    def on_step(
        self,
        reward: NDArray[np.float64],
        successor: Floats,
        terminated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        active: NDArray[np.bool_],
    ) -> Mapping[str, Floats]:
        """Return the traces `truncated`, and `q_ret`, which counts where an episode ends; `[M, 1]`."""
        super().on_step(reward, successor, terminated, ended, active)
        self.first_value.update(reward, terminated, ended, active)
        return self._last_return(reward, successor, terminated, ended)

    def on_recorded_step(
        self, experience: Mapping[str, Floats], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> Mapping[str, Floats]:
        """Return the traces `value`, V(s), `truncated`, `q_ret` of a recorded experience, `[M, 1]`, and its memory."""
        remembered = self._remember_recorded(experience, ended, active)
        reward, terminated = experience["reward"][:, 0], experience["terminated"][:, 0] != 0
        self.first_value.update(reward, terminated, ended, active)
        value = self._heads(experience["observation"][:, None], self.memory.before[:, None])[0]
        last = self._last_return(reward, experience["next_observation"], terminated, ended)
        self.memory.forget(ended)
        return {"value": value, **last, **remembered}

    def _last_return(
        self, reward: NDArray[Any], successor: Floats, terminated: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> dict[str, Floats]:
        truncated = ended & ~terminated
        there = self.memory.after[:, None]
        value = self._heads(successor[:, None], there)[0][:, 0] if truncated.any() else np.zeros(len(ended))
        q_ret = self.normaliser.rewards.factor * reward + self.task.discount * np.where(truncated, value, 0)
        return {"truncated": truncated[:, None].astype(np.float32), "q_ret": q_ret[:, None].astype(np.float32)}

    def policy(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return the mean action `[M, N, A]` within ±1 for observations `[M, N, S]`."""
        return np.clip(self._heads(observation, state)[1], -1, 1)

    def sample(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return samples of the policy `[M, N, A]`, unbounded, drawn from the exploration streams."""
        _, mean, log_sigma = self._heads(observation, state)
        noise = self.stream.normal(mean[0].size).reshape(mean.shape)
        return np.asarray(mean + elementwise.exp(log_sigma) * noise, mean.dtype)

    def policy_form(self) -> PolicyForm:
        """Return the mean among the outputs."""
        squash: Squash = "tanh" if self.config.bounded else "clip"
        return PolicyForm(self.networks["network"], 1, self.task.action_size, squash)

    def value(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return V(s) `[M, N]`, in units of the reward times the task's `reward_scale`."""
        return self.normaliser.rewards.restored(self._heads(observation, state)[0])

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return `kl`, the mean of D_KL(μ‖π) over a sample `[M, n, …]` of what is stored; `far` n_far/N; `beta`; σ."""
        pi = [np.asarray(head, np.float64) for head in self._heads(stored["observation"], stored.get(FIELD))[1:]]
        kl = divergence(*pi, *(stored[name].astype(np.float64) for name in BEHAVIOUR))
        sigma = elementwise.exp(pi[1]).mean(axis=(1, 2))
        return {"kl": kl.mean(axis=1), "far": self.traces.fraction, "beta": self.refer.beta.copy(), "sigma": sigma}

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Do one update; annotate `td_error` Q_ret − V, and for the traces `rho`, `value` and `bootstrap`, `[M, B]`."""
        first = self.begin_updates(batch)
        if not self.first_value.taken[0]:
            self._begin_with(self.first_value.take())
        config, x = self.config, self.experiences(batch, first)
        delta, rho, value, bootstrap = (np.zeros(batch.weight.shape, self.setting.dtype) for _ in range(4))
        assert batch.traces is not None
        form = HeadForm(config.sigma != "network", config.bounded)
        nets = self._policy, self._successors, self._spread
        rules = self.refer.rules(first)
        update_members(*nets, form, x, batch.traces, rules, first, delta, rho, value, bootstrap)
        return {"td_error": delta, "rho": rho, "value": value, "bootstrap": bootstrap}

    def _begin_with(self, value: NDArray[np.float64]) -> None:
        """Let V be `value` `[M]` at first, beside what states differ in."""
        *_, bias = (array for name, array in self.network.named_weights("").items() if name.endswith("bias"))
        bias[:, 0] = self.normaliser.rewards.factor * value

    def load_weights(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Take over `weights` of as many members; V is among them, so that no first value takes its place."""
        super().load_weights(weights)
        self.first_value.taken[:] = True

    def _further(self) -> dict[str, NDArray[Any]]:
        own = {"exploration_stream": self.stream.state, "noise": self.noise, "beta": self.refer.beta}
        return {**own, **self.first_value.state_dict(), **self.traces.state_dict(), **self.memory.state_dict()}
