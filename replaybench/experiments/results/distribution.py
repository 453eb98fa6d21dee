"""Distribution of scores: probability of improvement, tolerance bounds, performance profiles.

Agarwal et al. (2021), Deep Reinforcement Learning at the Edge of the Statistical Precipice; Wilks (1941).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.results.bootstrap import drawn
from replaybench.experiments.results.statistics import Interval

Floats = NDArray[np.float64]


def improvement(sample: Floats, other: Floats) -> Interval:
    """Return the probability that a run of one sample `[S]` is better than one of the other, ties counted half.

    All pairs of runs count (Mann and Whitney 1947). The 95 % interval is of percentiles of resampled shared seeds;
    seeds on which either failed are left out.
    """
    both = np.isfinite(sample) & np.isfinite(other)
    mine, theirs = sample[both], other[both]
    if not mine.size:
        return Interval(np.nan, np.nan, np.nan, True)
    better = (np.sign(mine[:, None] - theirs[None, :]) + 1) / 2
    chance = float(better.mean())
    if np.ptp(better) == 0 or mine.size < 2:
        return Interval(chance, chance, chance, True)
    low, high = np.quantile(improvements(better), [0.025, 0.975])
    return Interval(chance, float(low), float(high), False)


def improvements(better: Floats) -> Floats:
    """Return the probabilities in resamples `[..., RESAMPLES]` of comparisons `[..., n, n]` (1, ½ or 0)."""
    counts = drawn(better.shape[-1])
    found: Floats = np.einsum("...bi,bi->...b", counts @ better, counts) / better.shape[-1] ** 2
    return found


def assured(sample: Floats, share: float = 0.9, confidence: float = 0.95) -> float:
    """Return the score that `share` of further runs reach with `confidence`: a lower tolerance bound (Wilks 1941).

    It is an order statistic, valid for every distribution; −∞ if the sample is too small.
    """
    from scipy.stats import binom

    finite = np.sort(sample[np.isfinite(sample)])
    # The r-th smallest (from 1) is such a bound if at least r of n are below the quantile with this confidence.
    rank = int(np.searchsorted(-binom.sf(np.arange(finite.size + 1) - 1, finite.size, 1 - share), -confidence, "right"))
    return float(finite[rank - 2]) if rank >= 2 else -np.inf


def assured_share(runs: int, confidence: float = 0.95) -> float:
    """Return the share of further runs that reach the worst of so many with `confidence` (Wilks 1941)."""
    return float((1 - confidence) ** (1 / runs)) if runs else 0.0


def profile(sample: Floats, levels: Floats) -> Floats:
    """Return the performance profile: the share `[L]` of scores `[runs]` above each of `levels`; NaN is below all."""
    above: Floats = (sample[:, None] > levels).mean(axis=0)
    return above


def profile_band(sample: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Return the pointwise 95 % bounds `[L]` of a performance profile (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    runs = len(sample)
    above = np.rint(profile(sample, levels) * runs)
    low = np.where(above > 0, beta.ppf(0.025, np.maximum(above, 1), runs - above + 1), 0.0)
    high = np.where(above < runs, beta.ppf(0.975, above + 1, np.maximum(runs - above, 1)), 1.0)
    return low, high
