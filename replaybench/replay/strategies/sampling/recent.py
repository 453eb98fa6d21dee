"""Emphasising recent experience (Wang & Ross 2019), alone and with proportional priorities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_below
from replaybench.replay.orders.age_order import AgeLog, AgeState, age_renew
from replaybench.replay.orders.priority_sums import sum_search
from replaybench.replay.strategies.sampling.interface import Draws, DrawsOnly, RunningSampling
from replaybench.replay.strategies.sampling.proportional import PERprop
from replaybench.replay.strategies.setting import Context, Indices, Setting, State


@dataclass(frozen=True)
class ERE:
    """Update k of the K of a phase draws from the newest c_k = max(N·η^(k·1000/K), c_min) experiences.

    With `phase` every K = `phase` updates of the run are one, whenever they are done; else phases are the schedule's.
    η moves linearly from `eta` to `last` over the run. N is the buffer's size; a FULL buffer has none, so there N is
    what it stores. c_min is min(5000, N/200) unless given: the paper's 5000 for its buffer of 10⁶. c_k is rounded
    down and clipped to what is stored. With `priorities` (written `ERE+PER`) the draws among the newest c_k are
    proportional to priority (Algorithm 2), one from each of B equal parts of it in order of age.
    """

    eta: float = 0.996
    c_min: int | None = None
    last: float = 1.0
    phase: int | None = None
    priorities: PERprop | None = None
    orders = ()
    attends = False

    def __post_init__(self) -> None:
        for eta in (self.eta, self.last):
            if not 0 < eta <= 1:
                raise UserError(f"ERE: η must lie in (0, 1], not {eta:g}")
        if self.c_min is not None and self.c_min < 1:
            raise UserError(f"ERE: c_min must be at least 1, not {self.c_min}")
        if self.phase is not None and self.phase < 2:
            raise UserError(f"ERE: a phase must be at least 2 updates long, not {self.phase}")

    @property
    def feedback(self) -> tuple[str, ...]:
        return ("phase", "td_error") if self.priorities else ("phase",)

    def slot_bytes(self, in_turn: bool) -> int:
        return (0 if in_turn else 15) + (6 if self.priorities else 0)

    @property
    def why_no_importance(self) -> str:
        return "" if self.priorities else "all draws of a batch have equal chances, so all its weights would be equal"

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

    def start(self, setting: Setting) -> RunningSampling:
        if self.priorities:
            from replaybench.replay.strategies.sampling.recent_proportional import RunningEREPER

            return RunningEREPER(self, self.priorities, setting)
        return _RunningRing(self, setting) if setting.in_turn else _RunningLog(self, setting)


class RunningERE(DrawsOnly):
    """What the running forms share."""

    def __init__(self, description: ERE, setting: Setting) -> None:
        super().__init__(setting.stream("sampling"))
        self.description, self.setting = description, setting

    def newest(self, context: Context, count: Indices) -> Indices:
        """Return c_k `[M]`."""
        return self.description.newest(context, self.setting.capacity if self.setting.bounded else None, count)


class _RunningRing(RunningERE):
    """Where the order of slots is that of age."""

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        _draw_ring(self.stream.state, self.newest(context, count), offers, self.setting.capacity, draws)


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

    def __init__(self, description: ERE, setting: Setting) -> None:
        super().__init__(description, setting)
        self.ages = AgeLog(len(setting.members), setting.capacity)

    def stored(self, slots: Indices) -> None:
        _renew(self.ages.state, slots)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        _draw_log(self.stream.state, self.ages.state, self.newest(context, count), count, draws)

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
