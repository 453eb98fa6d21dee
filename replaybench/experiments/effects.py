"""Statistics of paired differences: estimates, BCa intervals, sign-flip tests and tolerance bounds.

All strategies of a study run with the same seeds and random streams, so differences are taken seed by seed. The
test of a difference decides whether the difference is significant. The overlap of two confidence intervals does not.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from replaybench.experiments.statistics import Interval, Statistic, all_equal, bootstrap, drawn, weights
from replaybench.runtime.arrays import Floats, Integers

_MOST_ENUMERATED: Final = 13
_DRAWN: Final = 10_000
_RARE: Final = 10
_GRID: Final = 1000
"""Steps of the grid of sums in one standard deviation of a sum with random signs."""


_CERTAIN: Final = np.ones(1)
"""The chances of an empty sum, which is 0."""


def flipped(differences: Floats) -> Floats:
    """Compute two-sided p values `[...]` of the paired sign-flip (permutation) test of the mean.

    With up to 13 seeds, all sign patterns are counted. With more seeds, the observed pattern and 10,000 random
    patterns are counted. Without seeds, p values are 1.

    Args:
        differences: Paired differences of n seeds; float64, shape `[..., n]`.
    """
    return _p(np.abs(differences.sum(axis=-1, keepdims=True)), np.abs(_all_flips(differences)))


def surpassed(differences: Floats, statistic: Statistic = "mean") -> Floats:
    """Compute one-sided p values `[...]` of the hypothesis that a statistic of paired differences is at most 0.

    The sign-flip test is exact for symmetric differences, and approximate for other differences (see
    `benchmarks/evidence/interval_coverage.py`). Without seeds, p values are 1.

    Args:
        differences: Paired differences of n seeds; float64, shape `[..., n]`.
        statistic: The mean, or the interquartile mean.
    """
    if statistic == "mean":
        return _p(differences.sum(axis=-1, keepdims=True), _all_flips(differences))
    size = differences.shape[-1]
    observed, flips = (np.sort(each, axis=-1) for each in (differences, differences[..., None, :] * _signs(size)))
    weighing = weights(size, statistic)
    return _p((observed @ weighing)[..., None], flips @ weighing)


def finely_surpassed(differences: Floats, statistic: Statistic = "mean") -> float:
    """Compute the p value of `surpassed` for one sample, also if it is far below 1e-4.

    Such p values decide if many claims share a correction. For means of more than 13 seeds, the chances of all sums are
    computed on a grid of 1/1000 of their standard deviation. For interquartile means, 100,000 random patterns are
    counted if fewer than ten of the first 10,000 have a statistic as large.

    Args:
        differences: Paired differences of n seeds; float64, shape `[n]`.
        statistic: The mean, or the interquartile mean.
    """
    size = len(differences)
    if size <= _MOST_ENUMERATED:
        return float(surpassed(differences, statistic))
    if statistic == "mean":
        steps = _on_grid(differences)
        return _at_least(steps.sum(), _chances_of_sums(steps))
    weighing, as_large, drawn = weights(size, statistic), 0, 0
    observed = np.sort(differences) @ weighing
    for signs in (_signs(size, batch) for batch in range(_RARE)):
        flips = np.sort(differences * signs, axis=-1) @ weighing
        as_large += int((flips >= observed - 1e-12 * abs(observed)).sum())
        drawn += _DRAWN
        if as_large >= _RARE:
            break
    return (1 + as_large) / (1 + drawn)


def surpassed_without_each(differences: Floats) -> Floats:
    """Compute the p values `[n]` of `finely_surpassed` for the mean, each without one of the n differences."""
    if len(differences) <= _MOST_ENUMERATED + 1:
        return np.array([finely_surpassed(np.delete(differences, at)) for at in range(len(differences))])
    steps = _on_grid(differences)
    totals = steps.sum() - steps
    return np.array([_at_least(*each) for each in zip(totals, _without_each(steps), strict=True)])


def _on_grid(differences: Floats) -> Integers:
    steps: Integers = np.rint(differences * (_GRID / np.linalg.norm(differences))).astype(np.int64)
    return steps


def _at_least(total: int, chances: Floats) -> float:
    """Return the chance of a sum that is at least `total`; the middle of `chances` belongs to a sum of 0."""
    return min(1.0, float(chances[len(chances) // 2 + total :].sum()))


def least_p(size: int, statistic: Statistic) -> float:
    """Return the smallest p value that `finely_surpassed` can have for a number of seeds."""
    trimmed = 0 if statistic == "mean" else size // 4
    drawn = statistic != "mean" and size > _MOST_ENUMERATED
    return max(2.0 ** (trimmed - size), 1 / (1 + _RARE * _DRAWN) if drawn else 0.0)


def exactly_flipped(differences: Floats) -> float:
    """Compute the exact two-sided p value of the paired sign-flip test of whole numbers.

    For differences of −1, 0 and 1, this is McNemar's exact test. Without differences, the p value is 1.

    Args:
        differences: Paired differences of n seeds, which are whole numbers; float64, shape `[n]`.
    """
    steps = np.rint(differences).astype(int)
    chances = _chances_of_sums(steps)
    sums = np.abs(np.arange(len(chances)) - len(chances) // 2)
    return min(1.0, float(chances[sums >= abs(steps.sum())].sum()))


def _chances_of_sums(steps: Integers, chances: Floats = _CERTAIN) -> Floats:
    """Return the chance of each sum of whole numbers with random signs, from the smallest possible sum upwards.

    The numbers are added to a sum whose chances are given.
    """
    for step in np.sort(np.abs(steps)):
        ends = np.zeros(len(chances) + 2 * step)
        ends[: len(chances)] = chances
        ends[2 * step :] += chances
        chances = 0.5 * ends
    return chances


def _without_each(steps: Integers, chances: Floats = _CERTAIN) -> Iterator[Floats]:
    """Yield the chances of the sums of all but one of the steps. Halves share the sums of the other half."""
    if len(steps) == 1:
        yield chances
        return
    middle = len(steps) // 2
    yield from _without_each(steps[:middle], _chances_of_sums(steps[middle:], chances))
    yield from _without_each(steps[middle:], _chances_of_sums(steps[:middle], chances))


def _p(observed: Floats, flips: Floats) -> Floats:
    """Return the share of sign patterns, along the last axis of `flips`, whose statistic is at least `observed`."""
    as_large = (flips >= observed - 1e-12 * np.abs(observed)).sum(axis=-1)
    drawn = flips.shape[-1] == _DRAWN
    p_values: Floats = (1 + as_large) / (1 + _DRAWN) if drawn else as_large / flips.shape[-1]
    return p_values


def _all_flips(differences: Floats) -> Floats:
    return differences @ _signs(differences.shape[-1]).T


@lru_cache(maxsize=8)
def _signs(size: int, batch: int = 0) -> Floats:
    """Return all patterns of `size` signs ±1, or a batch of 10,000 random patterns, as an array `[patterns, size]`."""
    if size <= _MOST_ENUMERATED:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    drawn = np.random.Generator(np.random.PCG64(batch)).integers(2, size=(_DRAWN, size))
    signs: Floats = np.where(drawn, 1.0, -1.0)
    return signs


def improvement(sample: Floats, other: Floats) -> Interval:
    """Estimate the probability that a run of one sample is better than a run of another sample, with its 95 % interval.

    All pairs of runs are compared (Mann and Whitney, 1947), and ties count half. The interval is a percentile bootstrap
    interval over the seeds, which are the same in both samples. Seeds with a failed run are left out.
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
    """Compute the share of pairs (i, j) in which run i is better, for each bootstrap resample of n seeds.

    The result has shape `[..., RESAMPLES]`.

    Args:
        better: Comparisons of run i of one sample with run j of another, `[..., i, j]`, as 1 (run i is better), ½
            (equal) or 0 (worse); float64, shape `[..., n, n]`.
    """
    counts = drawn(better.shape[-1])
    means: Floats = np.einsum("...bi,bi->...b", counts @ better, counts) / better.shape[-1] ** 2
    return means


