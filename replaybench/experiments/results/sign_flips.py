"""Paired sign-flip (permutation) test, exact for few seeds (Fisher 1935).

If two strategies are equal, the difference of a seed has either sign with the same probability. Bootstrap intervals of
few runs cover less than their level (benchmarks/evidence/interval_coverage.py); this test keeps its level.
`scipy.stats.permutation_test` gives the same exact p values, but other ones where signs are drawn, and is fifty times
slower.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.results.bootstrap import Statistic, weights

Floats = NDArray[np.float64]

_MOST_ENUMERATED: Final = 13
_DRAWN: Final = 10_000


def flipped(differences: Floats) -> Floats:
    """Return the two-sided p value of no difference, for differences `[..., n]`; 1 without seeds.

    Up to 13 seeds all sign patterns are counted, else the observed one and ten thousand random ones. With five seeds p
    is at least 1/16.
    """
    return _p(np.abs(differences.sum(axis=-1, keepdims=True)), np.abs(_all_flips(differences)))


def surpassed(differences: Floats, statistic: Statistic = "mean") -> Floats:
    """Return the one-sided p value of "the statistic is at most 0", for differences `[..., n]`; 1 without seeds.

    It is exact for symmetric differences, else approximate; see benchmarks/evidence/interval_coverage.py.
    """
    if statistic == "mean":
        return _p(differences.sum(axis=-1, keepdims=True), _all_flips(differences))
    size = differences.shape[-1]
    found, others = (np.sort(way, axis=-1) for way in (differences, differences[..., None, :] * _signs(size)))
    weighing = weights(size, statistic)
    return _p((found @ weighing)[..., None], others @ weighing)


def _p(found: Floats, others: Floats) -> Floats:
    """Return the share of flips `[..., ways]` at least as large as the observed `[..., 1]`, which is counted."""
    as_far = (others >= found - 1e-12 * np.abs(found)).sum(axis=-1)
    drawn = others.shape[-1] == _DRAWN
    chances: Floats = (1 + as_far) / (1 + _DRAWN) if drawn else as_far / others.shape[-1]
    return chances


def _all_flips(differences: Floats) -> Floats:
    return differences @ _signs(differences.shape[-1]).T


@lru_cache(maxsize=8)
def _signs(size: int) -> Floats:
    """Return all or 10,000 random patterns of `size` signs, ±1 `[ways, size]`."""
    if size <= _MOST_ENUMERATED:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    drawn = np.random.Generator(np.random.PCG64(0)).integers(2, size=(_DRAWN, size))
    signs: Floats = np.where(drawn, 1.0, -1.0)
    return signs
