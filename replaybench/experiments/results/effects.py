"""Effects between learners that share their seeds: estimates, BCa intervals, and tests that agree with them.

The seed is the unit of resampling. Cells of a study give their members the same random streams, so differences are
taken seed by seed first. That two intervals overlap or not is no test: the interval of the difference is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES: Final = 10_000
_SMALLEST: Final = 1 / (RESAMPLES + 1)


@dataclass(frozen=True)
class Effect:
    """The mean of paired differences `[seeds]` and how sure it is (Efron 1987, BCa).

    With fewer than two seeds, or without spread, nothing can be said of uncertainty: the interval is unbounded.
    """

    differences: Floats

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.differences)

    @property
    def mean(self) -> float:
        """Mean difference."""
        return float(self.differences.mean()) if self.n else np.nan

    @property
    def sd(self) -> float:
        """Standard deviation of the differences."""
        return float(self.differences.std(ddof=1)) if self.n > 1 else np.nan

    @cached_property
    def _sure(self) -> bool:
        return self.n > 1 and float(np.ptp(self.differences)) > 1e-12 * max(1.0, abs(self.mean))

    @cached_property
    def _resampled(self) -> Floats:
        """Sorted means of resamples; the same draws for the same number of seeds."""
        draws = np.random.Generator(np.random.PCG64(0)).integers(self.n, size=(RESAMPLES, self.n))
        return np.sort(self.differences[draws].mean(axis=1))

    @cached_property
    def _correction(self) -> tuple[float, float]:
        """Bias and acceleration, the latter by the jackknife (a mean's is its skewness / 6 √n)."""
        from scipy.special import ndtri

        deviations = self.differences - self.mean
        acceleration = (deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5)
        return float(ndtri(self._share(self.mean))), float(acceleration)

    def _share(self, value: float) -> float:
        """Return the share of resamples below a value, ties counted half, kept off 0 and 1."""
        below, upto = (np.searchsorted(self._resampled, value, side=side) for side in ("left", "right"))
        return float(np.clip((below + upto) / 2 / RESAMPLES, _SMALLEST, 1 - _SMALLEST))

    def interval(self, coverage: float = 0.95) -> tuple[float, float]:
        """Return the BCa interval of the mean difference."""
        from scipy.special import ndtr, ndtri

        if not self._sure:
            return -np.inf, np.inf
        bias, acceleration = self._correction
        quantiles = bias + ndtri(np.array([(1 - coverage) / 2, (1 + coverage) / 2]))
        levels = ndtr(bias + quantiles / (1 - acceleration * quantiles))
        low, high = np.quantile(self._resampled, levels)
        return float(low), float(high)

    def chance_below(self, value: float) -> float:
        """Return the one-sided p value of "the true mean is at most `value`".

        It is the level at which the interval ends there, never below 1 / (resamples + 1); 1 where nothing can be said.
        """
        from scipy.special import ndtr, ndtri

        if not self._sure:
            return 1.0
        bias, acceleration = self._correction
        shifted = float(ndtri(self._share(value))) - bias
        inverted = shifted / (1 + acceleration * shifted) - bias
        return float(np.clip(ndtr(inverted), _SMALLEST, 1.0))

    def chance_above(self, value: float) -> float:
        """Return the one-sided p value of "the true mean is at least `value`"."""
        return Effect(-self.differences).chance_below(-value)


def paired(plus: Sequence[Floats], minus: Sequence[Floats], level: float = 0.0) -> Effect:
    """Return the effect Σ plus − Σ minus − level, seed by seed, over seeds `[S]` that all samples have (not NaN)."""
    differences = np.sum(plus, axis=0) - (np.sum(minus, axis=0) if minus else 0.0) - level
    return Effect(differences[np.isfinite(differences)])


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number (Holm 1979): rejecting below α errs once in a family with chance α."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]


def interquartile_mean(sample: Floats) -> float:
    """Return the mean of the middle half of a sample, fractions of runs counted (Agarwal et al. 2021)."""
    finite = np.sort(sample[np.isfinite(sample)])
    if not finite.size:
        return np.nan
    cut = finite.size / 4
    places = np.arange(finite.size)
    weights = np.clip(np.minimum(places + 1 - cut, finite.size - cut - places), 0.0, 1.0)
    return float(weights @ finite / weights.sum())


def improvement(sample: Floats, other: Floats) -> float:
    """Return the chance that a run of one sample is better than a run of the other, ties counted half."""
    mine, theirs = sample[np.isfinite(sample)], other[np.isfinite(other)]
    if not mine.size or not theirs.size:
        return np.nan
    return float((np.sign(mine[:, None] - theirs[None, :]).mean() + 1) / 2)


def assured(sample: Floats, share: float = 0.9, confidence: float = 0.95) -> float:
    """Return what `share` of further runs will reach with `confidence`: a lower tolerance bound (Wilks 1941).

    It is an order statistic, so nothing is assumed of the distribution; −∞ where the sample is too small for one.
    """
    from scipy.stats import binom

    finite = np.sort(sample[np.isfinite(sample)])
    # The r-th smallest (from 1) is such a bound if at least r of n fall below the quantile with this confidence.
    rank = int(np.searchsorted(-binom.sf(np.arange(finite.size + 1) - 1, finite.size, 1 - share), -confidence, "right"))
    return float(finite[rank - 2]) if rank >= 2 else -np.inf
