"""Member streams: NumPy's own SFC64 bit for bit, independence of everything but seed, member and purpose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from replaybench.runtime.streams import PURPOSES, Stream, next_below


def numpy_stream(root: int, member: int, purpose: str) -> np.random.Generator:
    seed = np.random.SeedSequence(root, spawn_key=(member, PURPOSES.index(purpose)))
    return np.random.Generator(np.random.SFC64(seed))


@pytest.mark.parametrize("purpose", PURPOSES)
def test_draws_equal_numpys_generator(purpose: str) -> None:
    drawn = Stream(7, [0, 5, 123], purpose).uniform(1000)
    for row, member in zip(drawn, (0, 5, 123), strict=True):
        np.testing.assert_array_equal(row, numpy_stream(7, member, purpose).random(1000))


def test_a_member_draws_the_same_in_any_population() -> None:
    together, alone = Stream(0, range(50), "sensor"), Stream(0, [31], "sensor")
    np.testing.assert_array_equal(together.normal(100)[31], alone.normal(100)[0])


def test_normals_are_normal() -> None:
    """Kolmogorov–Smirnov with a false-alarm rate of 1e-6."""
    sample = Stream(0, [0], "sensor").normal(200_000)[0]
    assert kstest(sample, "norm").pvalue > 1e-6


def test_integers_below_n_are_uniform_and_reach_both_ends() -> None:
    """χ² with a false-alarm rate of 1e-6."""
    state = Stream(0, [0], "sampling").state[0]
    counts = np.bincount([next_below(state, 7) for _ in range(70_000)], minlength=7)
    assert counts.size == 7
    assert ((counts - 10_000) ** 2 / 10_000).sum() < chi2.isf(1e-6, 6)


def test_streams_of_members_and_purposes_are_uncorrelated() -> None:
    """All pairs of 6 members × 3 purposes: |r|·√n below the normal quantile at a false-alarm rate of 1e-6 in all."""
    rows = np.vstack([Stream(0, range(6), purpose).normal(20_000) for purpose in PURPOSES[:3]])
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() * np.sqrt(20_000) < 6.4
