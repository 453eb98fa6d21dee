"""Retention: which experience a full buffer overwrites."""

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from buffers import FIELDS, FarRule, chi_square, fill, make, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import rank_segments

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import RETENTIONS, parse


def victims(replay: Replay, offers: int, draws: int) -> np.ndarray:
    """Return how often each slot is the victim, were one taken `draws` times; the last count is that of 'none'."""
    capacity, members = replay.slots, len(replay.count)
    counts = np.zeros(capacity + 1, np.int64)
    for _ in range(draws):
        slots = np.full(members, -2)
        replay.retention.slots(np.full(members, offers), capacity, slots)
        counts += np.bincount(np.where(slots < 0, capacity, slots), minlength=capacity + 1)
    return counts


@pytest.mark.parametrize(("capacity", "parts"), [(100, 3), (1999, 3), (5000, 10)])
def test_the_authors_cut_capacity_by_500_but_at_least_in_three(capacity: int, parts: int) -> None:
    """The first part is as wide as that of so many parts, and a third (tenth) of the victims come from it."""
    replay = make("Expl(1.0)[Uniform]", members=200, capacity=capacity)
    for value in range(capacity):
        fill(replay, 1, exploration=value)
    counts = victims(replay, capacity, 100)[:capacity]
    by_part = [counts[ranks.start : ranks.stop].sum() for ranks in rank_segments(1.0, capacity, parts)]
    chi_square(np.array(by_part), np.full(parts, 20_000 / parts))
    first = counts[: len(rank_segments(1.0, capacity, parts)[0])]
    if len(first) > 1:
        chi_square(first, np.full(len(first), first.sum() / len(first)))


def test_every_retention_says_whether_it_is_bounded() -> None:
    assert [name for name, kind in RETENTIONS.items() if not kind().bounded] == ["FULL"]
    assert [name for name, kind in RETENTIONS.items() if kind().in_turn] == ["FIFO", "FULL"]


MEMBERS, BATCH = 3, 4


class Account:
    """One member's steps as [serial, episode, far]; `victims` are the serials that go next, the first one first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.steps: list[list[Any]] = []
        self.victims: list[int] = []

    def add(self, serial: int, episode: int, far: float) -> None:
        if len(self.steps) == self.capacity:
            if not self.victims:
                self.choose(episode)
            gone = self.victims.pop(0)
            self.steps = [step for step in self.steps if step[0] != gone]
        self.steps.append([serial, episode, far])

    def choose(self, under_way: int) -> None:
        episodes = sorted({step[1] for step in self.steps})
        candidates = [episode for episode in episodes if episode != under_way] or episodes
        flags = {e: [far for _, episode, far in self.steps if episode == e] for e in candidates}
        chosen = max(candidates, key=lambda e: (Fraction(int(sum(flags[e])), len(flags[e])), -e))
        self.victims = sorted(serial for serial, episode, _ in self.steps if episode == chosen)


class Pair:
    def __init__(self, strategy: str, capacity: int, seed: int) -> None:
        self.strategy, self.capacity = strategy, capacity
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.accounts = [Account(capacity) for _ in range(MEMBERS)]
        self.episode, self.length = np.zeros(MEMBERS, int), np.zeros(MEMBERS, int)
        self.replay = self.fresh()

    def fresh(self) -> Replay:
        return Replay(parse(self.strategy), FIELDS, self.capacity, 0, range(MEMBERS), BATCH, traces=FarRule())

    def add(self, count: int) -> None:
        for _ in range(count):
            step = {name: np.zeros((MEMBERS, width), np.float32) for name, width in FIELDS.items()}
            far = (self.rng.random((MEMBERS, 1)) < 0.4).astype(np.float32)
            active = self.rng.random(MEMBERS) < 0.8
            ended = self.rng.random(MEMBERS) < 0.25
            before = self.replay.offers.copy()
            self.replay.add({**step, "far": far}, active, ended)
            for m, account in enumerate(self.accounts):
                if self.replay.offers[m] > before[m]:
                    account.add(int(self.replay.collected[m]), int(self.episode[m]), float(far[m, 0]))
                self.episode[m] += active[m] and ended[m]
            self.compare()

    def annotate(self, late: int) -> None:
        """Some of what was drawn is another's slot by now."""
        batch = self.replay.sample()
        drawn = dataclasses.replace(batch, idx=batch.idx.copy(), serial=batch.serial.copy())
        self.add(late)
        far = np.tile((self.rng.random((MEMBERS, 1)) < 0.5).astype(np.float32), BATCH)
        self.replay.annotate(drawn, {"far": far})
        for m, account in enumerate(self.accounts):
            for step in account.steps:
                if step[0] in drawn.serial[m]:
                    step[2] = float(far[m, 0])

    def reload(self) -> None:
        state = saved(self.replay)
        self.replay = self.fresh()
        self.replay.load_state_dict(state)

    def compare(self) -> None:
        for m, account in enumerate(self.accounts):
            held = self.replay.columns.serial[m, : self.replay.count[m]].tolist()
            assert sorted(held) == [step[0] for step in account.steps]


OPERATION = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 20)),
    st.tuples(st.just("annotate"), st.integers(0, 4)),
    st.just(("reload",)),
)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["", "Drop(0.4)*"]), st.integers(1, 24), st.integers(0, 2**32), st.lists(OPERATION, max_size=12))
def test_what_is_stored_is_what_the_account_holds(
    entry: str, capacity: int, seed: int, operations: list[tuple[Any, ...]]
) -> None:
    pair = Pair(f"{entry}FarPol[Uniform]", capacity, seed)
    pair.add(2 * capacity)
    for name, *arguments in operations:
        getattr(pair, name)(*arguments)
    pair.add(capacity)


@pytest.mark.parametrize("victim", [[-1, 2], [3, 2], [1, 2**40]])
def test_a_victim_that_was_never_collected_is_refused(victim: list[int]) -> None:
    replay = make("FarPol[Uniform]", capacity=4, batch=BATCH)
    fill(replay, 6)
    with pytest.raises(ValueError, match="was never collected"):
        replay.load_state_dict({**saved(replay), "far_victim": np.array([victim])})
