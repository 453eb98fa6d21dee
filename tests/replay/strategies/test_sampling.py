"""Uniform, recent and attentive sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from buffers import FIELDS, chi_square, fill, make, saved

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.attentive import AER
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.recent import ERE
from replaybench.runtime.errors import UserError


def test_every_experience_of_every_member_has_the_same_chance() -> None:
    members, stored, batch, rounds = 20, 30, 16, 100
    replay = make("FIFO[Uniform]", members, capacity=40, batch=batch)
    fill(replay, stored)
    counts = np.zeros((members, stored))
    for _ in range(rounds):
        drawn = replay.sample()
        np.testing.assert_array_equal(drawn.probability, 1 / stored)
        for m in range(members):
            counts[m] += np.bincount(drawn.idx[m], minlength=stored)
    chi_square(counts, np.full(counts.shape, rounds * batch / stored))


def schedule(ere: ERE, size: int, updates: int, progress: float = 0.0, stored: int | None = None) -> np.ndarray:
    """Return c_k for k = 1 … K."""
    count = np.array([size if stored is None else stored])
    return np.array([ere.newest(Context(k, updates, progress), size, count)[0] for k in range(updates)])


def expected_draws(c: np.ndarray, size: int, batch: int) -> np.ndarray:
    """Return Σ_k B / c_k · [i ≤ c_k] for i = 1 … N, the newest first."""
    per_range = np.bincount(c, weights=batch / c, minlength=size + 1)
    return per_range[::-1].cumsum()[::-1][1:]


@pytest.mark.parametrize(("eta", "c_min"), [(0.996, 5000), (0.994, 5000), (0.999, 5000), (0.996, 1000), (0.9, 20_000)])
def test_the_range_shrinks_as_the_paper_says(eta: float, c_min: int) -> None:
    k = np.arange(1, 1001)
    expected = np.maximum(1e6 * eta**k, c_min)
    c = schedule(ERE(eta, c_min), 1_000_000, 1000)
    np.testing.assert_array_equal(c, np.floor(expected))
    coarse = schedule(ERE(eta, c_min), 1_000_000, 100)  # the same range in fewer updates
    np.testing.assert_array_equal(coarse, c[9::10])


def test_eta_moves_to_one() -> None:
    c = [schedule(ERE(0.996), 1_000_000, 1000, progress)[499] for progress in (0.0, 0.5, 1.0)]
    assert c == [int(1e6 * 0.996**500), int(1e6 * 0.998**500), 1_000_000]
    assert schedule(ERE(0.99, last=0.99), 1_000_000, 10, 1.0)[0] == int(1e6 * 0.99**100)


def test_the_reverse_order_goes_from_the_newest_to_all() -> None:
    np.testing.assert_array_equal(schedule(ERE(reverse=True), 10**6, 100), schedule(ERE(), 10**6, 100)[::-1])
    assert str(parse("FIFO[ERE(phase=1000, reverse=true)]")) == "FIFO[ERE(phase=1000, reverse=true)]"


def test_the_least_range_goes_with_the_capacity() -> None:
    """5000 for the paper's million, a 200th of smaller buffers, never more than what is stored."""
    assert schedule(ERE(0.5), 1_000_000, 10)[-1] == 5000
    assert schedule(ERE(0.5), 10_000, 10)[-1] == 50
    assert schedule(ERE(0.5), 100, 10)[-1] == 1
    assert schedule(ERE(0.5, c_min=300), 10_000, 10)[-1] == 300
    assert set(schedule(ERE(0.996), 10_000, 10, stored=40)) == {40}
    assert set(schedule(ERE(0.996), 10_000, 10, stored=7_000)[:1]) == {int(10_000 * 0.996**100)}


def test_a_buffer_without_a_size_is_as_large_as_what_it_stores() -> None:
    count = np.array([10_000, 300])
    assert ERE(0.996).newest(Context(0, 10), None, count).tolist() == [int(10_000 * 0.996**100), int(300 * 0.996**100)]
    assert ERE(0.5).newest(Context(0, 10), None, count).tolist() == [50, 1]


