"""Retention, sampling and the buffer against naive oracles and as distributions.

Distribution tests use χ² with a false-alarm rate of 1e-6 each and fixed seeds.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from replaybench.data.errors import UserError
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.notation import parse
from replaybench.replay.retention import FIFO, FULL, Resv
from replaybench.replay.sampling import Context, segment_edges

ALARM = 1e-6
STRATEGIES = ("FIFO[Uniform]", "FULL[Uniform]", "Resv[Uniform]", "FIFO[PER]", "FULL[PER+IS]", "Resv[PER(1.2)+IS]")
FIELDS = step_fields(2, 1)


def make(strategy: str, members: int = 1, capacity: int = 32, batch: int = 8) -> Replay:
    return Replay(parse(strategy), FIELDS, capacity, 0, range(members), batch)


def fill(replay: Replay, count: int, start: int = 0) -> None:
    """Offer experiences whose reward is their number."""
    members = len(replay.offers)
    for number in range(start, start + count):
        experience = {name: np.full((members, width), number, np.float32) for name, width in FIELDS.items()}
        replay.add(experience, np.ones(members, np.bool_))


def chi_square(counts: np.ndarray, expected: np.ndarray) -> None:
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(ALARM, len(counts) - 1), statistic


def test_fifo_keeps_the_newest() -> None:
    replay = make("FIFO[Uniform]", capacity=10)
    fill(replay, 37)
    assert sorted(replay.columns.column("reward")[0, :, 0]) == list(range(27, 37))
    assert sorted(replay.columns.serial[0]) == list(range(28, 38))


def test_full_keeps_everything_and_refuses_more_than_it_was_made_for() -> None:
    replay = make("FULL[Uniform]", capacity=37)
    fill(replay, 37)
    assert list(replay.columns.column("reward")[0, :, 0]) == list(range(37))
    with pytest.raises(OverflowError, match="37"):
        fill(replay, 1)


def test_reservoir_includes_every_offer_with_equal_probability() -> None:
    """2000 members, capacity 10, 40 offers: each offer is kept with probability 1/4."""
    replay = Replay(parse("Resv[Uniform]"), {"reward": 1}, 10, 0, range(2000), 1)
    for number in range(40):
        replay.add({"reward": np.full((2000, 1), number, np.float32)}, np.ones(2000, np.bool_))
    kept = np.bincount(replay.columns.rows[:, :, 0].astype(int).ravel(), minlength=40)
    chi_square(kept, np.full(40, 500.0))


def test_reservoir_overwrites_a_uniform_victim() -> None:
    running, members = Resv().start(0, range(1)), 40_000
    victims = []
    for _ in range(members):
        slots = np.array([-2])
        running.slots(np.array([20]), 10, slots)
        victims.append(slots[0])
    counts = np.bincount(np.array(victims) + 1, minlength=11)
    chi_square(counts, members * np.r_[0.5, np.full(10, 0.05)])


def test_inactive_members_store_nothing() -> None:
    replay = make("FIFO[PER]", members=3)
    experience = {name: np.ones((3, width), np.float32) for name, width in FIELDS.items()}
    replay.add(experience, np.array([True, False, True]))
    assert replay.count.tolist() == replay.offers.tolist() == [1, 0, 1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_hold_live_experiences_only(strategy: str) -> None:
    replay = make(strategy, members=3, capacity=32 if "FULL" not in strategy else 200)
    for start in range(0, 60, 20):
        fill(replay, 20, start)
        batch = replay.sample(Context())
        live = [set(replay.columns.serial[m, : replay.count[m]].tolist()) for m in range(3)]
        for m in range(3):
            assert set(batch.serial[m].tolist()) <= live[m]
            np.testing.assert_array_equal(batch.reward[m, :, 0], batch.serial[m] - 1.0)
        replay.annotate(batch, {"td_error": np.ones(batch.weight.shape, np.float32)})


def test_uniform_draws_are_uniform_and_reach_the_last_slot() -> None:
    replay = make("FULL[Uniform]", capacity=20, batch=1000)
    fill(replay, 20)
    counts = sum(np.bincount(replay.sample(Context()).idx[0], minlength=20) for _ in range(50))
    chi_square(counts, np.full(20, 50 * 1000 / 20))


def naive_edges(alpha: float, count: int, segments: int) -> list[int]:
    """Segment boundaries by their definition, one rank at a time."""
    mass = np.arange(1, count + 1) ** -alpha
    edges, cumulative = [0], np.cumsum(mass)
    for b in range(1, segments):
        below = sum(1 for c in cumulative if c <= cumulative[-1] * b / segments)
        edges.append(min(max(below, edges[-1] + 1), count - segments + b))
    return [*edges, count]


@given(st.floats(0, 2), st.integers(1, 300), st.integers(1, 32))
@settings(deadline=None)
def test_segments_cover_all_ranks_and_are_at_least_one_wide(alpha: float, count: int, segments: int) -> None:
    edges = np.zeros(segments + 1, np.int64)
    segment_edges(np.cumsum(np.arange(1, 400, dtype=np.float64) ** -alpha), count, edges)
    assert edges[0] == 0
    assert edges[-1] == count
    if count >= segments:
        assert (np.diff(edges) >= 1).all()
        assert edges.tolist() == naive_edges(alpha, count, segments)


def test_ranked_draws_follow_the_stratified_distribution() -> None:
    """Slot s has |δ| = s, so its rank is known; each segment is drawn once per batch, uniformly inside."""
    count, batch_size, batches = 50, 8, 4000
    replay = make("FULL[PER]", capacity=count, batch=batch_size)
    fill(replay, count)
    state = replay.state_dict()
    state["td_error"] = np.arange(count, dtype=np.float32)[None]
    replay.load_state_dict(state)
    counts, probability = np.zeros(count), np.zeros(count)
    for _ in range(batches):
        batch = replay.sample(Context())
        counts += np.bincount(batch.idx[0], minlength=count)
        probability[batch.idx[0]] = batch.probability[0]
    edges = naive_edges(0.7, count, batch_size)
    widths = np.repeat(np.diff(edges), np.diff(edges))
    expected = (1.0 / (batch_size * widths))[::-1]
    chi_square(counts, batches * batch_size * expected)
    np.testing.assert_allclose(probability, expected)


def test_unused_experiences_come_first() -> None:
    replay = make("FULL[PER]", capacity=200, batch=8)
    fill(replay, 100)
    state = replay.state_dict()
    state["td_error"] = np.r_[np.linspace(1, 2, 99), np.inf][None].astype(np.float32)
    replay.load_state_dict(state)
    assert replay.sample(Context()).idx[0, 0] == 99


def test_annotation_of_an_overwritten_experience_is_dropped() -> None:
    """The batch is drawn, its slots get new occupants, then the learner answers: the new ones stay unused (∞)."""
    replay = make("FIFO[PER]", capacity=8, batch=4)
    fill(replay, 8)
    batch = replay.sample(Context())
    fill(replay, 8, 8)
    replay.annotate(batch, {"td_error": np.zeros((1, 4), np.float32)})
    assert np.isinf(replay.state_dict()["td_error"]).all()


def test_duplicates_in_a_batch_leave_one_priority() -> None:
    replay = make("FULL[PER]", capacity=8, batch=8)
    fill(replay, 2)
    batch = replay.sample(Context())
    assert len(set(batch.idx[0].tolist())) == 2
    td_error = np.where(batch.idx == 0, -3.0, 5.0).astype(np.float32)
    replay.annotate(batch, {"td_error": td_error})
    np.testing.assert_array_equal(replay.state_dict()["td_error"], [[3.0, 5.0]])


@pytest.mark.parametrize(("progress", "beta"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_importance_weights_are_equation_8(progress: float, beta: float) -> None:
    replay = make("FULL[PER+IS]", capacity=64, batch=8)
    fill(replay, 50)
    batch = replay.sample(Context(progress=progress))
    np.testing.assert_allclose(batch.weight, (50 * batch.probability) ** -beta, rtol=1e-6)
    assert batch.weight.std() > 0


def test_normalised_importance_weights_have_maximum_one() -> None:
    replay = make("FULL[PER+IS(normalise=true)]", capacity=64)
    fill(replay, 50)
    np.testing.assert_array_equal(replay.sample(Context(progress=1.0)).weight.max(axis=1), 1.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_save_and_load_give_identical_next_draws(strategy: str) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    capacity = 3000 if "FULL" in strategy else 50
    one = make(strategy, members=2, capacity=capacity)
    fill(one, 80)
    for _ in range(20):
        batch = one.sample(Context())
        one.annotate(batch, {"td_error": rng.normal(size=batch.weight.shape).astype(np.float32)})
    two = make(strategy, members=2, capacity=capacity)
    two.load_state_dict({name: array.copy() for name, array in one.state_dict().items()})
    for number in range(1000):
        first, second = one.sample(Context()), two.sample(Context())
        np.testing.assert_array_equal(first.idx, second.idx)
        np.testing.assert_array_equal(first.columns["reward"], second.columns["reward"])
        td_error = rng.normal(size=first.weight.shape).astype(np.float32)
        for replay, batch in ((one, first), (two, second)):
            replay.annotate(batch, {"td_error": td_error})
            fill(replay, 1, 80 + number)


class NaiveRanks:
    """Rank-based draws by sorting everything, for one member."""

    def __init__(self, replay: Replay, alpha: float, segments: int) -> None:
        self.keys: dict[int, float] = {}
        self.state = replay.sampling.stream.state.copy()  # type: ignore[attr-defined]
        self.alpha, self.segments = alpha, segments

    def draw(self) -> list[int]:
        from replaybench.data.streams import next_double

        ranked = sorted(self.keys, key=lambda slot: (-self.keys[slot], slot))
        count = len(ranked)
        if count >= self.segments:
            edges = naive_edges(self.alpha, count, self.segments)
        else:
            edges = [min(b, count) for b in range(self.segments + 1)]
        drawn = []
        for low, high in itertools.pairwise(edges):
            low = min(low, count - 1)
            drawn.append(ranked[low + int(next_double(self.state[0]) * max(high - low, 1))])
        return drawn


@given(st.lists(st.one_of(st.just("add"), st.floats(0, 100, width=32)), min_size=1, max_size=40), st.integers(0, 2))
@settings(deadline=None, max_examples=60)
def test_any_sequence_draws_as_the_naive_oracle(actions: list[str | float], which: int) -> None:
    """Add or sample-and-annotate in any order, under each retention: draws equal those of a full sort."""
    retention = ("FIFO", "FULL", "Resv")[which]
    replay = make(f"{retention}[PER]", capacity=7 if which != 1 else 50, batch=5)
    oracle = NaiveRanks(replay, 0.7, 5)
    fill(replay, 1)
    oracle.keys[0] = np.inf
    for number, action in enumerate(actions, start=1):
        if action == "add":
            before = replay.columns.serial.copy()
            fill(replay, 1, number)
            for slot in np.flatnonzero((replay.columns.serial != before)[0]):
                oracle.keys[int(slot)] = np.inf
        else:
            batch = replay.sample(Context())
            assert batch.idx[0].tolist() == oracle.draw()
            td_error = (np.float32(action) * np.cos(batch.idx)).astype(np.float32)
            replay.annotate(batch, {"td_error": td_error})
            for slot, error in zip(batch.idx[0], td_error[0], strict=True):
                oracle.keys[int(slot)] = abs(float(error))


def test_members_draw_the_same_in_any_population() -> None:
    together, alone = make("Resv[PER]", members=4), Replay(parse("Resv[PER]"), FIELDS, 32, 0, [2], 8)
    fill(together, 90)
    fill(alone, 90)
    for _ in range(10):
        np.testing.assert_array_equal(together.sample(Context()).idx[2], alone.sample(Context()).idx[0])


def test_every_retention_says_whether_it_is_bounded() -> None:
    assert FIFO().bounded
    assert Resv().bounded
    assert not FULL().bounded


def test_capacity_must_be_positive() -> None:
    with pytest.raises(UserError, match="capacity"):
        make("FIFO[Uniform]", capacity=0)
