"""Which stored experiences are replayed: what every sampling strategy is, and uniform sampling.

As with retention, a strategy is a frozen dataclass, `start` gives its running form, and a new one is a class and a
line in `replaybench.replay.strategies.strategy`. A sampler returns slots and the probability of each draw; weights are
made from those by a modifier (`replaybench.replay.strategies.weighting.interface`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_below
from replaybench.replay.strategies.setting import Context, Floats, Indices, Setting, State


class Draws(NamedTuple):
    """What a sampler fills in.

    Attributes:
        idx: slots int64 `[M, B]`.
        probability: chance of each draw, float64 `[M, B]`; NaN where it is not known.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
    """

    idx: Indices
    probability: NDArray[np.float64]
    rate_factor: Floats


class RunningSampling(Protocol):
    """Draws for a population."""

    def stored(self, slots: Indices) -> None:
        """Learn that each member has a new occupant in `slots[m]` (−1: none)."""

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        """Fill `draws`, given the numbers of experiences stored and offered `[M]`; each stores at least one."""

    def annotate(self, idx: Indices, td_error: Floats) -> None:
        """Use |δ| `[M, B]` of the experiences in slots idx `[M, B]`; an idx below 0 is to be skipped."""

    def state_dict(self, stored: int) -> State:
        """Return the arrays that a resumed run needs, those per slot cut to the `stored` slots in use."""

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`: the next draws are identical."""


class Sampling(Protocol):
    """The frozen description."""

    @property
    def orders(self) -> tuple[str, ...]:
        """Metrics by which slots must be kept in rank order."""

    @property
    def attends(self) -> bool:
        """Whether draws depend on the state that the agent attends to."""

    @property
    def feedback(self) -> tuple[str, ...]:
        """What it cannot do without while a learner trains: of `td_error`, `rate` and `phase`."""

    def slot_bytes(self, in_turn: bool) -> int:
        """Return about how many bytes a slot costs it beside rank orders; `in_turn` as in `Setting`."""

    @property
    def why_no_importance(self) -> str:
        """Why importance weights of these draws make no sense; empty if they do."""

    def start(self, setting: Setting) -> RunningSampling:
        """Return the running form."""


class DrawsOnly:
    """The part of a running sampler that keeps nothing but its random stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def stored(self, slots: Indices) -> None:
        """Nothing is kept per slot."""

    def annotate(self, idx: Indices, td_error: Floats) -> None:
        """Nothing is used."""

    def state_dict(self, stored: int) -> State:
        """Return the stream."""
        return {"sampling_stream": self.stream.state}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`."""
        self.stream.state[:] = state["sampling_stream"]


@dataclass(frozen=True)
class Uniform:
    """Every stored experience with equal chance, with replacement."""

    orders = ()
    attends = False
    feedback = ()
    why_no_importance = "its draws have equal chances, so all weights would be 1"

    def slot_bytes(self, in_turn: bool) -> int:
        return 0

    def start(self, setting: Setting) -> RunningSampling:
        return _RunningUniform(setting.stream("sampling"))


class _RunningUniform(DrawsOnly):
    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        _draw_uniform(self.stream.state, count, draws)


@kernel
def _draw_uniform(stream: NDArray[np.uint64], count: Indices, draws: Draws) -> None:
    for m in range(draws.idx.shape[0]):
        for b in range(draws.idx.shape[1]):
            draws.idx[m, b] = next_below(stream[m], count[m])
            draws.probability[m, b] = 1.0 / count[m]
