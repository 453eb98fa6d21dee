"""Sampling by age: `ERE` and `ERE+PER` (Wang & Ross, 2019)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.priority_sums import (
    AgeLog,
    AgeState,
    Cover,
    SumState,
    age_place,
    age_renew,
    cover_range,
    cover_search,
    make_sums,
    new_cover,
    sum_rebuild,
)
from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling, Sampling
from replaybench.replay.strategies.prioritised import PERprop, read_priority, set_largest, set_priorities
from replaybench.replay.strategies.weighting import IS
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_below, next_double


@dataclass(frozen=True)
class ERE(Sampling):
    """Emphasising recent experience (ERE), which samples from the newest experiences (Wang & Ross, 2019).

    An update phase consists of the K updates after an episode or rollout. Update k of a phase samples uniformly from
    the newest c_k experiences (section 3.2, eq. 2):

        c_k = max(N · η^(k · 1000 / K), c_min).

    N is the capacity of the buffer. With `FULL` retention, N is the number of stored experiences. c_k is rounded down,
    and is at most the number of stored experiences. η changes linearly over the run.

    Attributes:
        eta: Initial η.
        c_min: Smallest c_k; by default min(5000, N/200). The paper uses 5000 for a capacity of 10⁶.
        last: Final η.
        phase: Number K of updates in a phase; by default the training schedule decides K.
        reverse: Whether c_k increases within a phase, as in the paper's comparison of update orders (section 4.2).
    """

    eta: float = 0.996
    c_min: int | None = None
    last: float = 1.0
    phase: int | None = None
    reverse: bool = False
    feedback: ClassVar[tuple[str, ...]] = ("phase",)
    by_place = True
    importance_undefined = "all draws of a batch have equal chances, so all its weights would be equal"

    def __post_init__(self) -> None:
        for eta in (self.eta, self.last):
            if not 0 < eta <= 1:
                raise UserError(f"ERE: η must lie in (0, 1], not {eta:g}")
        if self.c_min is not None and self.c_min < 1:
            raise UserError(f"ERE: c_min must be at least 1, not {self.c_min}")
        if self.phase is not None and self.phase < 2:
            raise UserError(f"ERE: a phase must be at least 2 updates long, not {self.phase}")

    @property
    def needs_phase(self) -> bool:
        return self.phase is None

    def in_phases(self, updates: int) -> ERE:
        return dataclasses.replace(self, phase=updates)

    def slot_bytes(self, in_turn: bool) -> int:
        return 0 if in_turn else 15

    def newest(self, context: Context, capacity: int | None, count: Indices) -> Indices:
        """Return the number of newest experiences to sample from, `[M]`, for buffers that store `count` `[M]`.

        It is c_k of Wang & Ross (2019, section 3.2). `capacity` is N, or None if N is the number of stored experiences.
        """
        eta = self.eta + (self.last - self.eta) * context.progress
        k, updates = context.update + 1, context.updates_in_phase
        if self.phase is not None:
            k, updates = context.updates_before % self.phase + 1, self.phase
        if self.reverse:
            k = updates + 1 - k
        share = eta ** (k * 1000 / updates)
        if capacity is not None:
            least = min(5000.0, capacity / 200) if self.c_min is None else float(self.c_min)
            return np.minimum(count, max(1, int(min(max(capacity * share, least), capacity))))
        floor = np.minimum(5000, count / 200) if self.c_min is None else self.c_min
        newest: Indices = np.clip(np.maximum(count * share, floor), 1, count).astype(np.int64)
        return newest

    def start(self, view: BufferView) -> RunningSampling:
        return RunningERE(self, view)


class RunningByAge(RunningSampling):
    """Base class of the objects that sample experiences by their age during a run.

    The object maintains a log of ages, unless the order of buffer slots is the order of age.
    """

    weighted = False

    def __init__(self, view: BufferView) -> None:
        super().__init__(view)
        self.view = view
        self.ages = AgeLog(len(view.members), 0 if view.in_turn else view.capacity, self.weighted)

    def stored(self, slots: Indices) -> None:
        if not self.view.in_turn:
            _renew(self.ages.state, slots)

    def state_dict(self, stored: int) -> State:
        return {**super().state_dict(stored), **({} if self.view.in_turn else self.ages.state_dict(stored))}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        if not self.view.in_turn:
            self.ages.load_state_dict(state)


class RunningERE(RunningByAge):
    """The object that samples from the newest experiences by ERE during a run."""

    def __init__(self, description: ERE, view: BufferView) -> None:
        super().__init__(view)
        self.description = description

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        newest = self.description.newest(context, self.view.capacity if self.view.bounded else None, count)
        if self.view.in_turn:
            _draw_ring(self.stream.state, newest, offers, self.view.capacity, draws)
        else:
            _draw_log(self.stream.state, self.ages.state, newest, count, draws)


@kernel
def _draw_ring(stream: NDArray[np.uint64], newest: Indices, offers: Indices, capacity: int, draws: Draws) -> None:
    for m in range(draws.idx.shape[0]):
        head = (offers[m] - 1) % capacity
        for b in range(draws.idx.shape[1]):
            slot = head - next_below(stream[m], newest[m])
            draws.idx[m, b] = slot if slot >= 0 else slot + capacity
            draws.probability[m, b] = 1.0 / newest[m]


@kernel
def _renew(ages: AgeState, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            age_renew(ages, m, slots[m])


@kernel
def _draw_log(stream: NDArray[np.uint64], ages: AgeState, newest: Indices, count: Indices, draws: Draws) -> None:
    for m in range(draws.idx.shape[0]):
        for b in range(draws.idx.shape[1]):
            draws.idx[m, b] = ages.slot_at[m, age_place(ages, m, count[m], next_below(stream[m], newest[m]))]
            draws.probability[m, b] = 1.0 / newest[m]


_PRIORITIES: Final = PERprop()


@dataclass(frozen=True)
class EREPER(ERE):
    """ERE with prioritised sampling from the newest experiences (Wang & Ross, 2019, section 3.4).

    ERE samples from the newest c_k experiences only. Here, the sum of their priorities, in order of age, is cut into B
    equal parts, for the batch size B. One experience is drawn from each part, with probability in proportion to its
    priority. The default weights are those of the paper's Algorithm 2.
    """

    priorities: PERprop = _PRIORITIES
    name = "ERE+PER"
    second = "priorities"
    feedback = ("phase", "td_error")
    importance_undefined = ""
    weighting = IS(0.6, 0.6, normalise=True, all_networks=True)

    def slot_bytes(self, in_turn: bool) -> int:
        return super().slot_bytes(in_turn) + 6

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningEREPER(self, view)


class PrioritiesByAge(RunningByAge):
    """Base class of the objects that maintain priorities (|δ| + ε)^α in order of age during a run.

    A place is an entry of the age log, or a buffer slot if slot order is age order. `sums` is a sum tree over places.
    """

    weighted = True

    def __init__(self, alpha: float, epsilon: float, view: BufferView) -> None:
        super().__init__(view)
        self.rule = alpha, epsilon, 0.0
        self.largest = np.ones(len(view.members), np.float32)
        self.sums = make_sums(len(view.members), view.capacity) if view.in_turn else self.ages.state.priority

    def stored(self, slots: Indices) -> None:
        super().stored(slots)
        set_largest(self.sums, self.ages.state.place_of, self.largest, slots)

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        set_priorities(self.sums, self.ages.state.place_of, self.largest, idx, td_error, *self.rule)

    def state_dict(self, stored: int) -> State:
        priority = self.sums.leaf[:, :stored]
        if not self.view.in_turn:
            place = self.ages.state.place_of[:, :stored]
            priority = np.where(place < 0, 0, np.take_along_axis(self.sums.leaf, np.maximum(place, 0), axis=1))
        return {**super().state_dict(stored), "priority_largest": self.largest, "priority": priority}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.largest[:] = state["priority_largest"]
        self.sums.leaf[:] = 0
        super().load_state_dict(state)
        for m, priority in enumerate(read_priority(state)):
            stored = len(priority)
            position = np.arange(stored) if self.view.in_turn else self.ages.state.place_of[m, :stored]
            self.sums.leaf[m, position[position >= 0]] = priority[position >= 0]
            sum_rebuild(self.sums, m)


class _RunningEREPER(PrioritiesByAge):
    def __init__(self, description: EREPER, view: BufferView) -> None:
        super().__init__(description.priorities.alpha, description.priorities.epsilon, view)
        self.description = description

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        newest = self.description.newest(context, self.view.capacity if self.view.bounded else None, count)
        if self.view.in_turn:
            _draw_ring_by_priority(self.stream.state, self.sums, newest, offers, self.view.capacity, draws)
        else:
            _draw_log_by_priority(self.stream.state, self.ages.state, newest, count, draws)


@kernel
def _draw_ring_by_priority(
    stream: NDArray[np.uint64], sums: SumState, newest: Indices, offers: Indices, capacity: int, draws: Draws
) -> None:
    cover = new_cover(sums)
    for m in range(draws.idx.shape[0]):
        head, tail = (offers[m] - 1) % capacity, (offers[m] - newest[m]) % capacity
        if tail <= head:
            nodes = cover_range(sums, m, tail, head + 1, cover, 0)
        else:
            nodes = cover_range(sums, m, tail, capacity, cover, 0)
            nodes = cover_range(sums, m, 0, head + 1, cover, nodes)
        _draw_covered(stream[m], sums, m, cover, nodes, draws)


@kernel
def _draw_log_by_priority(
    stream: NDArray[np.uint64], ages: AgeState, newest: Indices, count: Indices, draws: Draws
) -> None:
    cover = new_cover(ages.priority)
    for m in range(draws.idx.shape[0]):
        tail = age_place(ages, m, count[m], newest[m] - 1)
        nodes = cover_range(ages.priority, m, tail, ages.end[m], cover, 0)
        _draw_covered(stream[m], ages.priority, m, cover, nodes, draws)
        for b in range(draws.idx.shape[1]):
            draws.idx[m, b] = ages.slot_at[m, draws.idx[m, b]]


@kernel
def _draw_covered(stream: NDArray[np.uint64], sums: SumState, m: int, cover: Cover, nodes: int, draws: Draws) -> None:
    """Draw B positions in proportion to priority, one from each of B equal parts of the sum over `cover`."""
    batch, within = draws.idx.shape[1], cover.upto[nodes]
    target = np.empty(batch)
    for b in range(batch):
        target[b] = within * ((b + next_double(stream)) / batch)
    cover_search(sums, m, cover, nodes, target, draws.idx[m])
    for b in range(batch):
        draws.probability[m, b] = sums.leaf[m, draws.idx[m, b]] / within
