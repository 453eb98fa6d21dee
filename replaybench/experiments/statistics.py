"""Scores of runs (de Bruin et al., 2018, section 5.1) with BCa bootstrap intervals (Efron, 1987).

Runs are resampled, never episodes. Failed runs (a reward is not finite) are counted and have no score. Collapsed runs
(`dead`, with a final score below μ_r = 0.2) are counted, too, and have scores. Intervals equal those of
`scipy.stats.bootstrap` to 6e-15, in a fifth of the time.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from replaybench.runtime.arrays import Bools, Floats

Statistic = Literal["mean", "interquartile mean"]

RESAMPLES: Final = 10_000
_SMALLEST: Final = 1 / (RESAMPLES + 1)
_ROUNDING: Final = 1e-11  # relative


def all_equal(values: Floats) -> bool:
    """Return whether all values of a sample are equal, except for rounding errors."""
    return float(np.ptp(values)) <= 1e-12 * max(1.0, float(np.abs(values).max()))


@dataclass(frozen=True)
class Bootstrap:
    """The bootstrap distribution of a statistic, for one or several samples.

    Attributes:
        estimate: The statistic of each sample; float64, shape `[...]`.
        resampled: The statistic of each resample in ascending order; float64, shape `[..., RESAMPLES]`.
        acceleration: Acceleration of the BCa interval (Efron, 1987); float64, shape `[...]`.
    """

    estimate: Floats
    resampled: Floats
    acceleration: Floats

    def interval(self, coverage: float = 0.95) -> tuple[Floats, Floats]:
        """Return the lower and the upper bound of each sample's BCa interval (Efron, 1987)."""
        from scipy.special import ndtr, ndtri

        bias = ndtri(self._share(self.estimate))
        quantiles = bias + ndtri(np.array([(1 - coverage) / 2, (1 + coverage) / 2])).reshape(2, *[1] * bias.ndim)
        levels = ndtr(bias + quantiles / (1 - self.acceleration * quantiles))
        low, high = (self._quantile(level) for level in levels)
        return low, high

    def _share(self, value: Floats) -> Floats:
        """Return the share of resamples below a value, with ties counted half, limited to the open interval (0, 1)."""
        rounding = _ROUNDING * np.maximum(np.abs(self.resampled[..., 0]), np.abs(self.resampled[..., -1]))
        below = (self.resampled < (value - rounding)[..., None]).mean(axis=-1)
        upto = (self.resampled <= (value + rounding)[..., None]).mean(axis=-1)
        shares: Floats = np.clip((below + upto) / 2, _SMALLEST, 1 - _SMALLEST)
        return shares

    def _quantile(self, level: Floats) -> Floats:
        place = level * (RESAMPLES - 1)
        lower = np.minimum(place.astype(np.int64), RESAMPLES - 2)
        ends = np.take_along_axis(self.resampled, np.stack([lower, lower + 1], axis=-1), axis=-1)
        quantile: Floats = ends[..., 0] + (place - lower) * (ends[..., 1] - ends[..., 0])
        return quantile


def bootstrap(samples: Floats, statistic: Statistic = "mean") -> Bootstrap:
    """Compute the bootstrap distribution of a statistic of each sample.

    Samples have shape `[..., n]`. The n values of a sample must not all be equal.
    """
    size = samples.shape[-1]
    if statistic == "interquartile mean":
        samples = np.sort(samples, axis=-1)
    estimate = samples @ weights(size, statistic)
    without = samples @ _weights(1.0 - np.eye(size), statistic).T
    deviations = without.mean(axis=-1, keepdims=True) - without
    # If no single value changes the statistic, only rounding is left.
    deviations[np.abs(deviations) <= _ROUNDING * np.abs(samples).max(axis=-1, keepdims=True)] = 0.0
    spread = (deviations**2).sum(axis=-1)
    acceleration = (deviations**3).sum(axis=-1) / (6 * np.where(spread, spread, 1.0) ** 1.5)
    return Bootstrap(estimate, np.sort(samples @ _resample_weights(size, statistic).T, axis=-1), acceleration)


def interquartile_mean(sample: Floats) -> float:
    """Compute the interquartile mean of the finite scores of a sample of runs (Agarwal et al., 2021).

    This is the mean of the middle half of the sorted scores. Scores at the ends of this half count by fractions.
    """
    finite = np.sort(sample[np.isfinite(sample)])
    return float(finite @ weights(finite.size, "interquartile mean")) if finite.size else np.nan


