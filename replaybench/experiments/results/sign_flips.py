"""The test of paired differences that is exact for few of them: which learner had which score is a matter of a coin.

If two strategies are alike, a seed's difference might as well have the other sign (Fisher 1935). Unlike intervals by
the bootstrap, which hold less than they say of few runs (benchmarks/coverage.py), this test errs as often as it says.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_ENUMERATED: Final = 13
_DRAWN: Final = 10_000


def flipped(differences: Floats) -> Floats:
    """Return the two-sided p value of "both are alike" for differences `[..., n]`; 1 where there is no seed.

    All ways to set the signs are counted for up to 13 seeds, else ten thousand that are drawn, beside the one that was
    found. With five seeds it cannot be below 1/16.
    """
    size = differences.shape[-1]
    if not size:
        return np.ones(differences.shape[:-1])
    found = np.abs(differences.sum(axis=-1, keepdims=True))
    others = np.abs(differences @ _signs(size).T)
    as_far = (others >= found * (1 - 1e-12)).sum(axis=-1)
    every = size <= _MOST_ENUMERATED
    chances: Floats = as_far / 2**size if every else (1 + as_far) / (1 + _DRAWN)
    return chances


@lru_cache(maxsize=8)
def _signs(size: int) -> Floats:
    """Return ways to set `size` signs, ±1 `[ways, size]`."""
    if size <= _MOST_ENUMERATED:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    drawn = np.random.Generator(np.random.PCG64(0)).integers(2, size=(_DRAWN, size))
    signs: Floats = np.where(drawn, 1.0, -1.0)
    return signs
