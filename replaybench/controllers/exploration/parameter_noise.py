"""Exploration by a policy whose weights are disturbed for a whole episode (Plappert et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.exploration.process_noise import Explored
from replaybench.controllers.networks.mlp import Network, PopulationMLP, Tape, forward
from replaybench.controllers.settings import Number, Positive, Settings
from replaybench.data.bounds import Within
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_normal


@dataclass(frozen=True, kw_only=True)
class ParameterNoise(Settings):
    """a = π̃(s), where the weights and biases of π̃ are the actor's plus σ · N(0, 1), drawn anew for each episode.

    Every member has its own σ. At the start of each episode the distance √mean (π(s) − π̃(s))², over action dimensions
    and the member's latest `recent` observations, is compared with `target`. For the next episode σ is multiplied by
    `factor` if the distance is smaller, else divided by it (Plappert et al. 2018; numbers as in de Bruin et al. 2018).
    This is done `adaptations` times, with weights drawn anew each time; the last ones act.

    Readings: the paper measures the distance on a batch from the replay buffer and leaves the number of updates between
    measurements open; here it is the latest observations, once an episode. Its code adapts σ before every update. The
    paper does not state `initial`; this is the default of the authors' class.
    """

    form: Literal["parameter"] = "parameter"
    target: Positive = 0.2
    factor: Annotated[float, Within(1)] = 1.01
    initial: Positive = 0.1
    recent: Number = 256
    adaptations: Number = 1


class RunningParameterNoise:
    """The disturbed policies of every member.

    Args:
        root, members: seed of the study and member numbers.
        actor: the policies π; their present weights are disturbed.

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

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Disturb the weights of the chosen `members`' `[M]` actors anew, and adapt σ of their next episode."""
        both, config = (self.actor.network, self.disturbed.network), self.config
        seen = self._tape, self.recent, self.seen
        rule = config.target, config.factor, config.adaptations
        _disturb(both, self.noisy, self.stream.state, *seen, members, *rule, self.sigma, self.distance)

    def advance(self, observation: Any, active: NDArray[np.bool_]) -> None:
        """Keep the observations of the `active` `[M]` members."""
        _remember_observations(self.recent, self.seen, np.ascontiguousarray(observation, self.recent.dtype), active)

    def disturb(self, action: Any, observation: Any) -> Explored:
        """Return π̃(s) `[M, A]` for observations `[M, S]`; the deviation is that from the policy's `action`."""
        explored = self.disturbed(observation[:, None])[:, 0].astype(np.float32)
        return Explored(explored, np.abs(explored - action).sum(axis=1))

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return streams, disturbed weights, σ, distances and the latest observations."""
        return {
            "stream": self.stream.state,
            "disturbed": self.disturbed.parameters,
            "sigma": self.sigma,
            "distance": self.distance,
            "recent": self.recent,
            "seen": self.seen,
        }


def noisy_parameters(actor: PopulationMLP) -> NDArray[np.bool_]:
    """Return which of each member's parameters are disturbed, bool `[P]`: weights and biases.

    Gains and shifts of layer normalisation are not: noise there would rescale whole layers (Plappert et al. 2018).
    """
    noisy = np.zeros(actor.parameters.shape[1], np.bool_)
    for layer in range(len(actor.shape.layers)):
        inputs, outputs, offset = actor.network.plan[layer][:3]
        noisy[offset : offset + inputs * outputs] = True
    return noisy


@kernel
def _disturb(
    both: tuple[Network, Network], noisy: NDArray[np.bool_], stream: NDArray[np.uint64], tape: Tape,
    recent: NDArray[Any], seen: NDArray[np.int64], chosen: NDArray[np.bool_], target: float, factor: float,
    adaptations: int, sigma: NDArray[np.float64], distance: NDArray[np.float64],
) -> None:  # fmt: skip
    """Disturb each chosen member's actor, and adapt its σ by its latest observations, if it has some."""
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
def _remember_observations(
    recent: NDArray[Any], seen: NDArray[np.int64], observation: NDArray[Any], active: NDArray[np.bool_]
) -> None:
    for m in range(recent.shape[0]):
        if active[m]:
            recent[m, seen[m] % recent.shape[1]] = observation[m]
            seen[m] += 1
