"""Weights by the chances of draws (eq. 8) and by replay counts (section 7.2)."""

from typing import Any

import numpy as np
import pytest
from buffers import fill, make
from scipy.stats import binom

from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.weighting import binomial_tails

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


@pytest.mark.parametrize("n", [1, 2, 8, 100, 5000, 200_000])
@pytest.mark.parametrize("mean", [1e-6, 0.3, 8.0, 300.0])
def test_binomial_tails(n: int, mean: float) -> None:
    p = min(1.0, mean / n)
    most = min(60, 2 * n + 3)
    expected = binom(n, p).sf(np.arange(most + 1) - 1)
    np.testing.assert_allclose(binomial_tails(n, p, most), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("n", "p"), [(5000, 0.9), (3, 1.0), (3, 1.7), (10, 1 - 1e-12)])
def test_binomial_tails_of_the_nearly_certain(n: int, p: float) -> None:
    expected = binom(n, min(p, 1.0)).sf(np.arange(13) - 1)
    np.testing.assert_allclose(binomial_tails(n, p, 12), expected, rtol=1e-9, atol=1e-13)


def test_fewer_updates_than_a_lifetime_has() -> None:
    """400 offers to a buffer of 8 before the first update: n, at least 1, is not rounded to 0."""
    replay = make("FIFO[Uniform+FIS]", capacity=8, batch=4)
    fill(replay, 400)
    assert np.isfinite(replay.sample().weight).all()
