"""Exploration settings, parameter noise, and action densities of exploring policies.

With Gaussian noise, actions are drawn from π = N(m(s), σ²), with the σ of the current episode. This distribution, the
behaviour μ, is stored with each experience. Importance weights and divergences from past behaviours are computed from
it (Novati & Koumoutsakos 2019, sections 2 and 3).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import LearnerSetting
from replaybench.controllers.interface.noise import (
    Exploration,
    Explored,
    GaussianNoise,
    ProcessNoise,
    RunningGaussian,
    RunningProcess,
)
from replaybench.controllers.losses.densities import divergence
from replaybench.controllers.losses.refer import FarCount, ReFER
from replaybench.controllers.networks.mlp import Network, PopulationMLP, Tape, forward
from replaybench.controllers.networks.network import Population
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Integers
from replaybench.runtime.configuration import Number, Positive, Settings, Within
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_normal


@dataclass(frozen=True, kw_only=True)
class ParameterNoise(Settings):
    """a = π̃(s), where the weights and biases of π̃ are the actor's plus σ · N(0, 1), drawn again for each episode.

    Every member has its own σ. At the start of each episode the distance √mean (π(s) − π̃(s))², over action dimensions
    and the member's latest `recent` observations, is compared with `target`. For the next episode σ is multiplied by
    `factor` if the distance is smaller, else divided by it (Plappert et al. 2018; numbers as in de Bruin et al. 2018).
    This is done `adaptations` times, with new weights each time; the last weights act.

    The paper measures the distance on a batch from the replay buffer and does not state the number of updates between
    measurements; its code adapts σ before every update. Here the distance is measured on the latest observations, once
    per episode. The paper does not state `initial` either; the default is that of the authors' class.
    """

    form: Literal["parameter"] = "parameter"
    target: Positive = 0.2
    factor: Annotated[float, Within(1)] = 1.01
    initial: Positive = 0.1
    recent: Number = 256
    adaptations: Number = 1


class RunningParameterNoise:
    """Parameter noise and the disturbed policy of every member.

    Attributes:
        disturbed: π̃; the actor itself until the first episode starts.
        sigma: float64 `[M]`, standard deviation of the weights' noise in the next episode to start.
        distance: float64 `[M]`, as measured last; NaN before there was an observation.
    """

    def __init__(self, config: ParameterNoise, root: int, members: Sequence[int], actor: PopulationMLP) -> None:
        self.config, self.actor = config, actor
        self.stream = Stream(root, members, "exploration")
        self.disturbed = PopulationMLP(actor.shape, len(members), actor.parameters.dtype)
        self.disturbed.parameters[:] = actor.parameters
        self.noisy = noisy_parameters(actor)
        self.sigma = np.full(len(members), config.initial)
        self.distance = np.full(len(members), np.nan)
        self.recent = np.zeros((len(members), config.recent, actor.shape.sizes[0]), actor.parameters.dtype)
        self.seen = np.zeros(len(members), np.int64)
        self._tape = actor.tape(config.recent)

    def start_episode(self, episode: int, members: Bools) -> None:
        both, config = (self.actor.network, self.disturbed.network), self.config
        seen = self._tape, self.recent, self.seen
        rule = config.target, config.factor, config.adaptations
        _disturb(both, self.noisy, self.stream.state, *seen, members, *rule, self.sigma, self.distance)

    def advance(self, observation: Any, active: Bools) -> None:
        _remember_observations(self.recent, self.seen, np.ascontiguousarray(observation, self.recent.dtype), active)

    def disturb(self, action: Any, observation: Any) -> Explored:
        explored = self.disturbed(observation[:, None])[:, 0].astype(np.float32)
        return Explored(explored, np.abs(explored - action).sum(axis=1))

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        return {
            "stream": self.stream.state,
            "disturbed": self.disturbed.parameters,
            "sigma": self.sigma,
            "distance": self.distance,
            "recent": self.recent,
            "seen": self.seen,
        }


def noisy_parameters(actor: PopulationMLP) -> Bools:
    """Return which of each member's parameters are disturbed, bool `[P]`: weights and biases.

    Gains and shifts of layer normalisation are not, because noise would rescale whole layers (Plappert et al. 2018).
    """
    noisy = np.zeros(actor.parameters.shape[1], np.bool_)
    for layer in range(len(actor.shape.layers)):
        inputs, outputs, offset = actor.network.plan[layer][:3]
        noisy[offset : offset + inputs * outputs] = True
    return noisy


@kernel
def _disturb(
    both: tuple[Network, Network], noisy: Bools, stream: NDArray[np.uint64], tape: Tape,
    recent: NDArray[Any], seen: Integers, chosen: Bools, target: float, factor: float,
    adaptations: int, sigma: Floats, distance: Floats,
) -> None:  # fmt: skip
    """Disturb each chosen member's actor, and adapt its σ to its latest observations, if it has any."""
    actor, disturbed = both
    policy = np.empty((recent.shape[1], actor.plan[-1, 0]), recent.dtype)
    explored = np.empty_like(policy)
    nothing = np.empty((recent.shape[1], 0), recent.dtype)
    for m in range(recent.shape[0]):
        if not chosen[m]:
            continue
        rows = min(seen[m], policy.shape[0])
        if rows:
            forward(actor, m, tape, recent[m], nothing, policy)
        for _ in range(adaptations):
            for p in range(actor.parameters.shape[1]):
                disturbed.parameters[m, p] = actor.parameters[m, p]
                if noisy[p]:
                    disturbed.parameters[m, p] += sigma[m] * next_normal(stream[m])
            if not rows:
                continue
            forward(disturbed, m, tape, recent[m], nothing, explored)
            squares = 0.0
            for k in range(rows):
                for a in range(policy.shape[1]):
                    squares += (np.float64(policy[k, a]) - np.float64(explored[k, a])) ** 2
            distance[m] = np.sqrt(squares / (rows * policy.shape[1]))
            sigma[m] = sigma[m] * factor if distance[m] < target else sigma[m] / factor


