"""Paired effects: estimates, BCa intervals, sign-flip tests, interquartile means and probabilities.

Cells of a study give their members the same random streams, so differences are taken seed by seed. Significance is
decided by the test of the difference, not by the overlap of two intervals.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from replaybench.experiments.statistics import Interval, Statistic, all_equal, bootstrap, drawn, weights
from replaybench.runtime.arrays import Floats

_MOST_ENUMERATED: Final = 13
_DRAWN: Final = 10_000


def flipped(differences: Floats) -> Floats:
    """Return the two-sided p value of the sign-flip test for differences `[..., n]`; 1 without seeds.

    With up to 13 seeds all sign patterns are counted, else the observed one and 10,000 random ones.
    """
    return _p(np.abs(differences.sum(axis=-1, keepdims=True)), np.abs(_all_flips(differences)))


def surpassed(differences: Floats, statistic: Statistic = "mean") -> Floats:
    """Return the one-sided p value of "the statistic is at most 0", for differences `[..., n]`; 1 without seeds.

    The test is exact for symmetric differences, else approximate; see benchmarks/evidence/interval_coverage.py.
    """
    if statistic == "mean":
        return _p(differences.sum(axis=-1, keepdims=True), _all_flips(differences))
    size = differences.shape[-1]
    observed, flips = (np.sort(each, axis=-1) for each in (differences, differences[..., None, :] * _signs(size)))
    weighing = weights(size, statistic)
    return _p((observed @ weighing)[..., None], flips @ weighing)


def _p(observed: Floats, flips: Floats) -> Floats:
    """Return the share of `flips` `[..., patterns]`, the observed one included, at least as large as `observed`."""
    as_large = (flips >= observed - 1e-12 * np.abs(observed)).sum(axis=-1)
    drawn = flips.shape[-1] == _DRAWN
    p_values: Floats = (1 + as_large) / (1 + _DRAWN) if drawn else as_large / flips.shape[-1]
    return p_values


def _all_flips(differences: Floats) -> Floats:
    return differences @ _signs(differences.shape[-1]).T


@lru_cache(maxsize=8)
def _signs(size: int) -> Floats:
    """Return patterns of `size` signs, ±1 `[patterns, size]`: all of them, or 10,000 random ones."""
    if size <= _MOST_ENUMERATED:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    drawn = np.random.Generator(np.random.PCG64(0)).integers(2, size=(_DRAWN, size))
    signs: Floats = np.where(drawn, 1.0, -1.0)
    return signs


def improvement(sample: Floats, other: Floats) -> Interval:
    """Return the probability that a run of one sample `[S]` is better than one of the other, ties counted half.

    All pairs of runs count (Mann and Whitney 1947). The 95 % interval consists of percentiles over resamples of the
    shared seeds. Seeds on which either run failed are left out.
    """
    both = np.isfinite(sample) & np.isfinite(other)
    if not both.any():
        return Interval(np.nan, np.nan, np.nan, True)
    better = (np.sign(sample[both][:, None] - other[both][None, :]) + 1) / 2
    chance = float(better.mean())
    if np.ptp(better) == 0 or len(better) < 2:
        return Interval(chance, chance, chance, True)
    low, high = np.quantile(improvements(better), [0.025, 0.975])
    return Interval(chance, float(low), float(high), False)


def improvements(better: Floats) -> Floats:
    """Return the mean of comparisons `[..., n, n]` (1, ½ or 0) in each resample, `[..., RESAMPLES]`."""
    counts = drawn(better.shape[-1])
    means: Floats = np.einsum("...bi,bi->...b", counts @ better, counts) / better.shape[-1] ** 2
    return means


def assured(sample: Floats, share: float = 0.9, confidence: float = 0.95) -> float:
    """Return the score that `share` of further runs reach with `confidence`: a lower tolerance bound (Wilks 1941).

    The bound is an order statistic, valid for every distribution; −∞ if the sample is too small.
    """
    from scipy.stats import binom

    finite = np.sort(sample[np.isfinite(sample)])
    # The r-th smallest (from 1) is such a bound if at least r of n are below the quantile with this confidence.
    rank = int(np.searchsorted(-binom.sf(np.arange(finite.size + 1) - 1, finite.size, 1 - share), -confidence, "right"))
    return float(finite[rank - 2]) if rank >= 2 else -np.inf


def assured_share(runs: int, confidence: float = 0.95) -> float:
    """Return the share of further runs that reach the worst of n runs with `confidence` (Wilks 1941)."""
    return float((1 - confidence) ** (1 / runs)) if runs else 0.0


def profile(sample: Floats, levels: Floats) -> Floats:
    """Return the performance profile: the share `[L]` of scores `[runs]` above each of `levels`; NaN is never above."""
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


SIGNIFICANT: Final = 0.05
"""Differences with a smaller p value are significant."""
FEWEST_SEEDS: Final = 6
"""With five seeds no sign-flip test can reach p < 0.05."""
_POWER: Final = 0.8
MOST_SEEDS: Final = 9999
_MANY: Final = 40
"""From this number of seeds on, the p values of a sign-flip test are practically continuous."""


@dataclass(frozen=True)
class Effect:
    """A statistic of paired differences `[seeds]`.

    With fewer than two seeds, or without spread, the interval is unbounded.

    Attributes:
        statistic: the mean, or the interquartile mean where the length of the runs decides a few large differences.
    """

    differences: Floats
    statistic: Statistic = "mean"

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.differences)

    @property
    def estimate(self) -> float:
        """The statistic of the differences."""
        return float(np.sort(self.differences) @ weights(self.n, self.statistic)) if self.n else np.nan

    @property
    def sd(self) -> float:
        """Standard deviation of the differences; for the interquartile mean, √n times its standard error."""
        if self.statistic == "mean" or not self._spread:
            return float(self.differences.std(ddof=1)) if self.n > 1 else np.nan
        return math.sqrt(self.n) * float(bootstrap(self.differences, self.statistic).resampled.std())

    @cached_property
    def _spread(self) -> bool:
        return self.n > 1 and not all_equal(self.differences)

    def interval(self, coverage: float = 0.95) -> tuple[float, float]:
        """Return the BCa interval of the estimate (Efron 1987)."""
        if not self._spread:
            return -np.inf, np.inf
        low, high = bootstrap(self.differences, self.statistic).interval(coverage)
        return float(low), float(high)

    def chance_below(self, value: float) -> float:
        """Return the one-sided p value of "the true statistic is at most `value`"; 1 without spread."""
        return float(surpassed(self.differences - value, self.statistic)) if self._spread else 1.0

    def chance_above(self, value: float) -> float:
        """Return the one-sided p value of "the true statistic is at least `value`"."""
        return replace(self, differences=-self.differences).chance_below(-value)


def p_text(p: float) -> str:
    """Return a p value as text."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def seeds_to_tell(sd: float, distance: float, tests: int = 1) -> int | None:
    """Return the number of seeds for which a test detects a difference of size `distance` with a power of 0.8.

    The power is that of Student's t test at a level that a sign-flip test of so few seeds can reach: with seven
    differences there is no p value between 1/128 and 2/128. Return None for more than 9,999 seeds, or an unknown
    standard deviation `sd`. With several `tests`, the level is the strictest of Holm's procedure (1979).
    """
    strictest = SIGNIFICANT / (2 * tests)
    errors = NormalDist().inv_cdf(1 - strictest) + NormalDist().inv_cdf(_POWER)
    if not (distance > 0 and math.isfinite(sd)) or errors * sd / distance > math.sqrt(MOST_SEEDS):
        return None
    seeds = max(math.ceil(-math.log2(strictest)), math.ceil((errors * sd / distance) ** 2))
    while sd > 0 and _power(seeds, distance / sd, strictest) < _POWER:
        seeds += 1
    return seeds


def _power(seeds: int, distance: float, level: float) -> float:
    from scipy.special import nctdtr, stdtrit

    if seeds < _MANY:
        level = math.floor(level * 2**seeds) / 2**seeds
    return 1.0 - float(nctdtr(seeds - 1, distance * math.sqrt(seeds), stdtrit(seeds - 1, 1.0 - level)))


def paired(
    plus: Sequence[Floats], minus: Sequence[Floats], level: float = 0.0, statistic: Statistic = "mean"
) -> Effect:
    """Return the effect Σ plus − Σ minus − level, seed by seed, over seeds `[S]` that are finite in all samples."""
    differences = np.sum(plus, axis=0) - (np.sum(minus, axis=0) if minus else 0.0) - level
    return Effect(differences[np.isfinite(differences)], statistic)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values to control the family-wise error rate (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