ASSURED: Final = 0.9
"""Share of further runs that reach the tolerance bound."""
_CONFIDENCE: Final = 0.95


def assured(sample: Floats) -> float:
    """Compute the lower tolerance bound of a sample of scores (Wilks, 1941), or −∞ if the sample is too small.

    With a probability of 95 %, at least the fraction `ASSURED` of further runs reach this bound. The bound is one of
    the scores. The bound is valid for every distribution.
    """
    from scipy.stats import binom

    finite = np.sort(sample[np.isfinite(sample)])
    # The r-th smallest (from 1) is such a bound if at least r of n are below the quantile with this confidence.
    confidence = binom.sf(np.arange(finite.size + 1) - 1, finite.size, 1 - ASSURED)
    rank = int(np.searchsorted(-confidence, -_CONFIDENCE, "right"))
    return float(finite[rank - 2]) if rank >= 2 else -np.inf


def assured_share(runs: int) -> float:
    """Return the fraction of further runs that, with 95 % probability, reach the worst of `runs` runs (Wilks, 1941)."""
    return float((1 - _CONFIDENCE) ** (1 / runs)) if runs else 0.0


def profile(sample: Floats, levels: Floats) -> Floats:
    """Compute the performance profile `[L]` of a sample: the fraction of runs with a score above each of L levels.

    Failed runs (NaN) are above no level.
    """
    above: Floats = (sample[:, None] > levels).mean(axis=0)
    return above