def test_a_phase_of_its_own_goes_on_over_those_of_the_schedule() -> None:
    """One update after each step, as SAC has it: c_k falls over K of them as over an episode's."""
    ere, count = ERE(0.996, phase=1000), np.array([1_000_000])
    c = [int(ere.newest(Context(0, 1, updates_before=k), 1_000_000, count)[0]) for k in range(2500)]
    whole = schedule(ERE(0.996), 1_000_000, 1000)
    np.testing.assert_array_equal(c, np.r_[whole, whole, whole[:500]])


def test_figure_1_in_closed_form() -> None:
    """N = 10⁶, K = 1000, B = 256, η = 0.996: the newest is drawn about 10,000 times as often as the oldest.

    The closed form says 13,400: Σ_k η^−k against η^−1 for the oldest of the widest range; the last 4000 experiences
    lie beyond c₁ and are not drawn at all.
    """
    size, updates, batch = 1_000_000, 1000, 256
    c = schedule(ERE(0.996), size, updates)
    draws = expected_draws(c, size, batch)
    assert draws.sum() == pytest.approx(updates * batch)
    assert (np.diff(draws) <= 0).all()
    assert draws[0] == pytest.approx(batch / size * np.sum(0.996 ** -np.arange(1.0, 1001)), rel=1e-4)
    assert np.count_nonzero(draws == 0) == 4000
    ratio = draws[0] / draws[c[0] - 1]
    assert ratio == pytest.approx((0.996**-1000 - 1) / (1 / 0.996 - 1), rel=1e-4)
    assert 1e4 < ratio < 1.4e4


def ages(replay: Replay, idx: np.ndarray) -> np.ndarray:
    """Return how many stored experiences of the same member are newer than each drawn one."""
    serial = replay.columns.serial[:, : replay.count[0]]
    rank = serial.shape[1] - 1 - np.argsort(np.argsort(serial, axis=1), axis=1)
    return np.take_along_axis(rank, idx, axis=1)


@pytest.mark.parametrize("retention", ["FIFO", "FULL", "Resv", "TDE"])
@pytest.mark.parametrize("size", [60, 97])
def test_replay_counts_are_the_closed_form(retention: str, size: int) -> None:
    """Over whole phases, in a ring that has turned over, one that is not full, and where any slot is renewed."""
    members, updates, batch, phases = 100, 20, 16, 8
    ere = ERE(0.9985, c_min=15, last=0.9985)
    replay = make(f"{retention}[{ere_text(ere)}]", members, size, batch)
    fill(replay, size if retention == "FULL" else 160)
    c = schedule(ere, size, updates)
    counts = np.zeros(size)
    for _ in range(phases):
        for k in range(updates):
            drawn_now = replay.sample(Context(k, updates))
            age = ages(replay, drawn_now.idx)
            assert age.max() < c[k]
            np.testing.assert_allclose(drawn_now.probability, 1 / c[k], rtol=1e-6)
            counts += np.bincount(age.ravel(), minlength=size)
    expected = expected_draws(c, size, batch) * members * phases
    drawn = expected > 0
    assert not counts[~drawn].any()
    chi_square(counts[drawn], expected[drawn])


def ere_text(ere: ERE) -> str:
    return f"ERE({ere.eta}, c_min={ere.c_min}, last={ere.last})"


@pytest.mark.parametrize("retention", ["FIFO", "FULL", "Resv"])
@pytest.mark.parametrize("old", [1e28, 1e30])
def test_a_huge_error_that_is_older_than_the_window_leaves_it_alone(retention: str, old: float) -> None:
    """Draws and weights among the newest are exact, whatever is summed up beside them."""
    members, size, newest = 300, 400, 290
    replay = make(f"{retention}[ERE(0.0001, c_min={newest}, last=0.0001)+PER(1.0)]", members, size, 1)
    fill(replay, size if retention == "FULL" else 555)
    weights = np.linspace(1, 4, size)
    weights[newest + 60 :: 7] = old
    weights = weights.astype(np.float32).astype(np.float64)
    state, slots = saved(replay), np.tile(np.arange(size), (members, 1))
    replay.load_state_dict({**state, "priority": weights[ages(replay, slots)].astype(np.float32)})
    expected = weights[:newest] / weights[:newest].sum()
    counts = np.zeros(size)
    for _ in range(40):
        batch = replay.sample()
        age = ages(replay, batch.idx)
        counts += np.bincount(age.ravel(), minlength=size)
        np.testing.assert_allclose(batch.probability, expected[np.minimum(age, newest - 1)], rtol=1e-12)
        np.testing.assert_array_equal(batch.weight, 1.0)
    assert not counts[newest:].any()
    chi_square(counts[:newest], 40 * members * expected)
    replay.batch_size = 8
    batch = replay.sample()
    raw = batch.probability**-0.6
    np.testing.assert_allclose(batch.weight, raw / raw.max(axis=1, keepdims=True), rtol=1e-6)


