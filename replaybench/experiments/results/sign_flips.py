"""The test of paired differences that is exact for few of them: which learner had which score is a matter of a coin.

If two strategies are alike, a seed's difference might as well have the other sign (Fisher 1935). Unlike intervals by
the bootstrap, which hold less than they say of few runs (benchmarks/evidence/interval_coverage.py), this test errs as
often as it says.
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
    """Return the two-sided p value of "both are alike" for differences `[..., n]`; 1 where there is no seed.

    All ways to set the signs are counted for up to 13 seeds, else ten thousand that are drawn, beside the one that was
    found. With five seeds it cannot be below 1/16.
    """
    return _chance(np.abs(differences.sum(axis=-1, keepdims=True)), np.abs(_all_flips(differences)))


def surpassed(differences: Floats, statistic: Statistic = "mean") -> Floats:
    """Return the one-sided p value of "it is 0 or less" for differences `[..., n]`; 1 where there is no seed.

    Differences from a bound are symmetric around it if they are of learners that are alike but for a shift. Of others
    the test is approximate; see benchmarks/evidence/interval_coverage.py.
    """
    if statistic == "mean":
        return _chance(differences.sum(axis=-1, keepdims=True), _all_flips(differences))
    size = differences.shape[-1]
    found, others = (np.sort(way, axis=-1) for way in (differences, differences[..., None, :] * _signs(size)))
    weighing = weights(size, statistic)
    return _chance((found @ weighing)[..., None], others @ weighing)


def _chance(found: Floats, others: Floats) -> Floats:
    """Return the share of flips `[..., ways]` that lead as far as what was found `[..., 1]`, itself counted."""
    as_far = (others >= found - 1e-12 * np.abs(found)).sum(axis=-1)
    drawn = others.shape[-1] == _DRAWN
    chances: Floats = (1 + as_far) / (1 + _DRAWN) if drawn else as_far / others.shape[-1]
    return chances


def _all_flips(differences: Floats) -> Floats:
    return differences @ _signs(differences.shape[-1]).T


@lru_cache(maxsize=8)
def _signs(size: int) -> Floats:
    """Return ways to set `size` signs, ±1 `[ways, size]`."""
    if size <= _MOST_ENUMERATED:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    drawn = np.random.Generator(np.random.PCG64(0)).integers(2, size=(_DRAWN, size))
    signs: Floats = np.where(drawn, 1.0, -1.0)
    return signs
