"""Scores of hand-made learning curves, and intervals with their true coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from replaybench.experiments.statistics import interval, score


def test_scores_of_hand_made_curves() -> None:
    rising = np.r_[np.linspace(0, 0.9, 10), np.full(190, 1.0)]
    flat = np.full(200, 0.1)
    broken = rising.copy()
    broken[50] = np.nan
    scores = score(np.stack([rising, flat, broken]), failed=np.array([False, False, True]))
    np.testing.assert_allclose(scores.final[:2], [1.0, 0.1])
    np.testing.assert_allclose(scores.best[:2], [1.0, 0.1])
    np.testing.assert_array_equal(scores.rise[:2], [9.0, 200.0])
    assert np.isnan([scores.final[2], scores.best[2], scores.rise[2]]).all()
    assert scores.failed.tolist() == [False, False, True]
    assert scores.dead.tolist() == [False, True, False]
    assert scores.censored.tolist() == [False, True, False]


def test_the_final_score_is_the_mean_of_the_last_episodes() -> None:
    stepped = np.r_[np.full(100, 0.0), np.full(50, 0.4), np.full(50, 1.0)][None]
    assert score(stepped, failed=np.array([False])).final == [0.7]
    assert score(stepped, np.array([False]), final=25).final == [1.0]


def test_intervals_are_scipys() -> None:
    sample = np.append(np.random.Generator(np.random.PCG64(1)).exponential(size=30), np.nan)
    rng = np.random.Generator(np.random.PCG64(0))
    expected = bootstrap((sample[:30],), np.mean, n_resamples=10_000, method="BCa", rng=rng).confidence_interval
    found = interval(sample)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert not found.degenerate
    assert str(found) == f"{sample[:30].mean():.2f} [{found.low:.2f}, {found.high:.2f}]"


def test_samples_without_spread_are_labelled() -> None:
    for sample in (np.array([1.0]), np.full(5, 0.3), np.array([1.0, np.nan])):
        found = interval(sample)
        assert found.degenerate
        assert found.low == found.mean == found.high
    assert "no spread" in str(interval(np.full(5, 0.3)))
    assert str(interval(np.array([np.nan]))) == "–"
    assert interval(np.array([np.nan])).degenerate
    assert not interval(np.array([1.0, 2.0])).degenerate


def test_curves_without_a_usable_reference_are_neither_dead_nor_failed() -> None:
    scores = score(np.full((2, 50), np.nan), failed=np.array([False, True]))
    assert np.isnan(scores.final).all()
    assert scores.failed.tolist() == [False, True]
    assert not scores.dead.any()
    assert not scores.censored.any()