def profile_band(sample: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Compute lower and upper pointwise 95 % bounds `[L]` of a performance profile (Clopper and Pearson, 1934)."""
    from scipy.stats import beta

    runs = len(sample)
    above = np.rint(profile(sample, levels) * runs)
    low = np.where(above > 0, beta.ppf(0.025, np.maximum(above, 1), runs - above + 1), 0.0)
    high = np.where(above < runs, beta.ppf(0.975, above + 1, np.maximum(runs - above, 1)), 1.0)
    return low, high


SIGNIFICANT: Final = 0.05
"""Level of significance. Differences with a smaller p value are significant."""
_POWER: Final = 0.8
MOST_SEEDS: Final = 9999
_MANY: Final = 40
"""From this number of seeds on, the p values of a sign-flip test are practically continuous."""
_IMAGINED: Final = 100
"""Number of imagined studies from which the power of a test with few seeds is estimated."""


def fewest_seeds(tests: int = 1) -> int:
    """Return the smallest number of seeds with which each of `tests` tests of a family can reach p < 0.05.

    The smallest p value of a two-sided sign-flip test of n differences is 2 / 2ⁿ, and Holm's correction multiplies it
    by the number of tests.
    """
    return math.floor(1 + math.log2(tests / SIGNIFICANT)) + 1


@dataclass(frozen=True)
class Effect:
    """A statistic of paired differences between two samples of runs, with its confidence interval and tests.

    With fewer than two seeds, or if all differences are equal, the confidence interval is unbounded.

    Attributes:
        differences: One difference for each seed.
        statistic: The mean, or the interquartile mean, on which a few large differences have little influence.
    """

    differences: Floats
    statistic: Statistic = "mean"

    @property
    def n(self) -> int:
        """The number of seeds."""
        return len(self.differences)

    @property
    def estimate(self) -> float:
        """The statistic of the differences."""
        return float(np.sort(self.differences) @ weights(self.n, self.statistic)) if self.n else np.nan

    @property
    def sd(self) -> float:
        """The standard deviation of the differences, or √n times the standard error of an interquartile mean."""
        if self.statistic == "mean" or not self._spread:
            return float(self.differences.std(ddof=1)) if self.n > 1 else np.nan
        return math.sqrt(self.n) * float(bootstrap(self.differences, self.statistic).resampled.std())

    @cached_property
    def _spread(self) -> bool:
        return self.n > 1 and not all_equal(self.differences)

    def interval(self, coverage: float = 0.95) -> tuple[float, float]:
        """Return the lower and upper bound of the BCa bootstrap interval of the estimate (Efron, 1987)."""
        if not self._spread:
            return -np.inf, np.inf
        low, high = bootstrap(self.differences, self.statistic).interval(coverage)
        return float(low), float(high)

    def chance_below(self, value: float) -> float:
        """Return the one-sided p value of the hypothesis that the true statistic is at most `value`.

        The p value is 1 with fewer than two seeds, or if all differences are equal.
        """
        return finely_surpassed(self.differences - value, self.statistic) if self._spread else 1.0

    def chance_above(self, value: float) -> float:
        """Return the one-sided p value of the hypothesis that the true statistic is at least `value`."""
        return replace(self, differences=-self.differences).chance_below(-value)


def p_text(p: float) -> str:
    """Return a p value as text with three decimals, or as "< 0.001"."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def seeds_to_tell(sd: float, distance: float, tests: int = 1) -> int | None:
    """Compute the number of seeds with which a paired test detects a difference with a power of 0.8.

    The power is that of Student's t test, at a level that a sign-flip test of these seeds can reach. For example, a
    sign-flip test of seven differences has no p value between 1/128 and 2/128. The result is None above 9,999 seeds, or
    if `sd` is NaN or `distance` is 0.

    Args:
        sd: Standard deviation of the paired differences.
        distance: Size of the difference.
        tests: Number of tests. The level is the strictest level of Holm's procedure (Holm, 1979).
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


def seeds_needed(effect: Effect, tests: int = 1) -> int | None:
    """Return the number of seeds with which a difference like this one is significant with a power of 0.8.

    Few seeds are imagined: they are drawn from the observed differences, and tested as those are. The power of more
    than 40 seeds is that of `seeds_to_tell`. The result is None above 9,999 seeds, or with fewer than two seeds.

    Args:
        tests: Number of tests that share Holm's correction.
    """
    most = seeds_to_tell(effect.sd, abs(effect.estimate), tests)
    if most is None or most > _MANY:
        return most
    rng = np.random.Generator(np.random.PCG64(0))
    for seeds in range(max(effect.n + 1, fewest_seeds(tests)), most):
        chances = flipped(rng.choice(effect.differences, (_IMAGINED, seeds)))
        if (tests * chances < SIGNIFICANT).mean() >= _POWER:
            return seeds
    return max(most, effect.n + 1)


def paired(
    plus: Sequence[Floats], minus: Sequence[Floats], level: float = 0.0, statistic: Statistic = "mean"
) -> Effect:
    """Compute the paired effect Σ plus − Σ minus − level from samples of scores, seed by seed.

    Seeds with a failed run (NaN) in any sample are left out.
    """
    differences = np.sum(plus, axis=0) - (np.sum(minus, axis=0) if minus else 0.0) - level
    return Effect(differences[np.isfinite(differences)], statistic)


def family_p(family: Sequence[Effect]) -> list[float]:
    """Return the p value of each comparison of a family: of paired sign-flip tests, corrected by Holm (1979).

    Tables, figures, reports, advice and verdicts take the p values of differences from here.
    """
    return holm([float(flipped(effect.differences)) for effect in family])


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values to control the family-wise error rate (Holm, 1979)."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
