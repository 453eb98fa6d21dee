"""Weights by the chances of draws (eq. 8) and by replay counts (section 7.2)."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import fill, make
from scipy.stats import binom

from replaybench.replay.strategies.weighting import binomial_tails


@pytest.mark.parametrize("n", [1, 2, 8, 100, 5000, 200_000])
@pytest.mark.parametrize("mean", [1e-6, 0.3, 1 - 1e-12, 8.0, 300.0])
def test_binomial_tails(n: int, mean: float) -> None:
    p = mean / n
    most = min(60, 2 * n + 3)
    expected = binom(n, min(p, 1.0)).sf(np.arange(most + 1) - 1)
    np.testing.assert_allclose(binomial_tails(n, p, most), expected, rtol=1e-9, atol=1e-13)


def test_fewer_updates_than_a_lifetime_has() -> None:
    """400 offers to a buffer of 8 before the first update: n, at least 1, is not rounded to 0."""
    replay = make("FIFO[Uniform+FIS]", capacity=8, batch=4)
    fill(replay, 400)
    assert np.isfinite(replay.sample().weight).all()
