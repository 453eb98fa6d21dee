"""Parameter noise, and the probability densities of exploring actions.

With Gaussian noise, actions are drawn from π = N(m(s), σ²), where m is the deterministic policy and σ is constant
within an episode. The Gaussian from which an action was drawn is its behaviour μ. It is stored with each experience, to
compute importance weights and divergences from past policies (Novati & Koumoutsakos 2019, sections 2 and 3).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.interface.agent import LearnerConfig, LearnerSetting
from replaybench.controllers.interface.noise import (
    Exploration,
    Explored,
    GaussianNoise,
    ProcessNoise,
    RunningGaussian,
    RunningProcess,
)
from replaybench.controllers.losses.refer import FarCount, ReFER, divergence
from replaybench.controllers.networks.mlp import Network, PopulationMLP, Tape
from replaybench.controllers.networks.network import Population, evaluate
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import AnyFloats, Bools, Floats, Integers
from replaybench.runtime.configuration import Number, Positive, Settings, Within
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_normal


@dataclass(frozen=True, kw_only=True)
class ParameterNoise(Settings):
    """Settings of exploration by noise on the parameters of the actor (Plappert et al. 2018).

    Actions are a = π̃(s). The weights and biases of π̃ are those of the actor π plus σ · N(0, 1). The default values
    are those of de Bruin et al. (2018).

    Every member has its own σ, initially `initial`. At the start of each episode, new weights of
    π̃ are drawn with this σ. Then the distance √mean (π(s) − π̃(s))² is measured. The mean is over action dimensions and
    the member's latest `recent` observations. If the distance is below `target`, σ is multiplied by `factor` for the
    next draw. Otherwise, σ is divided by `factor`. These steps are repeated `adaptations` times. The last weights act
    in the episode.

    Plappert et al. measure the distance on a batch from the replay buffer. Their paper does not state how often, and
    their code adapts σ before every update. Here, the distance is measured once per episode, on the latest
    observations. Their paper does not state `initial` either. The default is that of their code.
    """

    form: Literal["parameter"] = "parameter"
    target: Positive = 0.2
    factor: Annotated[float, Within(1)] = 1.01
    initial: Positive = 0.1
    recent: Number = 256
    adaptations: Number = 1


class RunningParameterNoise(Exploration):
    """The parameter noise of every member, and the actors with noise.

    Attributes:
        disturbed: The actors π̃ with noise. They equal the actors π until the first episode starts.
        sigma: Standard deviation of the noise in the next draw; float64, shape `[M]`.
        distance: Latest distance between π and π̃; float64, shape `[M]`. It is NaN before it is first measured.
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

    def advance(self, observation: AnyFloats, active: Bools) -> None:
        _remember_observations(self.recent, self.seen, np.ascontiguousarray(observation, self.recent.dtype), active)

    def disturb(self, action: AnyFloats, observation: AnyFloats) -> Explored:
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
    """Return a mask of the parameters of an actor that receive noise; bool, shape `[P]` for P parameters.

    Weights and biases receive noise. Gains and shifts of layer normalisation receive none, because noise on them would
    rescale whole layers (Plappert et al. 2018).
    """
    noisy = np.zeros(actor.parameters.shape[1], np.bool_)
    for layer in range(len(actor.shape.layers)):
        inputs, outputs, offset = actor.network.plan[layer][:3]
        noisy[offset : offset + inputs * outputs] = True
    return noisy


@kernel
def _disturb(
    both: tuple[Network, Network], noisy: Bools, stream: NDArray[np.uint64], tape: Tape,
    recent: np.ndarray, seen: Integers, chosen: Bools, target: float, factor: float,
    adaptations: int, sigma: Floats, distance: Floats,
) -> None:  # fmt: skip
    """Draw new parameter noise for chosen members, and adapt σ if the member has observations."""
    actor, disturbed = both
    policy = np.empty((recent.shape[1], actor.plan[-1, 0]), recent.dtype)
    explored = np.empty_like(policy)
    nothing = np.empty((recent.shape[1], 0), recent.dtype)
    for m in range(recent.shape[0]):
        if not chosen[m]:
            continue
        rows = min(seen[m], policy.shape[0])
        if rows:
            evaluate(actor, m, tape, recent[m], nothing, policy)
        for _ in range(adaptations):
            for p in range(actor.parameters.shape[1]):
                disturbed.parameters[m, p] = actor.parameters[m, p]
                if noisy[p]:
                    disturbed.parameters[m, p] += sigma[m] * next_normal(stream[m])
            if not rows:
                continue
            evaluate(disturbed, m, tape, recent[m], nothing, explored)
            squares = 0.0
            for k in range(rows):
                for a in range(policy.shape[1]):
                    squares += (np.float64(policy[k, a]) - np.float64(explored[k, a])) ** 2
            distance[m] = np.sqrt(squares / (rows * policy.shape[1]))
            sigma[m] = sigma[m] * factor if distance[m] < target else sigma[m] / factor