def weights(size: int, statistic: Statistic) -> Floats:
    """Return the weights with which a statistic averages `size` values in ascending order."""
    each: Floats = _weights(np.ones((1, size)), statistic)[0]
    return each


@lru_cache(maxsize=8)
def drawn(size: int) -> Floats:
    """Return how often each of `size` values is drawn in each bootstrap resample, as an array `[RESAMPLES, size]`."""
    draws = np.random.Generator(np.random.PCG64(0)).integers(size, size=(RESAMPLES, size))
    places = draws + size * np.arange(RESAMPLES)[:, None]
    counts: Floats = np.bincount(places.ravel(), minlength=RESAMPLES * size).reshape(RESAMPLES, size).astype(np.float64)
    return counts


@lru_cache(maxsize=8)
def _resample_weights(size: int, statistic: Statistic) -> Floats:
    return _weights(drawn(size), statistic)


def _weights(counts: Floats, statistic: Statistic) -> Floats:
    """Return the weights of ascending values in a statistic, where `counts` holds how often each value occurs."""
    ends = counts.cumsum(axis=-1)
    total = ends[:, -1:]
    if statistic == "mean":
        even: Floats = counts / total
        return even
    middle = np.minimum(ends, 0.75 * total) - np.maximum(ends - counts, 0.25 * total)
    halved: Floats = np.maximum(middle, 0.0) / (0.5 * total)
    return halved


RISE_LEVEL = 0.8
DEAD_LEVEL = 0.2


@dataclass(frozen=True)
class Interval:
    """A mean or interquartile mean of runs with its 95 % bootstrap interval.

    Attributes:
        degenerate: Whether the interval has no width, because all runs are equal or there is only one run.
    """

    mean: float
    low: float
    high: float
    degenerate: bool

    def __str__(self) -> str:
        return self.text(2)

    def text(self, digits: int) -> str:
        """Return the mean and the interval as text with a number of decimals."""
        if not np.isfinite(self.mean):
            return "–"
        bounds = " (no spread)" if self.degenerate else f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.mean:.{digits}f}{bounds}"


def interval(sample: Floats, statistic: Statistic = "mean") -> Interval:
    """Compute a statistic of the finite values of a sample of runs, with its 95 % BCa interval (Efron, 1987)."""
    finite = sample[np.isfinite(sample)]
    center = float(finite.mean()) if statistic == "mean" and finite.size else interquartile_mean(finite)
    if not finite.size or all_equal(finite):
        return Interval(center, center, center, True)
    low, high = map(float, bootstrap(finite, statistic).interval())
    return Interval(center, low, high, all_equal(np.array([low, high])))


@dataclass(frozen=True)
class Scores:
    """The scores of n runs, as arrays of shape `[n]`, with NaN for failed runs.

    The normalised score μ_r of an episode is 0 for random control and 1 for dynamic programming.

    Attributes:
        final: Mean μ_r of the last episodes of each run.
        best: μ_r of the best episode of each run.
        rise: First episode (from 1) with μ_r ≥ 0.8, or the number of all episodes if there is none (`censored`).
        dead: Whether the run collapsed, with a final score below 0.2.
        censored: Whether no episode of the run reached μ_r ≥ 0.8.
    """

    final: Floats
    best: Floats
    rise: Floats
    dead: Bools
    censored: Bools


def score(mu_r: Floats, failed: Bools, final: int = 100) -> Scores:
    """Compute the scores of n runs from their learning curves.

    Args:
        mu_r: Normalised score of each of E episodes; float64, shape `[n, E]`. Where μ_r is undefined (NaN), scores are
            NaN, and runs are neither `dead` nor `censored`.
        failed: Whether each run has failed; bool, shape `[n]`.
        final: Number of last episodes over which the final score is a mean.
    """
    measured = np.isfinite(mu_r).all(axis=1) & ~failed
    reached = mu_r >= RISE_LEVEL
    rise = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, float(mu_r.shape[1]))
    ended = mu_r[:, -final:].mean(axis=1)
    return Scores(
        final=np.where(measured, ended, np.nan),
        best=np.where(measured, mu_r.max(axis=1), np.nan),
        rise=np.where(measured, rise, np.nan),
        dead=(ended < DEAD_LEVEL) & measured,
        censored=~reached.any(axis=1) & measured,
    )
