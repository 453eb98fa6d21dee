"""Rank-based prioritised replay (Schaul et al. 2016; de Bruin et al. 2018, eq. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call, Whole
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_double
from replaybench.replay.arrays import Indices
from replaybench.replay.orders.rank_law import Sums, first_sums, rank_at, rank_in_segment, segment_edges
from replaybench.replay.orders.rank_order import order_select_many
from replaybench.replay.orders.rank_tree import OrderState
from replaybench.replay.strategies.sampling.interface import Draws, RunningSampling, Sampling
from replaybench.replay.strategies.view import BufferView, Context


@dataclass(frozen=True)
class PER(Sampling):
    """Rank-based prioritised replay: P ∝ rank^−α by |δ| as last seen, infinite before the first use (eq. 7).

    The ranks, always current, are cut into B segments of equal cumulative probability, each at least one rank
    wide, and one experience is drawn uniformly from each (Schaul et al. 2016). While there are fewer ranks than that,
    each sample is drawn by rank^−α from its B-th of the probability.
    """

    alpha: float = 0.7
    orders = ("td_error",)
    feedback = ("td_error",)
    lasting = steady = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < np.inf:
            raise UserError(f"PER({self.alpha:g}): α must be a finite number ≥ 0")

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningPER(self.alpha, view)


class _RunningPER(RunningSampling):
    def __init__(self, alpha: float, view: BufferView) -> None:
        super().__init__(view)
        self.alpha, self.order, self.head = alpha, view.orders["td_error"].state, first_sums(alpha)
        self.edges = np.zeros((0, 0), np.int64)
        self.edges_for = np.zeros(0, np.int64)

    def calls(self, contexts: Sequence[Context], count: Indices, offers: Indices, draws: Draws) -> Sequence[Call]:
        members, batch = draws.idx.shape
        if self.edges.shape != (members, batch + 1):
            self.edges, self.edges_for = np.zeros((members, batch + 1), np.int64), np.zeros(members, np.int64)
        law = Whole(self.head), self.alpha, self.edges_for, self.edges
        return [Call(_draw_stratified, (self.order, self.stream.state, *law, count, draws))]


@kernel
def _draw_stratified(
    order: OrderState,
    stream: NDArray[np.uint64],
    head: Sums,
    alpha: float,
    edges_for: Indices,
    edges: Indices,
    count: Indices,
    draws: Draws,
) -> None:
    members, segments = draws.idx.shape
    ranks = np.empty(segments, np.int64)
    for m in range(members):
        if count[m] < segments:
            for b in range(segments):
                share = (b + next_double(stream[m])) / segments
                ranks[b], draws.probability[m, b] = rank_at(head, alpha, count[m], share)
        else:
            if edges_for[m] != count[m]:
                segment_edges(head, alpha, count[m], edges[m])
                edges_for[m] = count[m]
            for b in range(segments):
                ranks[b], width = rank_in_segment(edges[m], b, next_double(stream[m]))
                draws.probability[m, b] = 1.0 / (segments * width)
        order_select_many(order, m, ranks, draws.idx[m])
