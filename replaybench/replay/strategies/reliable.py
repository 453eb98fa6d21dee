"""Prioritised sampling of reliable TD errors, `ReaPER` (Pleiss et al., 2025)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.episode_sums import (
    EpisodeSums,
    add_up_episode,
    append_steps,
    find_episodes,
    largest_sum,
    make_episode_sums,
    sum_before,
    with_space,
)
from replaybench.replay.orders.priority_sums import (
    FAN,
    AgeState,
    SumState,
    make_sums,
    sum_find,
    sum_lowest,
    sum_renew,
    sum_set,
    sum_total,
)
from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling, Sampling
from replaybench.replay.strategies.prioritised import priority_of
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
    are replaced in the same way. A changed δ costs O(log N), although it changes R in its whole episode. When a step of
    this episode is proposed again, its n steps are added up in O(n/16). The probabilities have a common factor, the
    mean of R^ω, which is estimated from the latest 10⁴ to 2·10⁴ draws. In normalised importance weights, it cancels.
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
        self.by_episode = make_episode_sums(self.ages.state)
        self.accepted = np.zeros((len(view.members), 2))  # sums of R^ω and of 1 over recent draws

    def stored(self, slots: Indices) -> None:
        ages, ends, episodes = self.ages.state, self.ages.state.end.copy(), self.view.episodes
        super().stored(slots)
        self.by_episode = with_space(self.by_episode, episodes.starts.shape[1])
        append_steps(self.by_episode, ages, slots, ends, episodes.known)
        _propose(self.proposals, ages, slots[:, None], self.alpha)

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        _set(self.proposals, self.ages.state, self.by_episode, self.largest, idx, td_error, self.alpha)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        known = self.view.episodes.known
        places = self.ages.state, self.by_episode, known, known - ~self.view.episodes.begins
        _draw(self.stream.state, self.proposals, *places, self.omega, self.accepted, draws)

    def state_dict(self, stored: int) -> State:
        return {**super().state_dict(stored), "accepted": self.accepted}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        self.accepted[:], self.proposals.leaf[:] = state["accepted"], 0
        ages, starts, serial = self.ages.state, self.view.episodes.starts, self.view.columns.serial
        _propose(self.proposals, ages, np.where(ages.place_of < 0, -1, np.arange(self.view.capacity)), self.alpha)
        self.by_episode = with_space(self.by_episode, starts.shape[1])
        for m, episode in enumerate(self.by_episode.episode):
            episode[:] = np.maximum(np.searchsorted(starts[m], serial[m], side="right") - 1, 0)
            by_age = np.argsort(ages.place_of[m], kind="stable")[(ages.place_of[m] < 0).sum() :]
            if (np.diff(episode[by_age]) < 0).any():
                raise ValueError("its log of ages does not list episodes one after the other")
            find_episodes(self.by_episode, ages, m)


@kernel
def _proposal(size: float, alpha: float) -> float:
    return min(max(np.float64(size) ** alpha, _LEAST), _MOST)


@kernel
def _propose(proposals: SumState, ages: AgeState, slots: Indices, alpha: float) -> None:
    for m in range(slots.shape[0]):
        for slot in slots[m]:
            if slot >= 0:
                sum_set(proposals, m, slot, _proposal(ages.priority.leaf[m, ages.place_of[m, slot]], alpha))


@kernel
def _set(
    proposals: SumState, ages: AgeState, by_episode: EpisodeSums, largest: Floats32, idx: Indices, td_error: Floats32,
    alpha: float,
) -> None:  # fmt: skip
    """Set |δ| of samples in slots `idx` `[M, B]` (−1: none).

    Each loop accesses memory at random once, so that the processor waits for the whole batch at the same time.
    """
    place, episode = np.empty(idx.shape[1], np.int64), np.empty(idx.shape[1], np.int64)
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            if idx[m, b] >= 0:
                place[b], episode[b] = ages.place_of[m, idx[m, b]], by_episode.episode[m, idx[m, b]]
        for b in range(idx.shape[1]):
            if idx[m, b] >= 0:
                size = priority_of(td_error[m, b], largest, m, 1.0, 0.0, 0.0)
                ages.priority.leaf[m, place[b]], proposals.leaf[m, idx[m, b]] = size, _proposal(size, alpha)
                by_episode.whole[m, episode[b]] = np.nan
        for b in range(idx.shape[1]):
            if idx[m, b] >= 0:
                sum_lowest(ages.priority, m, place[b] // FAN)
        for b in range(idx.shape[1]):
            if idx[m, b] >= 0:
                sum_renew(proposals, m, idx[m, b])


@kernel
def _draw(
    stream: NDArray[np.uint64], proposals: SumState, ages: AgeState, by_episode: EpisodeSums, known: Integers,
    finished: Integers, omega: float, accepted: Floats, draws: Draws,
) -> None:  # fmt: skip
    batch = draws.idx.shape[1]
    slot, place, episode = np.empty(batch, np.int64), np.empty(batch, np.int64), np.empty(batch, np.int64)
    left, size = np.empty(batch, np.int64), np.empty(batch)
    for m in range(draws.idx.shape[0]):
        total, largest, count = sum_total(proposals, m), 0.0, 0
        if total > 0:
            left[:], count = np.arange(batch), batch
        while count > 0:
            for j in range(count):
                slot[j] = sum_find(proposals, m, total * ((j + next_double(stream[m])) / count))
            for j in range(count):  # apart, as in `_set`
                place[j], episode[j] = ages.place_of[m, slot[j]], by_episode.episode[m, slot[j]]
                size[j] = ages.priority.leaf[m, place[j]]
            for j in range(count):
                if np.isnan(by_episode.whole[m, episode[j]]):
                    add_up_episode(by_episode, ages.priority, ages.end[m], m, episode[j])
            rejected = 0
            for j in range(count):
                whole = by_episode.whole[m, episode[j]]
                if episode[j] >= finished[m]:
                    whole = largest = largest or largest_sum(by_episode, ages.priority, ages.end[m], m, known[m])
                until = sum_before(by_episode, ages.priority.leaf, m, place[j], episode[j]) + size[j]
                chance = min(until / whole, 1.0) ** omega
                accepted[m, 0] += chance
                accepted[m, 1] += 1
                draws.idx[m, left[j]] = slot[j]  # a later round overwrites it if it is rejected
                draws.probability[m, left[j]] = proposals.leaf[m, slot[j]] * chance
                left[rejected] = left[j]
                rejected += next_double(stream[m]) >= chance
            count = rejected
        if total > 0:
            draws.probability[m] /= total * accepted[m, 0] / accepted[m, 1]
        if accepted[m, 1] > _REMEMBERED:
            accepted[m] /= 2
