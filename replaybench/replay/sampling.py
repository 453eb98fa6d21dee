"""Which stored experiences are replayed (de Bruin et al. 2018, sections 3.3.1 and 3.3.2).

As with retention, a strategy is a frozen dataclass, `start` gives its running form, and a new one is a class here
and a line in `SAMPLINGS`. Samplers return slots and probabilities; a modifier such as `IS` turns probabilities into
weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_below, next_double
from replaybench.replay.order import Order, order_select, order_set, order_update
from replaybench.replay.order_tree import OrderState

State = dict[str, NDArray[np.generic]]
Indices = NDArray[np.int64]
Floats = NDArray[np.float32]


class Context(NamedTuple):
    """All that a strategy may know beside the stored experiences.

    `progress` runs from 0 at the first episode of the run to 1 at its end.
    """

    progress: float = 0.0


class RunningSampling(Protocol):
    """Draws for a population."""

    annotations: tuple[str, ...]
    """Annotations that a learner must return for this strategy to work."""

    def stored(self, slots: NDArray[np.int64]) -> None:
        """Learn that each member has a new occupant in `slots[m]` (−1: none)."""

    def draw(self, count: NDArray[np.int64], idx: Indices, probability: NDArray[np.float64]) -> None:
        """Fill idx `[M, B]` with slots and `probability` with the chance per draw, for `count` `[M]` stored."""

    def annotate(self, idx: Indices, fresh: NDArray[np.bool_], annotations: dict[str, Floats]) -> None:
        """Use what the learner returned for the samples at idx `[M, B]` that are still there (`fresh`)."""

    def state_dict(self, stored: int) -> State:
        """Return the arrays that a resumed run needs, those per slot cut to the `stored` slots in use."""

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`: the next draws are identical."""


@dataclass(frozen=True)
class IS:
    """Importance-sampling weights (1 / (N·P))^β, β linear in the run's progress (eq. 8).

    N counts the experiences stored at present and P is the chance of the stratified draw. With `normalise` the
    weights of a batch are divided by their maximum, as Schaul et al. (2016) do.
    """

    first: float = 0.5
    last: float = 1.0
    normalise: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.first <= 1 and 0 <= self.last <= 1):
            raise UserError(f"IS({self.first:g}→{self.last:g}): both exponents must lie in [0, 1]")

    def weigh(
        self, count: NDArray[np.int64], probability: NDArray[np.float64], progress: float, weight: Floats
    ) -> None:
        """Fill weight `[M, B]`."""
        beta = self.first + (self.last - self.first) * progress
        raw = (count[:, None] * probability) ** -beta
        weight[:] = raw / raw.max(axis=1, keepdims=True) if self.normalise else raw


@dataclass(frozen=True)
class Uniform:
    """Every stored experience with equal chance, with replacement."""

    ranked = False

    importance: IS | None = None

    def start(self, root: int, members: Sequence[int], capacity: int) -> RunningSampling:
        return _RunningUniform(Stream(root, members, "sampling"))


class _RunningUniform:
    annotations: tuple[str, ...] = ()

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def stored(self, slots: NDArray[np.int64]) -> None:
        """Nothing is kept per slot."""

    def draw(self, count: NDArray[np.int64], idx: Indices, probability: NDArray[np.float64]) -> None:
        _draw_uniform(self.stream.state, count, idx, probability)

    def annotate(self, idx: Indices, fresh: NDArray[np.bool_], annotations: dict[str, Floats]) -> None:
        """Nothing is used."""

    def state_dict(self, stored: int) -> State:
        return {"sampling_stream": self.stream.state}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.stream.state[:] = state["sampling_stream"]


@kernel
def _draw_uniform(
    stream: NDArray[np.uint64], count: NDArray[np.int64], idx: Indices, probability: NDArray[np.float64]
) -> None:
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            idx[m, b] = next_below(stream[m], count[m])
            probability[m, b] = 1.0 / count[m]


@dataclass(frozen=True)
class PER:
    """Rank-based prioritised replay: P ∝ rank^−α by |δ| as last seen, infinite before the first use (eq. 7).

    The ranks, always current, are cut into B segments of equal cumulative probability, each at least one rank
    wide, and one experience is drawn uniformly from each (Schaul et al. 2016).
    """

    ranked = True

    alpha: float = 0.7
    importance: IS | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < np.inf:
            raise UserError(f"PER({self.alpha:g}): α must be a finite number ≥ 0")

    def start(self, root: int, members: Sequence[int], capacity: int) -> RunningSampling:
        return _RunningPER(self.alpha, Stream(root, members, "sampling"), capacity)


