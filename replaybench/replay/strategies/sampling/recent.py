"""Emphasising recent experience (Wang & Ross 2019)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call, Each
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_below
from replaybench.replay.arrays import Indices, State
from replaybench.replay.orders.age_order import AgeLog, AgeState, age_renew
from replaybench.replay.orders.priority_sums import sum_search
from replaybench.replay.strategies.sampling.interface import Draws, RunningSampling, Sampling
from replaybench.replay.strategies.view import BufferView, Context


@dataclass(frozen=True)
class ERE(Sampling):
    """Update k of the K of a phase draws from the newest c_k = max(N·η^(k·1000/K), c_min) experiences.

    With `phase` every K = `phase` updates of the run are one, whenever they are done; else phases are the schedule's.
    η moves linearly from `eta` to `last` over the run. N is the buffer's size; a FULL buffer has none, so there N is
    what it stores. c_min is min(5000, N/200) unless given: the paper's 5000 for its buffer of 10⁶. c_k is rounded
    down and clipped to what is stored.
    """

    eta: float = 0.996
    c_min: int | None = None
    last: float = 1.0
    phase: int | None = None
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
        """Return c_k `[M]` for buffers that store `count` `[M]`; capacity None means as large as that."""
        eta = self.eta + (self.last - self.eta) * context.progress
        k, updates = context.update + 1, context.updates_in_phase
        if self.phase is not None:
            k, updates = context.updates_before % self.phase + 1, self.phase
        share = eta ** (k * 1000 / updates)
        if capacity is not None:
            least = min(5000.0, capacity / 200) if self.c_min is None else float(self.c_min)
            return np.minimum(count, max(1, int(min(max(capacity * share, least), capacity))))
        floor = np.minimum(5000, count / 200) if self.c_min is None else self.c_min
        newest: Indices = np.clip(np.maximum(count * share, floor), 1, count).astype(np.int64)
        return newest

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningRing(self, view) if view.in_turn else _RunningLog(self, view)


class RunningERE(RunningSampling):
    """What the running forms share."""

    def __init__(self, description: ERE, view: BufferView) -> None:
        super().__init__(view)
        self.description, self.view = description, view

    def newest(self, contexts: Sequence[Context], count: Indices) -> Each:
        """Return c_k of each update, `[U, M]`."""
        capacity = self.view.capacity if self.view.bounded else None
        return Each(np.stack([self.description.newest(context, capacity, count) for context in contexts]))


class _RunningRing(RunningERE):
    """Where the order of slots is that of age."""

    def calls(self, contexts: Sequence[Context], count: Indices, offers: Indices, draws: Draws) -> Sequence[Call]:
        newest = self.newest(contexts, count)
        return [Call(_draw_ring, (self.stream.state, newest, offers, self.view.capacity, draws))]


@kernel
def _draw_ring(stream: NDArray[np.uint64], newest: Indices, offers: Indices, capacity: int, draws: Draws) -> None:
    for m in range(draws.idx.shape[0]):
        head = (offers[m] - 1) % capacity
        for b in range(draws.idx.shape[1]):
            slot = head - next_below(stream[m], newest[m])
            draws.idx[m, b] = slot if slot >= 0 else slot + capacity
            draws.probability[m, b] = 1.0 / newest[m]


class _RunningLog(RunningERE):
    """Where any slot may be renewed."""

    def __init__(self, description: ERE, view: BufferView) -> None:
        super().__init__(description, view)
        self.ages = AgeLog(len(view.members), view.capacity)

    def storing(self, slots: Indices) -> Sequence[Call]:
        return [Call(_renew, (self.ages.state, slots))]

    def calls(self, contexts: Sequence[Context], count: Indices, offers: Indices, draws: Draws) -> Sequence[Call]:
        newest = self.newest(contexts, count)
        return [Call(_draw_log, (self.stream.state, self.ages.state, newest, count, draws))]

    def state_dict(self, stored: int) -> State:
        return {**super().state_dict(stored), **self.ages.state_dict(stored)}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        self.ages.load_state_dict(state)


@kernel
def _renew(ages: AgeState, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] >= 0:
            age_renew(ages, m, slots[m])


@kernel
def _draw_log(stream: NDArray[np.uint64], ages: AgeState, newest: Indices, count: Indices, draws: Draws) -> None:
    batch = draws.idx.shape[1]
    rank = np.empty(batch)
    for m in range(draws.idx.shape[0]):
        for b in range(batch):
            rank[b] = count[m] - 1 - next_below(stream[m], newest[m]) + 0.5
        sum_search(ages.used, m, rank, draws.idx[m])
        for b in range(batch):
            draws.idx[m, b] = ages.slot_at[m, draws.idx[m, b]]
            draws.probability[m, b] = 1.0 / newest[m]