@kernel
def _remember_observations(recent: np.ndarray, seen: Integers, observation: np.ndarray, active: Bools) -> None:
    for m in range(recent.shape[0]):
        if active[m]:
            recent[m, seen[m] % recent.shape[1]] = observation[m]
            seen[m] += 1


__all__ = ["ExplorationConfig", "GaussianNoise", "ParameterNoise", "ProcessNoise", "make_exploration"]

ExplorationConfig: TypeAlias = ProcessNoise | GaussianNoise | ParameterNoise
"""Settings of exploration. In a table of settings, `form` selects one of these classes, by default the first."""


@dataclass(frozen=True, kw_only=True)
class DeterministicConfig(LearnerConfig):
    """Settings of learners with a deterministic policy, to whose actions exploration adds noise."""

    exploration: ExplorationConfig = field(default_factory=ProcessNoise)


def make_exploration(config: ExplorationConfig, setting: LearnerSetting, actor: Population) -> Exploration:
    """Return the exploration that the settings describe, given the initialised network `actor` of the policy."""
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
"""Names of the stored fields with the mean and log σ of the Gaussian from which each action was drawn."""


def need_density(learner: str, exploration: ExplorationConfig) -> None:
    """Raise `UserError` unless exploration is Gaussian without clipping. ReF-ER requires this."""
    if not isinstance(exploration, GaussianNoise) or exploration.clip:
        raise UserError(
            f"{learner}: ReF-ER needs a behaviour density; set it in the study's table of the learner, unclipped: "
            f'[learner.{learner}] with exploration = {{ form = "gaussian" }}'
        )


class Density:
    """The probability density of exploring actions, from which ReF-ER computes importance weights.

    ReF-ER (Novati & Koumoutsakos 2019) calls an experience far-policy if its importance weight lies outside
    (1/c_max, c_max).

    Args:
        setting: The task and the members of the learner.
        exploration: Exploration of the learner. None if the learner does not support ReF-ER.
        steps: Number of updates so far; int64, shape `[1]`.
        refer: The rules of ReF-ER that apply.

    Attributes:
        known: Whether the density is known. It is if the noise is Gaussian and not clipped.
        fields: Width of each field to store with an experience, by name.
        traces: The rule that counts far-policy steps. None without ReF-ER or without a known density.
        names: Names of the metrics that `metrics` returns.
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
        """Logarithm of the standard deviation of each member's noise, shape `[M]`, or 0 if the density is unknown."""
        return elementwise.log(self.gaussian.sigma[:, 0]) if self.gaussian else self._no_log_sigma

    def metrics(
        self, stored: Mapping[str, AnyFloats], mean: Callable[[AnyFloats], AnyFloats]
    ) -> Mapping[str, np.ndarray]:
        """Return metrics of stored experiences by name, shape `[M]`.

        `stored` contains n experiences of each member, as arrays `[M, n, width]` by field. `mean` computes the policy's
        actions. The metric `kl` is the mean divergence D_KL(μ‖π) of the present policy π from the stored behaviours μ,
        the Gaussians from which actions were drawn. With ReF-ER, `far` is the fraction of far-policy steps in the
        buffer, and `beta` is the coefficient β of the loss. The result is empty if the density is unknown.
        """
        if not self.known:
            return {}
        present = np.asarray(mean(stored["observation"]), np.float64)
        mu_mean, mu_log_sigma = (stored[name].astype(np.float64) for name in self.fields)
        kl = divergence(present, np.broadcast_to(self.log_sigma[:, None, None], present.shape), mu_mean, mu_log_sigma)
        measured: dict[str, np.ndarray] = {"kl": kl.mean(axis=1)}
        if self.traces is not None:
            measured |= {"far": self.traces.fraction, "beta": self.refer.beta.copy()}
        return measured

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"beta": self.refer.beta, **self.traces.state_dict()} if self.traces else {}
