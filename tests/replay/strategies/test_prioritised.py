"""Proportional and rank-based sampling, and their annealing."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import chi_square, fill, make, saved, set_errors
from naive import rank_segments

from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.prioritised import PER, PERprop
from replaybench.runtime.errors import UserError


def annotate_all(replay: Replay, errors: np.ndarray) -> None:
    """Give slot s of every member the TD error errors[s], until each has been drawn."""
    seen = np.zeros((len(replay.count), len(errors)), np.bool_)
    while not seen.all():
        batch = replay.sample()
        replay.annotate(batch, {"td_error": errors[batch.idx].astype(np.float32)})
        np.put_along_axis(seen, batch.idx, True, axis=1)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_draws_are_proportional_to_priority(alpha: float) -> None:
    """P = (|δ| + ε)^α / Σ: the exponent counts once, however often priorities are set."""
    count, members = 30, 500
    replay = make(f"FULL[PERprop({alpha})]", members=members, capacity=count, batch=count)
    fill(replay, count)
    errors = np.linspace(0.7, 3, count) * np.where(np.arange(count) % 2, 1, -1)
    annotate_all(replay, errors)
    annotate_all(replay, errors)
    replay.batch_size = 1
    expected = (abs(errors) + 1e-6) ** alpha
    expected /= expected.sum()
    counts = np.zeros(count)
    for _ in range(100):
        batch = replay.sample()
        counts += np.bincount(batch.idx.ravel(), minlength=count)
        np.testing.assert_allclose(batch.probability, expected[batch.idx], rtol=1e-5)
    chi_square(counts, 100 * members * expected)


def test_one_draw_from_each_part_of_the_priority() -> None:
    replay = make("FULL[PERprop(1.0)]", capacity=64, batch=64)
    fill(replay, 64)
    for _ in range(20):
        assert replay.sample().idx[0].tolist() == list(range(64))


@pytest.mark.parametrize("alpha", [0.6, 8.0, 40.0])
def test_an_error_of_zero_can_still_be_drawn(alpha: float) -> None:
    """Under a large α its priority would be too small for a float32; where all are 0, all are drawn alike."""
    replay = make(f"FIFO[PERprop({alpha})]", capacity=8, batch=8)
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


def test_parameters_are_checked() -> None:
    for wrong in ({"alpha": -1}, {"alpha": np.nan}, {"epsilon": 0.0}, {"epsilon": np.inf}):
        with pytest.raises(UserError, match="finite number"):
            PERprop(**wrong)


@pytest.mark.parametrize(("alpha", "count"), [(0.7, 50), (0.0, 50), (2.0, 50), (0.7, 8)])
def test_draws_follow_the_stratified_distribution(alpha: float, count: int) -> None:
    """Slot s has |δ| = s, so its rank is known; one draw from each segment per batch, uniform inside."""
    batch_size, batches = 8, 4000
    replay = make(f"FULL[PER({alpha})]", capacity=count, batch=batch_size)
    fill(replay, count)
    set_errors(replay, np.arange(count)[None])
    expected = np.zeros(count)
    for ranks in rank_segments(alpha, count, batch_size):
        expected[count - 1 - np.array(ranks)] += 1 / len(ranks) / batch_size
    counts = np.zeros(count)
    for _ in range(batches):
        batch = replay.sample()
        counts += np.bincount(batch.idx[0], minlength=count)
        np.testing.assert_allclose(batch.probability[0], expected[batch.idx[0]])
        for slot, ranks in zip(batch.idx[0], rank_segments(alpha, count, batch_size), strict=True):
            assert count - 1 - slot in ranks
    chi_square(counts, batches * batch_size * expected)


@pytest.mark.parametrize(("alpha", "count"), [(0.7, 2), (2.0, 7), (0.0, 3)])
def test_fewer_experiences_than_a_batch_are_drawn_by_rank_too(alpha: float, count: int) -> None:
    """They were the other way round once: one draw each, and all others of the last rank."""
    batches = 4000
    replay = make(f"FULL[PER({alpha})]", capacity=count, batch=8)
    fill(replay, count)
    set_errors(replay, np.arange(count)[None])
    law = (np.arange(count, 0, -1) ** -alpha) / (np.arange(count, 0, -1) ** -alpha).sum()
    counts = np.zeros(count)
    for _ in range(batches):
        batch = replay.sample()
        counts += np.bincount(batch.idx[0], minlength=count)
        np.testing.assert_allclose(batch.probability[0], law[batch.idx[0]])
        shares = np.bincount(batch.idx[0], minlength=count)
        assert (np.abs(shares - 8 * law) < 2).all(), "stratified: each batch has about its share of each"
    chi_square(counts, batches * 8 * law)


def test_a_change_of_batch_size_cuts_anew() -> None:
    replay = make("FULL[PER]", capacity=100, batch=8)
    fill(replay, 100)
    set_errors(replay, -np.arange(100.0)[None] + 100)
    replay.sample()
    replay.batch_size = 20
    for _ in range(50):
        batch = replay.sample()
        for slot, ranks in zip(batch.idx[0], rank_segments(0.7, 100, 20), strict=True):
            assert slot in ranks


@pytest.mark.parametrize("alpha", [-0.1, np.nan, np.inf])
def test_the_exponent_is_checked(alpha: float) -> None:
    with pytest.raises(UserError, match="finite number"):
        PER(alpha)