class _RunningPER:
    annotations: tuple[str, ...] = ("td_error",)

    def __init__(self, alpha: float, stream: Stream, capacity: int) -> None:
        self.stream, self.capacity = stream, capacity
        self.order = Order(len(stream.state), capacity)
        self.cumulative = np.cumsum(np.arange(1, capacity + 1, dtype=np.float64) ** -alpha)
        self.edges = np.zeros((0, 0), np.int64)
        self.edges_for = np.zeros(0, np.int64)

    def stored(self, slots: NDArray[np.int64]) -> None:
        _set_infinite(self.order.state, slots)

    def draw(self, count: NDArray[np.int64], idx: Indices, probability: NDArray[np.float64]) -> None:
        if self.edges.shape != (len(count), idx.shape[1] + 1):
            self.edges = np.zeros((len(count), idx.shape[1] + 1), np.int64)
            self.edges_for = np.zeros(len(count), np.int64)
        _draw_stratified(
            self.order.state, self.stream.state, self.cumulative, self.edges_for, self.edges, count, idx, probability
        )

    def annotate(self, idx: Indices, fresh: NDArray[np.bool_], annotations: dict[str, Floats]) -> None:
        _set_magnitudes(self.order.state, idx, fresh, annotations["td_error"])

    def state_dict(self, stored: int) -> State:
        return {"sampling_stream": self.stream.state, "td_error": self.order.keys()[:, :stored]}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.stream.state[:] = state["sampling_stream"]
        keys = np.full((len(self.stream.state), self.capacity), np.nan, np.float32)
        keys[:, : state["td_error"].shape[1]] = state["td_error"]
        self.order.load_keys(keys)


@kernel
def segment_edges(cumulative: NDArray[np.float64], count: int, edges: NDArray[np.int64]) -> None:
    """Cut ranks 0 … count−1 into B segments of equal cumulative probability: segment b is edges[b] … edges[b+1]−1.

    Each is at least one rank wide, which moves later edges up where the head of the distribution is steep. With
    fewer ranks than segments, the first `count` segments get one rank each and the others share the last rank.
    """
    segments = edges.size - 1
    edges[0], edges[segments] = 0, count
    if count < segments:
        for b in range(1, segments):
            edges[b] = min(b, count)
        return
    total = cumulative[count - 1]
    for b in range(1, segments):
        quantile = np.searchsorted(cumulative[:count], total * b / segments, side="right")
        edges[b] = min(max(quantile, edges[b - 1] + 1), count - segments + b)


@kernel
def _draw_stratified(
    order: OrderState,
    stream: NDArray[np.uint64],
    cumulative: NDArray[np.float64],
    edges_for: NDArray[np.int64],
    edges: NDArray[np.int64],
    count: NDArray[np.int64],
    idx: Indices,
    probability: NDArray[np.float64],
) -> None:
    segments = idx.shape[1]
    for m in range(idx.shape[0]):
        if edges_for[m] != count[m]:
            segment_edges(cumulative, count[m], edges[m])
            edges_for[m] = count[m]
        for b in range(segments):
            low = min(edges[m, b], count[m] - 1)
            width = max(edges[m, b + 1] - low, 1)
            idx[m, b] = order_select(order, m, low + int(next_double(stream[m]) * width))
            probability[m, b] = 1.0 / (segments * width)


@kernel
def _set_infinite(order: OrderState, slots: NDArray[np.int64]) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            order_set(order, m, slots[m], np.inf)


@kernel
def _set_magnitudes(order: OrderState, idx: Indices, fresh: NDArray[np.bool_], td_error: Floats) -> None:
    slots = np.empty(idx.shape[1], np.int64)
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            slots[b] = idx[m, b] if fresh[m, b] else -1
        order_update(order, m, slots, np.abs(td_error[m]))


Sampling = Uniform | PER
SAMPLINGS: Final[dict[str, type[Uniform] | type[PER]]] = {"Uniform": Uniform, "PER": PER}