def test_an_annotation_of_a_member_without_experiences_changes_nothing() -> None:
    """Its rows of zeros were never stored: no priority, and no trace in what its first experience gets."""
    for text in ("Resv[ERE+PER]", "FIFO[ERE+PER]", "FIFO[PERprop]"):
        replay = make(text, members=2, capacity=64, batch=4)
        experience = {name: np.ones((2, width), np.float32) for name, width in replay.columns.fields.items()}
        replay.add(experience, np.array([True, False]))
        batch = replay.sample()
        assert (batch.weight[1] == 0).all()
        replay.annotate(batch, {"td_error": np.full((2, 4), 100, np.float32)})
        sampling: Any = replay.sampling
        assert not sampling.sums.leaf[1].any()
        assert sampling.largest[1] == 1.0


@pytest.mark.parametrize("capacity", [100, None])
def test_a_c_min_beyond_all_that_is_stored_leaves_uniform_sampling(capacity: int | None) -> None:
    newest = ERE(c_min=10**23).newest(Context(), capacity, np.array([1, 20, 100]))
    np.testing.assert_array_equal(newest, [1, 20, 100])


def test_a_buffer_counts_the_updates_of_a_phase_also_when_it_was_saved() -> None:
    ere = "ERE(0.9995, c_min=1, last=0.9995, phase=5)"
    one, c = make(f"FIFO[{ere}]", 200, 60, 16), schedule(ERE(0.9995, 1, 0.9995), 60, 5)
    fill(one, 75)
    for number in range(13):
        if number == 7:
            two = make(f"FIFO[{ere}]", 200, 60, 16)
            two.load_state_dict(saved(one))
            one = two
        fill(one, 1, number)
        assert ages(one, one.sample(Context(0, 1)).idx).max() == c[number % 5] - 1


@pytest.mark.parametrize(
    "wrong", [{"eta": 0.0}, {"eta": 1.1}, {"last": 0.0}, {"eta": np.nan}, {"c_min": 0}, {"phase": 1}]
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="ERE"):
        ERE(**wrong)


def fill_states(replay: Replay, states: np.ndarray) -> None:
    """Store `states` `[n, 2]`, one after the other, for every member."""
    for state in states:
        fill(replay, 1, observation=state)


def attend(members: int, *state: float, progress: float = 0.0) -> Context:
    return Context(progress=progress, state=np.tile(np.array(state, np.float32), (members, 1)))


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_without_widening_draws_are_those_of_uniform_sampling(progress: float) -> None:
    """λ = 1: the same slots in the same order from the same stream, where Uniform repeats none."""
    members, stored, batch = 200, 400, 8
    attentive, uniform = (make(f"FULL[{s}]", members, stored, batch) for s in ("AER(1.0)", "Uniform"))
    for replay in (attentive, uniform):
        fill(replay, stored)
    drawn = attentive.sample(attend(members, 1, 0, progress=progress)).idx
    plain = uniform.sample().idx
    distinct = np.array([len(set(row)) == batch for row in plain.tolist()])
    assert distinct.sum() > 150
    np.testing.assert_array_equal(drawn[distinct], plain[distinct])


@pytest.mark.parametrize(("stored", "batch"), [(30, 5), (30, 15), (30, 20)])
def test_without_widening_draws_are_uniform_and_distinct(stored: int, batch: int) -> None:
    members, rounds = 300, 40
    replay = make("FULL[AER(1.0)]", members, stored, batch)
    fill(replay, stored)
    counts = np.zeros(stored)
    for _ in range(rounds):
        idx = replay.sample(attend(members, 1, 0)).idx
        assert (np.diff(np.sort(idx, axis=1), axis=1) > 0).all()
        counts += np.bincount(idx.ravel(), minlength=stored)
    # Draws without replacement spread less by (N − B) / (N − 1).
    chi_square(counts, np.full(stored, rounds * members * batch / stored), (stored - 1) / (stored - batch))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 50.0])
