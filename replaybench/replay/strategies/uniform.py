"""Uniform sampling, and uniform sampling at a decreasing learning rate (Sun et al., 2020, section 4.4)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling, Sampling
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_below


@dataclass(frozen=True)
class Uniform(Sampling):
    """Uniform sampling of all stored experiences, with replacement."""

    independent = steady = True
    importance_undefined = "its draws have equal chances, so all weights would be 1"

    def start(self, view: BufferView) -> RunningSampling:
        return RunningUniform(view)


class RunningUniform(RunningSampling):
    """The object that draws samples uniformly, with replacement, during a run."""

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        draw_uniform(self.stream.state, count, draws)


@kernel
def draw_uniform(stream: NDArray[np.uint64], count: Indices, draws: Draws) -> None:
    """Draw slots of the `count[m]` experiences of each member uniformly, with replacement."""
    for m in range(draws.idx.shape[0]):
        for b in range(draws.idx.shape[1]):
            draws.idx[m, b] = next_below(stream[m], count[m])
            draws.probability[m, b] = 1.0 / count[m]


_LARGEST: Final = 1000
"""Largest initial factor λ₀. It also limits the number of candidates that AER compares per sample."""


@dataclass(frozen=True)
class Annealed(Sampling):
    """Uniform sampling at λ times the learning rate, for comparison with AER (Sun et al., 2020, section 4.4).

    AER is attentive experience replay, which has the same schedule of learning rates. λ falls linearly from λ₀ =
    `first` to 1 over the initial fraction `alpha` of the run.
    """

    first: float = 2.5
    alpha: float = 2 / 3
    feedback = ("rate", "phase")
    importance_undefined = "its draws have equal chances, so all weights would be 1"

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not 1 <= self.first <= _LARGEST:
            raise UserError(f"{name}: λ₀ must be at least 1 and at most {_LARGEST}, not {self.first:g}")
        if not 0 < self.alpha <= 1:
            raise UserError(f"{name}: α must lie in (0, 1], not {self.alpha:g}")

    def factor(self, progress: float) -> float:
        """Return the factor λ on the learning rate when a fraction `progress` of the run is over."""
        return self.first + (1 - self.first) * min(1.0, progress / self.alpha)

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningAnnealed(self, view)


class _RunningAnnealed(RunningUniform):
    def __init__(self, description: Annealed, view: BufferView) -> None:
        super().__init__(view)
        self.description = description

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        draws.rate_factor[:] = self.description.factor(context.progress)
        super().draw(context, count, offers, draws)
