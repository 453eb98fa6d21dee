"""Overwriting by rank: small TD errors or little exploration first (de Bruin et al. 2018, section 7.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_double
from replaybench.replay.arrays import Indices
from replaybench.replay.orders.rank_law import (
    Sums,
    first_sums,
    rank_at,
    rank_in_segment,
    segment_edges,
)
from replaybench.replay.orders.rank_order import order_select, order_size
from replaybench.replay.orders.rank_tree import OrderState
from replaybench.replay.strategies.retention.interface import Retention, RunningRetention
from replaybench.replay.strategies.running import Drawing
from replaybench.replay.strategies.view import BufferView

_FEWEST_SEGMENTS: Final = 3
_RANKS_PER_SEGMENT: Final = 500


@dataclass(frozen=True)
class _Ranked(Retention):
    """Overwrite by rank: the experience with the r-th smallest metric is the victim with P ∝ r^−α (eq. 7).

    `segments` cuts the ranks into that many parts of equal probability and draws uniformly inside one of them;
    "authors" takes max(3, C/500) of them, as the authors' code does, None draws from rank^−α exactly, which differs
    at the extreme head only. Of equal metrics the oldest experience's counts as the smallest, as in the authors' sorted
    list: those of a learner that rarely explores are nearly all 0.
    """

    alpha: float = 1.0
    segments: int | Literal["authors"] | None = "authors"
    slot_bytes = 10  # of equal metrics the oldest comes first: the order keeps ages, too

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if not 0 <= self.alpha < np.inf:
            raise UserError(f"{name}({self.alpha:g}): α must be a finite number ≥ 0")
        if not (self.segments in ("authors", None) or (isinstance(self.segments, int) and self.segments >= 1)):
            raise UserError(f"{name}: segments must be a whole number ≥ 1, authors or none, not {self.segments}")

    def start_by(self, metric: str, view: BufferView) -> RunningRetention:
        """Return the running form that takes its victims by this metric."""
        rule = max(_FEWEST_SEGMENTS, view.capacity // _RANKS_PER_SEGMENT)
        segments = rule if self.segments == "authors" else int(self.segments or 0)
        order = view.orders[metric].state
        return _RunningRanked(self.alpha, min(segments, view.capacity), order, view)


@dataclass(frozen=True)
class TDE(_Ranked):
    """Overwrite experiences with small TD error, |δ| as last seen, infinite before the first use (section 7.1)."""

    orders = ("td_error",)

    def start(self, view: BufferView) -> RunningRetention:
        return self.start_by("td_error", view)


@dataclass(frozen=True)
class Expl(_Ranked):
    """Overwrite experiences with little exploration: ‖a − π(s)‖₁ at collection, never recomputed (section 7.1)."""

    orders = ("exploration",)

    def start(self, view: BufferView) -> RunningRetention:
        return self.start_by("exploration", view)


class _RunningRanked(Drawing, RunningRetention):
    def __init__(self, alpha: float, segments: int, order: OrderState, view: BufferView) -> None:
        super().__init__(view, "retention")
        self.order, self.alpha = order, alpha
        self.head = first_sums(alpha)
        self.edges = np.zeros(segments + 1, np.int64)
        self.edges_for = 0

    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        if self.edges_for != capacity and self.edges.size > 1:
            segment_edges(self.head, self.alpha, capacity, self.edges)
            self.edges_for = capacity
        _ranked_victims(self.order, self.stream.state, self.head, self.alpha, self.edges, slots)


@kernel
def _ranked_victims(
    order: OrderState, stream: NDArray[np.uint64], head: Sums, alpha: float, edges: Indices, slots: Indices
) -> None:
    for m in range(slots.size):
        if slots[m] != -2:
            continue
        size = order_size(order, m)
        if edges.size > 1:
            place = next_double(stream[m]) * (edges.size - 1)
            rank, _ = rank_in_segment(edges, int(place), place - int(place))
        else:
            rank, _ = rank_at(head, alpha, size, next_double(stream[m]))
        slots[m] = order_select(order, m, size - 1 - min(rank, size - 1))
