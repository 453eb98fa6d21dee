"""Prioritised sampling of reliable TD errors, `ReaPER` (Pleiss et al., 2025)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.priority_sums import (
    AgeState,
    SumState,
    make_sums,
    sum_find,
    sum_range,
    sum_set,
    sum_total,
)
from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling, Sampling
from replaybench.replay.strategies.recent import PrioritiesByAge
from replaybench.runtime.arrays import Floats, Floats32, Integers
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_double


@dataclass(frozen=True)
class ReaPER(Sampling):
    """Reliability-adjusted prioritised sampling with P ∝ |δ|^α R^ω (Pleiss et al., 2025).

    The reliability R_t of step t is the sum of |δ| over the stored steps of its episode up to and including t, divided
    by the sum over the whole episode. In an unfinished episode, the divisor is the largest sum of any stored episode.
    The form is that of the abstract and of the authors' public code, whose α and ω differ. New experiences, and
    experiences whose |δ| is not finite, have the largest |δ| so far.

    Experiences are drawn in proportion to |δ|^α as by `PERprop`, and accepted with probability R^ω. The rejected ones
    are replaced in the same way. A changed δ therefore costs O(log N), although it changes R in its whole episode. The
    probabilities have a common factor, the mean of R^ω, which is estimated from the latest 10⁴ to 2·10⁴ draws. In
    normalised importance weights, it cancels.
    """

    alpha: float = 0.6
    omega: float = 0.6
    feedback = ("td_error",)
    by_place = steady = needs_episodes = estimated = True

    def __post_init__(self) -> None:
        for name, value in (("α", self.alpha), ("ω", self.omega)):
            if not 0 <= value <= 4:
                raise UserError(f"ReaPER: {name} must lie in [0, 4], not {value:g}")

    def slot_bytes(self, in_turn: bool) -> int:
        return 31

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningReaPER(self, view)


_LEAST: Final = np.float64(2.0**-120)
_MOST: Final = np.float64(2.0**120)
_REMEMBERED: Final = 20_000


class _RunningReaPER(PrioritiesByAge):
    def __init__(self, rule: ReaPER, view: BufferView) -> None:
        super().__init__(1.0, 0.0, view._replace(in_turn=False))  # an age log for each retention; `sums` has |δ|
        self.alpha, self.omega = rule.alpha, rule.omega
        self.proposals = make_sums(len(view.members), view.capacity)  # |δ|^α by slot
        self.serial = np.zeros(self.ages.state.slot_at.shape, np.uint32)  # by place in the age log
        self.accepted = np.zeros((len(view.members), 2))  # sums of R^ω and of 1 over recent draws

    def stored(self, slots: Indices) -> None:
        before = self.ages.state.end.copy()
        super().stored(slots)
        _number(self.ages.state, self.serial, slots, before, self.view.columns.serial)
        _propose(self.proposals, self.ages.state, slots[:, None], self.alpha)

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        super().annotate(idx, td_error)
        _propose(self.proposals, self.ages.state, idx, self.alpha)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        episodes = self.view.episodes
        finished = episodes.known - ~episodes.begins
        places = self.ages.state, self.serial, episodes.starts, finished
        _draw(self.stream.state, self.proposals, *places, self.omega, self.accepted, draws)

    def state_dict(self, stored: int) -> State:
        return {**super().state_dict(stored), "accepted": self.accepted}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        self.accepted[:], self.proposals.leaf[:] = state["accepted"], 0
        slots = np.where(self.ages.state.place_of < 0, -1, np.arange(self.view.capacity))
        _propose(self.proposals, self.ages.state, slots, self.alpha)
        for m in range(len(slots)):
            _renumber(self.ages.state, self.serial, m, self.view.columns.serial)


@kernel
def _propose(proposals: SumState, ages: AgeState, slots: Indices, alpha: float) -> None:
    for m in range(slots.shape[0]):
        for slot in slots[m]:
            if slot >= 0:
                size = np.float64(ages.priority.leaf[m, ages.place_of[m, slot]])
                sum_set(proposals, m, slot, min(max(size**alpha, _LEAST), _MOST))


@kernel
def _renumber(ages: AgeState, serial: NDArray[np.uint32], m: int, by_slot: NDArray[np.uint32]) -> None:
    """Write the serial number of the experience in each place. Those of unused places increase by 1."""
    for place in range(ages.end[m]):
        slot = ages.slot_at[m, place]
        used = ages.place_of[m, slot] == place
        serial[m, place] = by_slot[m, slot] if used else serial[m, place - 1] + 1 if place else 0


@kernel
def _number(
    ages: AgeState, serial: NDArray[np.uint32], slots: Indices, before: Integers, by_slot: NDArray[np.uint32]
) -> None:
    """Write the serial numbers of new experiences, and of all if an age log with `before` places was squeezed."""
    for m in range(slots.size):
        if slots[m] >= 0 and ages.end[m] == before[m] + 1:
            serial[m, before[m]] = by_slot[m, slots[m]]
        elif slots[m] >= 0:
            _renumber(ages, serial, m, by_slot)


@kernel
def _episode(
    ages: AgeState, serial: NDArray[np.uint32], starts: NDArray[np.uint32], m: int, place: int
) -> tuple[int, int, int]:
    """Return the index of a place's episode, its first place, and the place after its last."""
    number: Any = np.int64(serial[m, place])
    episode: Any = np.searchsorted(starts[m], serial[m, place], side="right") - 1
    first: Any = max(0, place - max(0, number - np.int64(starts[m, episode])))
    first += np.searchsorted(serial[m, first:place], starts[m, episode])
    stop: Any = np.int64(ages.end[m])
    if episode + 1 < starts.shape[1]:
        stop = min(stop, place + np.int64(starts[m, episode + 1]) - number)
        stop = place + np.searchsorted(serial[m, place:stop], starts[m, episode + 1])
    return episode, first, stop


