"""Sums of rank^−α against addition in extended precision, and segments against their definition."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import rank_segments

from replaybench.replay.orders.rank_law import first_sums, partial_sum, ranks_below, segment_edges

ALPHAS = [0.0, 1e-9, 0.3, 0.5, 0.7, 1.0 - 1e-10, 1.0, 1.0 + 1e-6, 1.2, 2.0, 3.3, 5.0]
MANY = 1_000_000


@functools.cache
def exact(alpha: float) -> np.ndarray:
    """Return Σ_{r ≤ k} r^−α for k = 0 … 10⁶ in extended precision."""
    ranks = np.arange(1, MANY + 1).astype(np.longdouble)
    return np.concatenate([np.zeros(1, np.longdouble), np.cumsum(ranks ** -np.longdouble(alpha))])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_partial_sums_are_exact_however_many_ranks(alpha: float) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    head = first_sums(alpha)
    counts = np.unique(np.r_[0, 1, 2, 1023:1028, MANY, np.exp(rng.uniform(0, np.log(MANY), 300)).astype(int)])
    sums = np.array([partial_sum(head, alpha, k) for k in counts])
    np.testing.assert_allclose(sums, exact(alpha)[counts].astype(float), rtol=2e-13)


@pytest.mark.parametrize("count", [2**21 + 1, 2**22, 10**9])
def test_partial_sums_of_more_ranks_than_cubes_fit_into_64_bits(count: int) -> None:
    """A sum grows by its last term, and between α = 0 and 1 its terms are integrals of r^−α to second order."""
    head = first_sums(0.5)
    growth = partial_sum(head, 0.5, count) - partial_sum(head, 0.5, count // 2)
    integral = 2 * (np.sqrt(count) - np.sqrt(count // 2)) + (count**-0.5 - (count // 2) ** -0.5) / 2
    assert growth == pytest.approx(integral, rel=1e-11)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("count", [1, 2, 1024, 1025, 40_000, MANY])
def test_ranks_below_a_mass_are_those_of_the_exact_sums(alpha: float, count: int) -> None:
    """The count of ranks is that of the exact sums, or the next one where the mass is within rounding of a sum."""
    rng = np.random.Generator(np.random.PCG64(1))
    head, sums = first_sums(alpha), exact(alpha)[1 : count + 1]
    masses = np.r_[0.0, rng.uniform(0, 1, 200) * float(sums[-1]), float(sums[-1]) * (1 - 1e-13), float(sums[-1]) * 2]
    for mass in masses:
        found = ranks_below(head, alpha, count, mass)
        low, high = np.searchsorted(sums, [mass * (1 - 4e-13), mass * (1 + 4e-13)], side="right")
        assert low <= found <= high


def segments_of(alpha: float, count: int, segments: int) -> list[int]:
    edges = np.full(segments + 1, -1, np.int64)
    segment_edges(first_sums(alpha), alpha, count, edges)
    return edges.tolist()


@given(st.floats(0, 5), st.integers(0, 300), st.integers(1, 32))
@settings(deadline=None)
def test_segments_cover_all_ranks_and_are_at_least_one_wide(alpha: float, more: int, segments: int) -> None:
    count = segments + more
    edges = segments_of(alpha, count, segments)
    assert edges[0] == 0
    assert edges[-1] == count
    assert (np.diff(edges) >= 1).all()
    assert edges == [0, *(ranks.stop for ranks in rank_segments(alpha, count, segments))]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_segments_of_a_million_ranks(alpha: float) -> None:
    segments, sums = 256, exact(alpha)[1:]
    edges = np.array(segments_of(alpha, MANY, segments))
    previous = 0
    for b in range(1, segments):
        mass = sums[-1] * np.longdouble(b) / segments
        low, high = np.searchsorted(sums, [mass * (1 - 4e-13), mass * (1 + 4e-13)], side="right")
        assert min(max(low, previous + 1), MANY - segments + b) <= edges[b]
        assert edges[b] <= min(max(high, previous + 1), MANY - segments + b)
        previous = edges[b]
