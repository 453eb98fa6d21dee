"""Which experience is overwritten when a buffer is full (de Bruin et al. 2018, sections 3.3 and 7.1).

A retention strategy is a frozen dataclass: its fields are what the notation writes in brackets. `start` gives the
running form for a population. A new strategy is one class here and one line in
`replaybench.replay.strategies.strategy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_below, next_double
from replaybench.replay.orders.rank_law import Sums, first_sums, partial_sum, ranks_below, segment_edges
from replaybench.replay.orders.rank_order import order_select, order_size
from replaybench.replay.orders.rank_tree import OrderState
from replaybench.replay.strategies.setting import Setting, State

Slots = NDArray[np.int64]


class RunningRetention(Protocol):
    """Chooses slots for a population whose buffers are full."""

    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        """Fill `slots[m]` for every member whose entry is −2 (its buffer is full): a slot, or −1 for 'discard'.

        `offers` `[M]` counts each member's offers, the present one included.
        """

    def state_dict(self) -> State:
        """Return the arrays that a resumed run needs."""

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`: the next victims are identical."""


class Retention(Protocol):
    """The frozen description."""

    @property
    def bounded(self) -> bool:
        """False if nothing is ever discarded: the buffer then grows to the number of experiences offered."""

    @property
    def in_turn(self) -> bool:
        """Whether slots are filled and overwritten in turn, so that their order is that of age."""

    @property
    def orders(self) -> tuple[str, ...]:
        """Metrics by which slots must be kept in rank order."""

    @property
    def traces(self) -> tuple[str, ...]:
        """Traces that the learner must keep."""

    def start(self, setting: Setting) -> RunningRetention:
        """Return the running form."""


class _Stateless:
    """The part of a running retention that keeps nothing."""

    def state_dict(self) -> State:
        """Nothing is kept."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Nothing is kept."""


class _DrawsOnly:
    """The part of a running retention that keeps nothing but its random stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def state_dict(self) -> State:
        """Return the stream."""
        return {"retention_stream": self.stream.state}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`."""
        self.stream.state[:] = state["retention_stream"]


@dataclass(frozen=True)
class FIFO:
    """First in, first out: the oldest experience is overwritten."""

    bounded = True
    in_turn = True
    orders = ()
    traces = ()

    def start(self, setting: Setting) -> RunningRetention:
        return _RunningFIFO()


class _RunningFIFO(_Stateless):
    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        full = slots == -2
        slots[full] = (offers[full] - 1) % capacity


@dataclass(frozen=True)
class FULL:
    """Keep everything (the paper's FULL DB)."""

    bounded = False
    in_turn = True
    orders = ()
    traces = ()

    def start(self, setting: Setting) -> RunningRetention:
        return _RunningFULL()


class _RunningFULL(_Stateless):
    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        if (slots == -2).any():
            raise OverflowError(
                f"a FULL buffer was offered more than the {capacity} experiences or units it has room for"
            )


@dataclass(frozen=True)
class Resv:
    """Reservoir sampling (Vitter 1985): every experience offered so far is kept with equal probability.

    Experience number i enters a full buffer with probability C/i and overwrites a uniformly drawn victim.
    """

    bounded = True
    in_turn = False
    orders = ()
    traces = ()

    def start(self, setting: Setting) -> RunningRetention:
        return _RunningResv(setting.stream("retention"))


class _RunningResv(_DrawsOnly):
    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        _reservoir(self.stream.state, offers, capacity, slots)


@kernel
def _reservoir(state: NDArray[np.uint64], offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
    for m in range(slots.size):
        if slots[m] == -2:
            place = next_below(state[m], offers[m])
            slots[m] = place if place < capacity else -1


_FEWEST_SEGMENTS: Final = 3
_RANKS_PER_SEGMENT: Final = 500


@dataclass(frozen=True)
class _Ranked:
    """Overwrite by rank: the experience with the r-th smallest metric is the victim with P ∝ r^−α (eq. 7).

    `segments` cuts the ranks into that many parts of equal probability and draws uniformly inside one of them;
    "authors" takes max(3, C/500) of them, as the authors' code does, None draws from rank^−α exactly, which differs
    at the extreme head only. Of equal metrics the oldest experience's counts as the smallest, as in the authors' sorted
    list: those of a learner that rarely explores are nearly all 0.
    """

    alpha: float = 1.0
    segments: int | Literal["authors"] | None = "authors"
    bounded = True
    in_turn = False
    traces = ()

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not 0 <= self.alpha < np.inf:
            raise UserError(f"{name}({self.alpha:g}): α must be a finite number ≥ 0")
        if not (self.segments in ("authors", None) or (isinstance(self.segments, int) and self.segments >= 1)):
            raise UserError(f"{name}: segments must be a whole number ≥ 1, authors or none, not {self.segments}")

    def start_by(self, metric: str, setting: Setting) -> RunningRetention:
        """Return the running form that takes its victims by this metric."""
        rule = max(_FEWEST_SEGMENTS, setting.capacity // _RANKS_PER_SEGMENT)
        segments = rule if self.segments == "authors" else int(self.segments or 0)
        order = setting.orders[metric].state
        return _RunningRanked(self.alpha, min(segments, setting.capacity), order, setting.stream("retention"))


@dataclass(frozen=True)
class TDE(_Ranked):
    """Overwrite experiences with small TD error, |δ| as last seen, infinite before the first use (section 7.1)."""

    orders = ("td_error",)

    def start(self, setting: Setting) -> RunningRetention:
        return self.start_by("td_error", setting)


@dataclass(frozen=True)
class Expl(_Ranked):
    """Overwrite experiences with little exploration: ‖a − π(s)‖₁ at collection, never recomputed (section 7.1)."""

    orders = ("exploration",)

    def start(self, setting: Setting) -> RunningRetention:
        return self.start_by("exploration", setting)


class _RunningRanked(_DrawsOnly):
    def __init__(self, alpha: float, segments: int, order: OrderState, stream: Stream) -> None:
        super().__init__(stream)
        self.order, self.alpha = order, alpha
        self.head = first_sums(alpha)
        self.edges = np.zeros(segments + 1, np.int64)
        self.edges_for = 0

    def slots(self, offers: NDArray[np.int64], capacity: int, slots: Slots) -> None:
        if self.edges_for != capacity and self.edges.size > 1:
            segment_edges(self.head, self.alpha, capacity, self.edges)
            self.edges_for = capacity
        _ranked_victims(self.order, self.stream.state, self.head, self.alpha, self.edges, slots)


@kernel
def _ranked_victims(
    order: OrderState, stream: NDArray[np.uint64], head: Sums, alpha: float, edges: NDArray[np.int64], slots: Slots
) -> None:
    for m in range(slots.size):
        if slots[m] != -2:
            continue
        size = order_size(order, m)
        if edges.size > 1:
            place = next_double(stream[m]) * (edges.size - 1)
            low = edges[int(place)]
            rank = low + int((place - int(place)) * (edges[int(place) + 1] - low))
        else:
            rank = ranks_below(head, alpha, size, next_double(stream[m]) * partial_sum(head, alpha, size))
        slots[m] = order_select(order, m, size - 1 - min(rank, size - 1))
