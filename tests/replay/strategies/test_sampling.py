"""Recent, attentive and prioritised sampling; weights by the chances of draws (eq. 8) and by replays (section 7.2)."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.geometric import TruncGeo
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.recent import ERE
from replaybench.replay.strategies.weighting import binomial_tails
from tests.helpers.buffers import FIELDS, chi_square, fill, make, saved, set_errors
from tests.helpers.naive import NaiveReplay, rank_segments


def schedule(ere: ERE, size: int, updates: int, progress: float = 0.0, stored: int | None = None) -> np.ndarray:
    count = np.array([size if stored is None else stored])
    return np.array([ere.newest(Context(k, updates, progress), size, count)[0] for k in range(updates)])


@pytest.mark.parametrize(("eta", "c_min"), [(0.996, 5000), (0.994, 5000), (0.999, 5000), (0.996, 1000), (0.9, 20_000)])
def test_the_range_shrinks_as_the_paper_says(eta: float, c_min: int) -> None:
    k = np.arange(1, 1001)
    expected = np.maximum(1e6 * eta**k, c_min)
    c = schedule(ERE(eta, c_min), 1_000_000, 1000)
    np.testing.assert_array_equal(c, np.floor(expected))
    coarse = schedule(ERE(eta, c_min), 1_000_000, 100)  # the same range in fewer updates
    np.testing.assert_array_equal(coarse, c[9::10])


def test_the_reverse_order_goes_from_the_newest_to_all() -> None:
    np.testing.assert_array_equal(schedule(ERE(reverse=True), 10**6, 100), schedule(ERE(), 10**6, 100)[::-1])


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


def ages(replay: Replay, idx: np.ndarray) -> np.ndarray:
    """Return how many stored experiences of the same member are newer than each drawn one."""
    serial = replay.columns.serial[:, : replay.count[0]]
    rank = serial.shape[1] - 1 - np.argsort(np.argsort(serial, axis=1), axis=1)
    return np.take_along_axis(rank, idx, axis=1)


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


@pytest.mark.parametrize("capacity", [100, None])
def test_a_c_min_beyond_all_that_is_stored_leaves_uniform_sampling(capacity: int | None) -> None:
    newest = ERE(c_min=10**23).newest(Context(), capacity, np.array([1, 20, 100]))
    np.testing.assert_array_equal(newest, [1, 20, 100])


def test_the_smallest_mean_age_is_that_of_a_geometric_law() -> None:
    assert TruncGeo(0.001).decay == pytest.approx(1000)


@pytest.mark.parametrize(("share", "retention"), [(0.25, "FIFO"), (0.15, "Resv"), (0.25, "FULL"), (0.5, "TDE")])
def test_ages_follow_the_truncated_geometric_law(share: float, retention: str) -> None:
    """P(k) = p (1 − p)^k / (1 − (1 − p)^N), in buffers that are full and that are not."""
    members, capacity = 300, 100
    for stored in (capacity, 40):
        replay = make(f"{retention}[TruncGeo({share})]", members, capacity, 20)
        fill(replay, 250 if stored == capacity and retention != "FULL" else stored)
        drawn = [(ages(replay, batch.idx), batch.probability.copy()) for batch in (replay.sample() for _ in range(20))]
        age, found = (np.concatenate(part, axis=1) for part in zip(*drawn, strict=True))
        decay = replay.strategy.sampling.decay  # type: ignore[attr-defined]
        p, k = -np.expm1(-decay / (stored if retention == "FULL" else capacity)), np.arange(stored)
        chance = p * (1 - p) ** k / (1 - (1 - p) ** stored) if p else np.full(stored, 1 / stored)
        np.testing.assert_allclose(found, chance[age], rtol=1e-9)
        chi_square(np.bincount(age.ravel(), minlength=stored), members * 400 * chance)
        if stored == capacity:
            assert (chance * k).sum() / capacity == pytest.approx(share, abs=0.51 / capacity)


def test_loss_adjusted_priorities_have_a_floor() -> None:
    replay = make("FIFO[LAP(0.4)]", capacity=8, batch=8)
    fill(replay, 8)
    replay.annotate(replay.sample(), {"td_error": np.array([[0, 0.5, 1, 2, 4, 0.1, 8, np.nan]], np.float32)})
    floored = np.maximum([0, 0.5, 1, 2, 4, 0.1, 8, 8], 1.0) ** 0.4  # not finite: the largest so far
    np.testing.assert_allclose(saved(replay)["priority"][0], floored, rtol=1e-6)
    fill(replay, 1)
    assert saved(replay)["priority"][0, 0] == floored.max().astype(np.float32)


@pytest.mark.parametrize("retention", ["FIFO", "Resv"])
def test_reliabilities_are_those_of_a_recomputation_after_many_changes(retention: str) -> None:
    """10⁴ operations; then draws and probabilities follow |δ|^α R^ω (Pleiss et al., 2025)."""
    rng = np.random.Generator(np.random.PCG64(0))
    strategy, members, capacity = parse(f"{retention}[ReaPER(0.7, omega=1.5)]"), 4, 60
    replay = Replay(strategy, FIELDS, capacity, 0, range(members), 50)
    oracles = [NaiveReplay(strategy, capacity, 0, m, 50) for m in range(members)]
    zeros = {name: np.zeros((members, width), np.float32) for name, width in FIELDS.items()}
    for number in range(10_000 // members):
        ended = rng.random(members) < 0.1
        replay.add(zeros, np.ones(members, np.bool_), ended)
        for m, oracle in enumerate(oracles):
            oracle.add({name: array[m] for name, array in zeros.items()}, bool(ended[m]))
        if number % 20 == 0:
            batch, errors = replay.sample(), rng.lognormal(0, 2, (members, 50)).astype(np.float32)
            replay.annotate(batch, {"td_error": errors})
            for m, oracle in enumerate(oracles):
                oracle.sample(Context(), np.zeros(2))
                oracle.annotate(batch.idx[m].tolist(), batch.serial[m].tolist(), errors[m], np.zeros(50))
    size = np.array([[unit.priority for unit in oracle.slots] for oracle in oracles], np.float64)
    law = size**0.7 * np.array([oracle.reliabilities() for oracle in oracles]) ** 1.5
    law /= law.sum(axis=1, keepdims=True)
    counts = np.zeros(law.shape)
    for _ in range(1000):
        batch = replay.sample()
        for m in range(members):
            counts[m] += np.bincount(batch.idx[m], minlength=capacity)
        ratio = batch.probability / np.take_along_axis(law, batch.idx, axis=1)
        np.testing.assert_allclose(ratio, np.tile(ratio[:, :1], 50), rtol=1e-6)
    np.testing.assert_allclose(ratio, 1, rtol=0.03)  # the common factor is estimated
    often = law * 50_000 >= 5
    for m in range(members):
        rest = counts[m][~often[m]].sum(), law[m][~often[m]].sum() * 50_000
        found, expected = np.append(counts[m][often[m]], rest[0]), np.append(law[m][often[m]] * 50_000, rest[1])
        chi_square(
            found[expected >= 5], expected[expected >= 5] * found[expected >= 5].sum() / expected[expected >= 5].sum()
        )


def test_a_log_of_ages_that_mixes_episodes_is_refused() -> None:
    """Draws by reliability would never end."""
    replay = make("FIFO[ReaPER]", capacity=8)
    for number in range(8):
        zeros = {name: np.zeros((1, width), np.float32) for name, width in FIELDS.items()}
        replay.add(zeros, np.ones(1, np.bool_), np.array([number % 4 == 3]))
    state = saved(replay)
    state["age_place"] = state["age_place"][:, ::-1].copy()
    with pytest.raises(ValueError, match="does not list episodes one after the other"):
        make("FIFO[ReaPER]", capacity=8).load_state_dict(state)


@pytest.mark.parametrize("strategy", ["FIFO[PER+Newest+IS]", "Resv[Uniform+Newest]", "TDE[AER+Newest]"])
def test_the_last_sample_of_each_batch_is_the_newest_experience(strategy: str) -> None:
    replay, plain = (make(text, 2, 16, 4) for text in (strategy, strategy.replace("+Newest", "")))
    state = saved(replay)
    for number in range(40):
        for each in (replay, plain):
            fill(each, 1, number)
        batch, without = (each.sample(attend(2, 1, 0)) for each in (replay, plain))
        newest = replay.columns.serial.max(axis=1)
        np.testing.assert_array_equal(batch.serial[:, -1], newest)
        np.testing.assert_array_equal(batch.idx[:, :-1], without.idx[:, :-1])
        np.testing.assert_array_equal(batch.weight[:, -1], 1)
        state = saved(replay)
    again = make(strategy, 2, 16, 4)
    again.load_state_dict(state)
    np.testing.assert_array_equal(again.sample(attend(2, 1, 0)).serial[:, -1], newest)


def attend(members: int, *state: float, progress: float = 0.0) -> Context:
    return Context(progress=progress, state=np.tile(np.array(state, np.float32), (members, 1)))


def test_nan_has_no_likeness() -> None:
    replay = make("FULL[AER(2.0)]", capacity=8, batch=4)
    for first in (np.nan, 1) * 4:
        fill(replay, 1, observation=np.array([first, 0]))
    assert sorted(replay.sample(attend(1, 1, 0)).idx[0]) == [1, 3, 5, 7]
    assert len(set(replay.sample(attend(1, np.nan, 0)).idx[0])) == 4


def test_the_attended_state_is_needed() -> None:
    replay = make("FULL[AER]", capacity=8)
    fill(replay, 8)
    with pytest.raises(ValueError, match="the state that each agent attends to"):
        replay.sample()


@pytest.mark.parametrize("alpha", [0.6, 8.0, 40.0])
def test_an_error_of_zero_can_still_be_drawn(alpha: float) -> None:
    """Under a large α its priority would be too small for a float32; where all are 0, all are drawn alike."""
    replay = make(f"FIFO[PERprop(alpha={alpha})]", capacity=8, batch=8)
    fill(replay, 8)
    for _ in range(10):
        replay.annotate(replay.sample(), {"td_error": np.zeros((1, 8), np.float32)})
    batch = replay.sample()
    assert batch.idx[0].tolist() == list(range(8))
    np.testing.assert_allclose(batch.probability, 1 / 8)
    least = max((1e-6) ** alpha, 2.0**-126)  # the smallest normal number
    np.testing.assert_allclose(saved(replay)["priority"], least, rtol=1e-6)


@pytest.mark.parametrize("wrong", [-1.0, np.inf, np.nan])
def test_priorities_by_which_nothing_can_be_drawn_are_refused(wrong: float) -> None:
    replay = make("FIFO[PERprop]", capacity=8)
    fill(replay, 8)
    state = saved(replay)
    state["priority"][0, 3] = wrong
    with pytest.raises(ValueError, match="negative or not finite"):
        replay.load_state_dict(state)


def test_a_change_of_batch_size_cuts_anew() -> None:
    replay = make("FULL[PER+FIS]", capacity=100, batch=8)
    fill(replay, 100)
    set_errors(replay, -np.arange(100.0)[None] + 100)
    replay.sample()
    replay.batch_size = 20
    for _ in range(50):
        batch = replay.sample(Context(2, 5))
        assert batch.idx.shape == batch.weight.shape == batch.reward.shape[:2] == (1, 20)
        assert (batch.update, batch.updates_in_phase) == (2, 5)
        for slot, ranks in zip(batch.idx[0], rank_segments(0.7, 100, 20), strict=True):
            assert slot in ranks


GOLDEN = {1: 1.162, 4: 1.113, 8: 0.636, 12: 0.130, 16: 0.010}
"""Weights of the K-th replay for C = 10⁴, B = 16, np = 8: by hand from the definition (`FACTS.md`)."""


def test_golden_weights_by_replay_count() -> None:
    """In a full buffer of 10⁴ after 20,000 offers, before the first update of phase 101 of 100 updates."""
    replay = make("FIFO[Uniform+FIS]", capacity=10_000, batch=16)
    fill(replay, 10_000)
    replay.offers[:] = 20_000
    weighting: Any = replay.weighting
    weighting.before[:] = 200, 100
    for count, golden in GOLDEN.items():
        weighting.replays[:] = count - 1
        replay.updates = 9_900
        batch = replay.sample(Context(0, 100))
        once = np.unique(batch.idx[0], return_index=True)[1]  # a second draw of the same batch has K + 1
        np.testing.assert_allclose(batch.weight[0, once], golden, atol=5e-4)


@pytest.mark.parametrize("warm_up", [0, 40, 400])
def test_a_warm_up_leaves_lifetimes_as_they_are(warm_up: int) -> None:
    """Phases of 20 updates follow 40 offers each: n is the updates so far, then 200, and np = 8."""
    replay = make("FIFO[Uniform+FIS]", capacity=400, batch=16)
    running: Any = replay.weighting
    fill(replay, warm_up)
    for phase in range(12):
        fill(replay, 40)
        replay.sample(Context(0, 20))
        usage = replay._usage(Context(0, 20), replay.count)
        lifetime, expected = running._lifetime(usage, 16)
        n = 200 if phase >= 9 else replay.updates
        assert (lifetime[0], expected[0]) == (n, pytest.approx(16 * n / replay.count[0])), phase
        for update in range(1, 20):
            replay.sample(Context(update, 20))


MEANS = [(n, min(1.0, mean / n)) for n in (1, 2, 8, 100, 5000, 200_000) for mean in (1e-6, 0.3, 8.0, 300.0)]


@pytest.mark.parametrize(("n", "p"), [*MEANS, (5000, 0.9), (3, 1.0), (3, 1.7), (10, 1 - 1e-12)])
def test_binomial_tails(n: int, p: float) -> None:
    most = min(60, 2 * n + 3)
    expected = binom(n, min(p, 1.0)).sf(np.arange(most + 1) - 1)
    np.testing.assert_allclose(binomial_tails(n, p, most), expected, rtol=1e-9, atol=1e-13)


def test_fewer_updates_than_a_lifetime_has() -> None:
    """400 offers to a buffer of 8 before the first update: n, at least 1, is not rounded to 0."""
    replay = make("FIFO[Uniform+FIS]", capacity=8, batch=4)
    fill(replay, 400)
    assert np.isfinite(replay.sample().weight).all()