@kernel
def _remember_observations(recent: NDArray[Any], seen: Integers, observation: NDArray[Any], active: Bools) -> None:
    for m in range(recent.shape[0]):
        if active[m]:
            recent[m, seen[m] % recent.shape[1]] = observation[m]
            seen[m] += 1


__all__ = ["ExplorationConfig", "GaussianNoise", "ParameterNoise", "ProcessNoise", "make_exploration"]

ExplorationConfig: TypeAlias = ProcessNoise | GaussianNoise | ParameterNoise
"""The `form` in a table of settings selects one of these; the default is the first."""


def make_exploration(config: ExplorationConfig, setting: LearnerSetting, actor: Population) -> Exploration:
    """Return the exploration of a population; `actor`, already initialised, computes its policies."""
    root, members, actions = setting.root, setting.members, setting.task.action_size
    match config:
        case ProcessNoise():
            return RunningProcess(config, root, members, actions, setting.frequency)
        case GaussianNoise():
            return RunningGaussian(config, root, members, actions)
        case ParameterNoise():
            assert isinstance(actor, PopulationMLP)
            return RunningParameterNoise(config, root, members, actor)


BEHAVIOUR: Final = ("behaviour_mean", "behaviour_log_sigma")
"""The fields that hold the Gaussian from which each action was drawn."""


def need_density(learner: str, exploration: ExplorationConfig) -> None:
    """Raise `UserError` unless exploration has a density, which ReF-ER needs."""
    if not isinstance(exploration, GaussianNoise) or exploration.clip:
        raise UserError(
            f"{learner}: ReF-ER needs a behaviour density; set it in the study's table of the learner, unclipped: "
            f'[learner.{learner}] with exploration = {{ form = "gaussian" }}'
        )


class Density:
    """The probability density of the actions that exploration tries, and the counts of ReF-ER that depend on it.

    Args:
        setting: the learner's setting.
        exploration: the learner's exploration; None if the learner does not support ReF-ER.
        steps: number of updates done, int64 `[1]`.
        refer: the rules of ReF-ER.

    Attributes:
        known: whether the density is known, because the noise is Gaussian and not clipped.
        fields: fields to store with each experience.
        traces: the trace rule that counts far-policy steps; None without ReF-ER or a known density.
        names: names of the metrics.
    """

    def __init__(self, setting: LearnerSetting, exploration: Exploration | None, steps: Integers, refer: ReFER) -> None:
        gaussian = exploration if isinstance(exploration, RunningGaussian) and not exploration.config.clip else None
        self.gaussian, self.known, self.refer = gaussian, gaussian is not None, refer
        members, actions = len(setting.members), setting.task.action_size
        self._no_log_sigma = np.zeros(members)
        self.fields = dict.fromkeys(BEHAVIOUR, actions) if self.known else {}
        self.traces = FarCount(refer, steps, members) if self.known and refer.on else None
        self.names = () if not self.known else ("kl",) if self.traces is None else ("kl", "far", "beta")

    @property
    def log_sigma(self) -> Floats:
        """log σ of each member's current policy, `[M]`."""
        return elementwise.log(self.gaussian.sigma[:, 0]) if self.gaussian else self._no_log_sigma

    def metrics(
        self, stored: Mapping[str, AnyFloats], mean: Callable[[AnyFloats], AnyFloats]
    ) -> Mapping[str, NDArray[Any]]:
        """Return `kl`, the mean of D_KL(μ‖π) over a sample `[M, n, …]` of experiences; with ReF-ER `far`, `beta`."""
        if not self.known:
            return {}
        present = np.asarray(mean(stored["observation"]), np.float64)
        mu_mean, mu_log_sigma = (stored[name].astype(np.float64) for name in self.fields)
        kl = divergence(present, np.broadcast_to(self.log_sigma[:, None, None], present.shape), mu_mean, mu_log_sigma)
        measured: dict[str, NDArray[Any]] = {"kl": kl.mean(axis=1)}
        if self.traces is not None:
            measured |= {"far": self.traces.fraction, "beta": self.refer.beta.copy()}
        return measured

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return β and the counts, as views."""
        return {"beta": self.refer.beta, **self.traces.state_dict()} if self.traces else {}