@kernel
def _largest_sum(ages: AgeState, serial: NDArray[np.uint32], starts: NDArray[np.uint32], m: int) -> float:
    largest, stop = 0.0, int(ages.end[m])
    while stop > 0:
        _, first, _ = _episode(ages, serial, starts, m, stop - 1)
        largest = max(largest, sum_range(ages.priority, m, first, stop))
        stop = first
    return largest


@kernel
def _draw(
    stream: NDArray[np.uint64], proposals: SumState, ages: AgeState, serial: NDArray[np.uint32],
    starts: NDArray[np.uint32], finished: Integers, omega: float, accepted: Floats, draws: Draws,
) -> None:  # fmt: skip
    batch = draws.idx.shape[1]
    proposed, left = np.empty(batch, np.int64), np.empty(batch, np.int64)
    for m in range(draws.idx.shape[0]):
        total, largest, count = sum_total(proposals, m), 0.0, 0
        if total > 0:
            left[:], count = np.arange(batch), batch
        while count > 0:
            for j in range(count):
                proposed[j] = sum_find(proposals, m, total * ((j + next_double(stream[m])) / count))
            rejected = 0
            for j in range(count):
                place: Any = np.int64(ages.place_of[m, proposed[j]])
                episode, first, stop = _episode(ages, serial, starts, m, place)
                until = sum_range(ages.priority, m, first, place + 1)
                if episode < finished[m]:
                    whole = until + sum_range(ages.priority, m, place + 1, stop)
                else:
                    whole = largest = largest or _largest_sum(ages, serial, starts, m)
                chance = min(until / whole, 1.0) ** omega
                accepted[m, 0] += chance
                accepted[m, 1] += 1
                if next_double(stream[m]) < chance:
                    draws.idx[m, left[j]] = proposed[j]
                    draws.probability[m, left[j]] = proposals.leaf[m, proposed[j]] * chance
                else:
                    left[rejected] = left[j]
                    rejected += 1
            count = rejected
        if total > 0:
            draws.probability[m] /= total * accepted[m, 0] / accepted[m, 1]
        if accepted[m, 1] > _REMEMBERED:
            accepted[m] /= 2
