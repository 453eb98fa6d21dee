"""ERE+PER: proportional priorities among the newest experiences (Wang & Ross 2019, section 3.4 and Algorithm 2).

Priorities are summed in order of age, so that the newest c_k are a range of a sum tree: a range of the ring of slots,
which may pass its end, or the tail of an age log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import next_double
from replaybench.replay.arrays import Floats, Indices, State
from replaybench.replay.orders.age_order import AgeLog, AgeState, age_place, age_renew
from replaybench.replay.orders.priority_sums import (
    SumState,
    make_sums,
    sum_rebuild,
    sum_set,
    sum_update,
)
from replaybench.replay.orders.range_sums import Cover, cover_range, cover_room, cover_search
from replaybench.replay.strategies.sampling.interface import Draws, RunningSampling
from replaybench.replay.strategies.sampling.proportional import PERprop, priority_of, read_priority
from replaybench.replay.strategies.sampling.recent import ERE, RunningERE
from replaybench.replay.strategies.view import BufferView, Context
from replaybench.replay.strategies.weighting.importance import IS

_PRIORITIES: Final = PERprop()


@dataclass(frozen=True)
class EREPER(ERE):
    """ERE whose draws among the newest c_k are proportional to priority, one from each of B equal parts of it by age.

    Unless another weighting is named, that of Algorithm 2 is in force.
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


class _RunningEREPER(RunningERE):
    """Without an age log the positions of the sum tree are slots."""

    def __init__(self, description: EREPER, view: BufferView) -> None:
        super().__init__(description, view)
        members = len(view.members)
        self.priorities = description.priorities
        self.largest = np.ones(members, np.float32)
        self.ages = AgeLog(members, 0 if view.in_turn else view.capacity, weighted=True)
        self.sums = make_sums(members, view.capacity) if view.in_turn else self.ages.state.priority

    def stored(self, slots: Indices) -> None:
        _store(self.sums, self.ages.state, self.largest, slots)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        newest = self.newest(context, count)
        if self.view.in_turn:
            _draw_ring(self.stream.state, self.sums, newest, offers, self.view.capacity, draws)
        else:
            _draw_log(self.stream.state, self.ages.state, newest, count, draws)

    def annotate(self, idx: Indices, td_error: Floats) -> None:
        rule = self.priorities.alpha, self.priorities.epsilon
        _set_priorities(self.sums, self.ages.state, self.largest, idx, td_error, *rule)

    def state_dict(self, stored: int) -> State:
        own: State = {"priority_largest": self.largest}
        if self.view.in_turn:
            own["priority"] = self.sums.leaf[:, :stored]
        else:
            place = self.ages.state.place_of[:, :stored]
            own["priority"] = np.where(place < 0, 0, np.take_along_axis(self.sums.leaf, np.maximum(place, 0), axis=1))
            own |= self.ages.state_dict(stored)
        return {**super().state_dict(stored), **own}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        self.largest[:] = state["priority_largest"]
        self.sums.leaf[:] = 0
        if not self.view.in_turn:
            self.ages.load_state_dict(state)
        for m, priority in enumerate(read_priority(state)):
            stored = len(priority)
            position = np.arange(stored) if self.view.in_turn else self.ages.state.place_of[m, :stored]
            self.sums.leaf[m, position[position >= 0]] = priority[position >= 0]
            sum_rebuild(self.sums, m)


@kernel
def _position(ages: AgeState, m: int, slot: int) -> int:
    return int(ages.place_of[m, slot]) if ages.place_of.shape[1] else slot


@kernel
def _store(sums: SumState, ages: AgeState, largest: Floats, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            if ages.place_of.shape[1]:
                age_renew(ages, m, slots[m])
            sum_set(sums, m, _position(ages, m, slots[m]), largest[m])


@kernel
def _set_priorities(
    sums: SumState, ages: AgeState, largest: Floats, idx: Indices, td_error: Floats, alpha: float, epsilon: float
) -> None:
    batch = idx.shape[1]
    position, priority = np.empty(batch, np.int64), np.empty(batch, np.float32)
    for m in range(idx.shape[0]):
        for b in range(batch):
            position[b] = -1
            if idx[m, b] >= 0:
                position[b] = _position(ages, m, idx[m, b])
                priority[b] = priority_of(td_error[m, b], largest, m, alpha, epsilon)
        sum_update(sums, m, position, priority)


@kernel
def _draw_ring(
    stream: NDArray[np.uint64], sums: SumState, newest: Indices, offers: Indices, capacity: int, draws: Draws
) -> None:
    cover = cover_room(sums)
    for m in range(draws.idx.shape[0]):
        head, tail = (offers[m] - 1) % capacity, (offers[m] - newest[m]) % capacity
        if tail <= head:
            nodes = cover_range(sums, m, tail, head + 1, cover, 0)
        else:
            nodes = cover_range(sums, m, tail, capacity, cover, 0)
            nodes = cover_range(sums, m, 0, head + 1, cover, nodes)
        _draw_covered(stream[m], sums, m, cover, nodes, draws)


@kernel
def _draw_log(stream: NDArray[np.uint64], ages: AgeState, newest: Indices, count: Indices, draws: Draws) -> None:
    cover = cover_room(ages.priority)
    for m in range(draws.idx.shape[0]):
        tail = age_place(ages, m, count[m], newest[m] - 1)
        nodes = cover_range(ages.priority, m, tail, ages.end[m], cover, 0)
        _draw_covered(stream[m], ages.priority, m, cover, nodes, draws)
        for b in range(draws.idx.shape[1]):
            draws.idx[m, b] = ages.slot_at[m, draws.idx[m, b]]


@kernel
def _draw_covered(stream: NDArray[np.uint64], sums: SumState, m: int, cover: Cover, nodes: int, draws: Draws) -> None:
    """Draw a position from each of B equal parts of the covered priority."""
    batch, within = draws.idx.shape[1], cover.upto[nodes]
    target = np.empty(batch)
    for b in range(batch):
        target[b] = within * ((b + next_double(stream)) / batch)
    cover_search(sums, m, cover, nodes, target, draws.idx[m])
    for b in range(batch):
        draws.probability[m, b] = sums.leaf[m, draws.idx[m, b]] / within