def test_where_all_are_candidates_the_nearest_are_picked(scale: float) -> None:
    """λB = everything stored: the B directions next to the attended one, however long the vectors."""
    angles = np.random.Generator(np.random.PCG64(0)).permutation(40) / 40 * 2 * np.pi
    replay = make("FULL[AER(5.0)]", capacity=40, batch=8)
    fill_states(replay, np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.arange(1, 41)[:, None])
    for attended in (0.1, 2.0, -3.0):
        batch = replay.sample(attend(1, scale * np.cos(attended), scale * np.sin(attended)))
        distance = abs((angles - attended + np.pi) % (2 * np.pi) - np.pi)
        assert sorted(batch.idx[0]) == sorted(np.argsort(distance)[:8])


def test_a_zero_vector_is_like_nothing_and_unlike_nothing() -> None:
    """Its cosine counts as 0: behind what points the same way, ahead of what points the other way."""
    states = np.array([[-1, 0], [0, 0], [1, 0], [0, 0], [-1, 0], [1, 0]])
    replay = make("FULL[AER(1.5)]", capacity=6, batch=4)
    fill_states(replay, states)
    for _ in range(10):
        assert sorted(replay.sample(attend(1, 1, 0)).idx[0]) == [1, 2, 3, 5]
    for _ in range(10):
        assert len(set(replay.sample(attend(1, 0, 0)).idx[0])) == 4


def test_ties_go_by_draw_order() -> None:
    """Where all are alike, the batch is the first B of the candidates, and any of them can be in it."""
    replay = make("FULL[AER(3.0)]", capacity=60, batch=5)
    fill(replay, 60, observation=1)
    wide = [replay.sample(attend(1, 1, 1)).idx[0].copy() for _ in range(100)]
    assert len(set(np.concatenate(wide))) == 60
    one, other = make("FULL[AER(1.0)]", capacity=60, batch=15), make("FULL[AER(3.0)]", capacity=60, batch=5)
    for replay in (one, other):
        fill(replay, 60, observation=1)
    first, second = one.sample(attend(1, 1, 1)).idx[0], other.sample(attend(1, 1, 1)).idx[0]
    np.testing.assert_array_equal(first[:5], second)


def test_fewer_stored_than_asked_for() -> None:
    """The batch repeats what there is, in turn."""
    replay = make("FULL[AER]", capacity=10, batch=8)
    fill(replay, 3)
    idx = replay.sample(attend(1, 1, 0)).idx[0].tolist()
    assert sorted(idx[:3]) == [0, 1, 2]
    assert idx == (idx[:3] * 3)[:8]


def test_nan_has_no_likeness() -> None:
    replay = make("FULL[AER(2.0)]", capacity=8, batch=4)
    fill_states(replay, np.array([[np.nan, 0], [1, 0]] * 4))
    assert sorted(replay.sample(attend(1, 1, 0)).idx[0]) == [1, 3, 5, 7]
    assert len(set(replay.sample(attend(1, np.nan, 0)).idx[0])) == 4


def test_the_attended_state_is_needed() -> None:
    replay = make("FULL[AER]", capacity=8)
    fill(replay, 8)
    with pytest.raises(ValueError, match="the state that each agent attends to"):
        replay.sample()
    fields = {name: width for name, width in FIELDS.items() if name != "observation"}
    with pytest.raises(UserError, match="selects by observation"):
        Replay(replay.strategy, fields, 8, 0, range(1), 4)


def test_the_place_in_a_batch_says_nothing() -> None:
    """Which slot is drawn first is uniform, too: candidates come in draw order."""
    members, stored = 300, 20
    replay = make("FULL[AER(2.0)]", members, stored, 8)
    fill(replay, stored, observation=0)
    counts = np.zeros(stored)
    for _ in range(40):
        counts += np.bincount(replay.sample(attend(members, 1, 0)).idx[:, 0], minlength=stored)
    chi_square(counts, np.full(stored, 40 * members / stored))


@pytest.mark.parametrize("wrong", [{"first": 0.5}, {"first": np.inf}, {"alpha": 0.0}, {"alpha": 1.5}])
def test_parameters_of_aer_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="AER"):
        AER(**wrong)
