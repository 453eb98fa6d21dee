"""Prioritised sampling by rank (`PER`) and in proportion to the TD error (`PERprop`; Schaul et al., 2016).

`LAP` and `PAL` (Fujimoto et al., 2020) pair a sampling rule with the critic's loss that makes their gradients equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import CriticLoss
from replaybench.replay.orders.priority_sums import SumState, make_sums, sum_find, sum_rebuild, sum_set, sum_total
from replaybench.replay.orders.rank_law import Sums, first_sums, rank_at, rank_in_segment, segment_edges
from replaybench.replay.orders.rank_order import OrderState, order_select
from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import (
    BufferView,
    Context,
    Draws,
    RunningSampling,
    Sampling,
    check_exponent,
)
from replaybench.replay.strategies.uniform import RunningUniform
from replaybench.runtime.arrays import Floats32, Integers32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_double

# The smallest normal number. With a large α, p could round to 0 and the experience would never be drawn again.
_LEAST: Final = np.float32(2.0**-126)


@dataclass(frozen=True)
class PERprop(Sampling):
    """Proportional prioritised sampling with P ∝ p = (|δ| + ε)^α (Schaul et al., 2016).

    δ is the TD error in the last update that used the experience. New experiences, and experiences whose |δ| is not
    finite, get the largest p of the run so far. The sum of all p is cut into B equal parts, for the batch size B. One
    experience is drawn from each part.
    """

    alpha: float = 0.6
    epsilon: float = 1e-6
    feedback = ("td_error",)
    by_place = steady = True
    largest_bare = 10.0

    def __post_init__(self) -> None:
        check_exponent(self, self.alpha)
        if not 0 < self.epsilon < np.inf:
            raise UserError(f"PERprop: epsilon must be a finite number above 0, not {self.epsilon:g}")

    def slot_bytes(self, in_turn: bool) -> int:
        return 5

    def start(self, view: BufferView) -> RunningSampling:
        return RunningPERprop(self.alpha, self.epsilon, 0.0, view)


@dataclass(frozen=True)
class LAP(Sampling):
    """Loss-adjusted prioritised sampling with P ∝ max(|δ|, 1)^α (Fujimoto et al., 2020, eq. 13 and Algorithm 1).

    The critic's loss is Huber's, whose gradient is bounded for |δ| > 1, and there are no importance weights. Twin
    critics return the larger |δ|. New experiences, and experiences whose |δ| is not finite, get the largest priority of
    the run so far. As with `PERprop`, one experience is drawn from each of B equal parts of the sum of priorities.
    """

    alpha: float = 0.4
    feedback = ("td_error",)
    by_place = steady = True
    largest_bare = 10.0
    importance_undefined = "its loss replaces them"

    @property
    def critic_loss(self) -> CriticLoss:
        return CriticLoss(1.0)

    def __post_init__(self) -> None:
        check_exponent(self, self.alpha)

    def slot_bytes(self, in_turn: bool) -> int:
        return 5

    def start(self, view: BufferView) -> RunningSampling:
        return RunningPERprop(self.alpha, 0.0, 1.0, view)


@dataclass(frozen=True)
class PAL(Sampling):
    """Uniform sampling with the prioritised approximation loss (Fujimoto et al., 2020, eq. 15 and 16).

    The critic's loss is δ²/2 for |δ| ≤ 1 and |δ|^(1 + α)/(1 + α) above, divided by the mean of max(|δ|, 1)^α over the
    batch. Its expected gradient equals that of `LAP` with the same α.
    """

    alpha: float = 0.4
    independent = steady = True
    largest_bare = 10.0
    importance_undefined = "its draws have equal chances, so all weights would be 1"

    def __post_init__(self) -> None:
        check_exponent(self, self.alpha)

    @property
    def critic_loss(self) -> CriticLoss:
        return CriticLoss(1.0, self.alpha, averaged=True)

    def start(self, view: BufferView) -> RunningSampling:
        return RunningUniform(view)


class RunningPERprop(RunningSampling):
    """The object that samples with P ∝ max(|δ| + ε, floor)^α during a run."""

    def __init__(self, alpha: float, epsilon: float, floor: float, view: BufferView) -> None:
        super().__init__(view)
        self.rule = alpha, epsilon, floor
        self.sums = make_sums(len(view.members), view.capacity)
        self.largest = np.ones(len(view.members), np.float32)
        self.place_of = np.empty((len(view.members), 0), np.int32)

    def stored(self, slots: Indices) -> None:
        set_largest(self.sums, self.place_of, self.largest, slots)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        draw_proportional(self.sums, self.stream.state, draws)

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        set_priorities(self.sums, self.place_of, self.largest, idx, td_error, *self.rule)

    def state_dict(self, stored: int) -> State:
        own = {"priority": self.sums.leaf[:, :stored], "priority_largest": self.largest}
        return {**super().state_dict(stored), **own}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        priority = read_priority(state)
        self.sums.leaf[:] = 0
        self.sums.leaf[:, : priority.shape[1]] = priority
        self.largest[:] = state["priority_largest"]
        for m in range(len(self.largest)):
            sum_rebuild(self.sums, m)


def read_priority(state: Mapping[str, np.ndarray]) -> Floats32:
    """Return the saved priorities, shape `[M, n]`, or raise `ValueError` if one is negative or not finite."""
    priority: Floats32 = state["priority"]
    if not ((priority >= 0) & (priority < np.inf)).all():
        raise ValueError("a priority is negative or not finite")
    return priority


@kernel
def priority_of(td_error: float, largest: Floats32, m: int, alpha: float, epsilon: float, floor: float) -> Any:
    """Return the priority max(|δ| + ε, floor)^α of an experience, and update the m-th buffer's largest one so far.

    If the priority is not finite, the largest priority so far is returned.
    """
    size = abs(np.float64(td_error)) + epsilon
    priority = np.float32((floor if size < floor else size) ** alpha)  # NaN stays NaN
    if not priority < np.inf:
        return largest[m]
    priority = max(priority, _LEAST)
    largest[m] = max(largest[m], priority)
    return priority


@kernel
def _position(place_of: Integers32, m: int, slot: int) -> int:
    return int(place_of[m, slot]) if place_of.shape[1] else slot


@kernel
def set_largest(sums: SumState, place_of: Integers32, largest: Floats32, slots: Indices) -> None:
    """Set the priority of the new experience in slot `slots[m]` (−1: none) of the m-th buffer to the largest one.

    `place_of` `[M, C]` has the position of each slot in the tree. If C is 0, positions are slots.
    """
    for m in range(slots.size):
        if slots[m] >= 0:
            sum_set(sums, m, _position(place_of, m, slots[m]), largest[m])


@kernel
def set_priorities(
    sums: SumState, place_of: Integers32, largest: Floats32, idx: Indices, td_error: Floats32, alpha: float,
    epsilon: float, floor: float,
) -> None:  # fmt: skip
    """Set the priorities of samples in slots `idx` `[M, B]` (−1: none) from their TD errors; see `set_largest`."""
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            if idx[m, b] >= 0:
                priority = priority_of(td_error[m, b], largest, m, alpha, epsilon, floor)
                sum_set(sums, m, _position(place_of, m, idx[m, b]), priority)


@kernel
def draw_proportional(sums: SumState, stream: NDArray[np.uint64], draws: Draws) -> None:
    """Draw one slot from each of B equal parts of the sum of all priorities, for each member."""
    members, batch = draws.idx.shape
    for m in range(members):
        total = sum_total(sums, m)
        for b in range(batch):
            draws.idx[m, b] = sum_find(sums, m, total * ((b + next_double(stream[m])) / batch))
            draws.probability[m, b] = sums.leaf[m, draws.idx[m, b]] / total


@dataclass(frozen=True)
class PER(Sampling):
    """Rank-based prioritised sampling with P ∝ rank^−α (Schaul et al., 2016; de Bruin et al., 2018, eq. 7).

    Experiences are ranked by |δ| in the last update that used the experience. |δ| is infinite for new experiences.
    The buffer maintains this order, because `orders` names it: `Replay.add` and `Replay.annotate` set |δ|. For the
    batch size B, ranks are cut into B segments of equal probability, each with at least one rank. One experience is
    drawn uniformly from each segment. If fewer than B experiences are stored, sample b is drawn by rank^−α from the
    b-th of B equal parts of the probability.
    """

    alpha: float = 0.7
    orders = ("td_error",)
    feedback = ("td_error",)
    steady = True
    largest_bare = 10.0

    def __post_init__(self) -> None:
        check_exponent(self, self.alpha)

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningPER(self.alpha, view)


class _RunningPER(RunningSampling):
    def __init__(self, alpha: float, view: BufferView) -> None:
        super().__init__(view)
        self.alpha, self.order, self.rank_sums = alpha, view.orders["td_error"].state, first_sums(alpha)
        self.edges = np.zeros((0, 0), np.int64)
        self.edges_for = np.zeros(0, np.int64)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        members, batch = draws.idx.shape
        if self.edges.shape != (members, batch + 1):
            self.edges, self.edges_for = np.zeros((members, batch + 1), np.int64), np.zeros(members, np.int64)
        law = self.rank_sums, self.alpha, self.edges_for, self.edges
        _draw_stratified(self.order, self.stream.state, *law, count, draws)


@kernel
def _draw_stratified(
    order: OrderState,
    stream: NDArray[np.uint64],
    rank_sums: Sums,
    alpha: float,
    edges_for: Indices,
    edges: Indices,
    count: Indices,
    draws: Draws,
) -> None:
    members, segments = draws.idx.shape
    for m in range(members):
        if count[m] < segments:
            for b in range(segments):
                share = (b + next_double(stream[m])) / segments
                draws.idx[m, b], draws.probability[m, b] = rank_at(rank_sums, alpha, count[m], share)
        else:
            if edges_for[m] != count[m]:
                segment_edges(rank_sums, alpha, count[m], edges[m])
                edges_for[m] = count[m]
            for b in range(segments):
                draws.idx[m, b], width = rank_in_segment(edges[m], b, next_double(stream[m]))
                draws.probability[m, b] = 1.0 / (segments * width)
        for b in range(segments):  # until here, idx holds ranks
            draws.idx[m, b] = order_select(order, m, draws.idx[m, b])
