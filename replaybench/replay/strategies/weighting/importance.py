"""Importance sampling by the chances of the draws (Schaul et al. 2016; de Bruin et al. 2018, eq. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call, Each
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.replay.arrays import Floats, Indices
from replaybench.replay.strategies.sampling.draws import Draws
from replaybench.replay.strategies.view import BufferView, Context
from replaybench.replay.strategies.weighting.interface import RunningWeighting, Usage, Weighting


@dataclass(frozen=True)
class IS(Weighting):
    """Importance-sampling weights (1 / (N·P))^β, β linear in the run's progress (de Bruin et al. 2018, eq. 8).

    N counts the experiences stored at present and P is the chance of the draw. With `normalise` the weights of a
    batch are divided by their maximum, as Schaul et al. (2016) do. The weights multiply the critic's loss; with
    `all_networks` the actor's too.
    """

    first: float = 0.5
    last: float = 1.0
    normalise: bool = False
    all_networks: bool = False
    by_probability = lasting = True

    def __post_init__(self) -> None:
        if not (0 <= self.first <= 1 and 0 <= self.last <= 1):
            raise UserError(f"IS({self.first:g}→{self.last:g}): both exponents must lie in [0, 1]")

    @property
    def steady(self) -> bool:
        return self.first == self.last

    def start(self, view: BufferView) -> RunningWeighting:
        return _RunningIS(self)


class _RunningIS(RunningWeighting):
    def __init__(self, description: IS) -> None:
        self.description = description

    def calls(
        self, contexts: Sequence[Context], usages: Sequence[Usage], draws: Draws, weight: Floats
    ) -> Sequence[Call]:
        first, last = self.description.first, self.description.last
        betas = np.array([first + (last - first) * context.progress for context in contexts])
        settings = Each(betas), self.description.normalise
        return [Call(_weigh_by_chance, (usages[0].stored, draws.probability, *settings, weight))]


@kernel
def _weigh_by_chance(
    stored: Indices, probability: NDArray[np.float64], beta: float, normalise: bool, weight: Floats
) -> None:
    """Write (1 / (N·P))^β; for members with N `stored` `[M]` and `probability` P `[M, B]`."""
    raw = np.empty(probability.shape[1])
    for m in range(probability.shape[0]):
        most = 0.0
        for b in range(raw.size):
            raw[b] = (stored[m] * probability[m, b]) ** -beta
            most = max(most, raw[b])
        weight[m] = raw / most if normalise else raw
