"""Uniform replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_below
from replaybench.replay.arrays import Indices
from replaybench.replay.strategies.sampling.interface import Draws, RunningSampling, Sampling
from replaybench.replay.strategies.view import BufferView, Context


@dataclass(frozen=True)
class Uniform(Sampling):
    """Every stored experience with equal chance, with replacement."""

    independent = lasting = steady = True
    importance_undefined = "its draws have equal chances, so all weights would be 1"

    def start(self, view: BufferView) -> RunningSampling:
        return RunningUniform(view)


class RunningUniform(RunningSampling):
    """Uniform replay for a population."""

    def calls(self, contexts: Sequence[Context], count: Indices, offers: Indices, draws: Draws) -> Sequence[Call]:
        return [Call(_draw_uniform, (self.stream.state, count, draws))]


@kernel
def _draw_uniform(stream: NDArray[np.uint64], count: Indices, draws: Draws) -> None:
    for m in range(draws.idx.shape[0]):
        for b in range(draws.idx.shape[1]):
            draws.idx[m, b] = next_below(stream[m], count[m])
            draws.probability[m, b] = 1.0 / count[m]
