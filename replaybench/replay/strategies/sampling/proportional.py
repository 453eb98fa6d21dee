"""Proportional prioritised replay (Schaul et al. 2016, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_double
from replaybench.replay.arrays import Floats, Indices, State
from replaybench.replay.orders.priority_sums import (
    SumState,
    make_sums,
    sum_rebuild,
    sum_search,
    sum_set,
    sum_total,
    sum_update,
)
from replaybench.replay.strategies.sampling.interface import Draws, RunningSampling, Sampling
from replaybench.replay.strategies.view import BufferView, Context

# The smallest normal number: under a large α, a priority of 0 would never be drawn again.
_LEAST: Final = np.float32(2.0**-126)


@dataclass(frozen=True)
class PERprop(Sampling):
    """Proportional prioritised replay: P ∝ p = (|δ| + ε)^α, new experiences get the largest p so far.

    All priority is cut into B equal parts and one experience is drawn from each. A |δ| that is not finite counts as
    the largest p.
    """

    alpha: float = 0.6
    epsilon: float = 1e-6
    feedback = ("td_error",)
    by_place = True
    lasting = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < np.inf:
            raise UserError(f"PERprop({self.alpha:g}): α must be a finite number ≥ 0")
        if not 0 < self.epsilon < np.inf:
            raise UserError(f"PERprop: epsilon must be a finite number above 0, not {self.epsilon:g}")

    def slot_bytes(self, in_turn: bool) -> int:
        return 5

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningPERprop(self, view)


class _RunningPERprop(RunningSampling):
    def __init__(self, description: PERprop, view: BufferView) -> None:
        super().__init__(view)
        self.description = description
        self.sums = make_sums(len(view.members), view.capacity)
        self.largest = np.ones(len(view.members), np.float32)

    def storing(self, slots: Indices) -> Sequence[Call]:
        return [Call(_set_largest, (self.sums, self.largest, slots))]

    def calls(self, contexts: Sequence[Context], count: Indices, offers: Indices, draws: Draws) -> Sequence[Call]:
        return [Call(_draw_proportional, (self.sums, self.stream.state, draws))]

    def annotation_calls(self, idx: Indices, td_error: Floats) -> Sequence[Call]:
        rule = self.description.alpha, self.description.epsilon
        return [Call(_set_priorities, (self.sums, self.largest, idx, td_error, *rule))]

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


def read_priority(state: Mapping[str, NDArray[Any]]) -> Floats:
    """Return the priorities `[M, n]` of a saved state.

    Raises:
        ValueError: one is negative or not finite, so that there is no drawing by them.
    """
    priority: Floats = state["priority"]
    if not ((priority >= 0) & (priority < np.inf)).all():
        raise ValueError("a priority is negative or not finite")
    return priority


@kernel
def priority_of(td_error: float, largest: Floats, m: int, alpha: float, epsilon: float) -> Any:
    """Return p of a |δ|, and remember it if it is the largest so far."""
    priority = np.float32((abs(np.float64(td_error)) + epsilon) ** alpha)
    if not priority < np.inf:
        return largest[m]
    priority = max(priority, _LEAST)
    largest[m] = max(largest[m], priority)
    return priority


@kernel
def _set_largest(sums: SumState, largest: Floats, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            sum_set(sums, m, slots[m], largest[m])


@kernel
def _set_priorities(
    sums: SumState, largest: Floats, idx: Indices, td_error: Floats, alpha: float, epsilon: float
) -> None:
    priority = np.empty(idx.shape[1], np.float32)
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            if idx[m, b] >= 0:
                priority[b] = priority_of(td_error[m, b], largest, m, alpha, epsilon)
        sum_update(sums, m, idx[m], priority)


@kernel
def _draw_proportional(sums: SumState, stream: NDArray[np.uint64], draws: Draws) -> None:
    members, batch = draws.idx.shape
    target = np.empty(batch)
    for m in range(members):
        total = sum_total(sums, m)
        for b in range(batch):
            target[b] = total * ((b + next_double(stream[m])) / batch)
        sum_search(sums, m, target, draws.idx[m])
        for b in range(batch):
            draws.probability[m, b] = sums.leaf[m, draws.idx[m, b]] / total
