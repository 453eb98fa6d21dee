"""Importance sampling by the chances of the draws (Schaul et al. 2016; de Bruin et al. 2018, eq. 8)."""

from __future__ import annotations

from dataclasses import dataclass

from replaybench.data.errors import UserError
from replaybench.data.kernels import elementwise
from replaybench.replay.arrays import Floats
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
    by_probability = True

    def __post_init__(self) -> None:
        if not (0 <= self.first <= 1 and 0 <= self.last <= 1):
            raise UserError(f"IS({self.first:g}→{self.last:g}): both exponents must lie in [0, 1]")

    def start(self, view: BufferView) -> RunningWeighting:
        return _RunningIS(self)


class _RunningIS(RunningWeighting):
    def __init__(self, description: IS) -> None:
        self.description = description

    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats) -> None:
        beta = self.description.first + (self.description.last - self.description.first) * context.progress
        raw = elementwise.power(usage.stored[:, None] * draws.probability, -beta)
        weight[:] = raw / raw.max(axis=1, keepdims=True) if self.description.normalise else raw
