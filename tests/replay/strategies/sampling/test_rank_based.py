"""Rank-based replay as a distribution."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import chi_square, fill, make, set_errors
from naive import rank_segments

from replaybench.replay.strategies.prioritised import PER
from replaybench.runtime.errors import UserError


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


def test_annotations_take_effect_at_once() -> None:
    """Ranks are always current: the one with the largest |δ| is in the next batch's first segment of one rank."""
    replay = make("FULL[PER(2.0)]", capacity=100, batch=8)
    fill(replay, 100)
    set_errors(replay, np.linspace(1, 2, 100)[None])
    for top in (5.0, 6.0, 7.0):
        batch = replay.sample()
        td_error = np.ones((1, 8), np.float32)
        td_error[0, -1] = -top
        best = batch.idx[0, -1]
        replay.annotate(batch, {"td_error": td_error})
        assert replay.sample().idx[0, 0] == best


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


def test_unused_experiences_come_first() -> None:
    replay = make("FULL[PER]", capacity=200, batch=8)
    fill(replay, 100)
    set_errors(replay, np.r_[np.linspace(1, 2, 99), np.inf][None])
    assert replay.sample().idx[0, 0] == 99


@pytest.mark.parametrize("alpha", [-0.1, np.nan, np.inf])
def test_the_exponent_is_checked(alpha: float) -> None:
    with pytest.raises(UserError, match="finite number"):
        PER(alpha)
