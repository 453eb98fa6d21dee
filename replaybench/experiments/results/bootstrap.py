"""Bootstrap intervals, bias-corrected and accelerated (BCa, Efron 1987), for many samples of one size at once.

Statistics are weighted sums, so a thousand intervals of one size are one matrix product. The resamples of a size are
always the same; they are those of `scipy.stats.bootstrap` with `PCG64(0)`. Unlike there, resamples that differ from the
sample by rounding only are ties, so that intervals do not depend on the processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Literal["mean", "interquartile mean"]

RESAMPLES: Final = 10_000
_SMALLEST: Final = 1 / (RESAMPLES + 1)
_ROUNDING: Final = 1e-11  # relative


def alike(values: Floats) -> bool:
    """Return whether the values of a sample `[n]` differ by rounding at most."""
    return float(np.ptp(values)) <= 1e-12 * max(1.0, float(np.abs(values).max()))


@dataclass(frozen=True)
class Bootstrap:
    """A statistic of samples `[...]` and of their resamples, ascending, `[..., RESAMPLES]`; acceleration `[...]`."""

    estimate: Floats
    resampled: Floats
    acceleration: Floats

    def interval(self, coverage: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of each sample's BCa interval, `[...]`."""
        from scipy.special import ndtr, ndtri

        bias = ndtri(self._share(self.estimate))
        quantiles = bias + ndtri(np.array([(1 - coverage) / 2, (1 + coverage) / 2])).reshape(2, *[1] * bias.ndim)
        levels = ndtr(bias + quantiles / (1 - self.acceleration * quantiles))
        low, high = (self._quantile(level) for level in levels)
        return low, high

    def _share(self, value: Floats) -> Floats:
        """Return the share of resamples below a value, ties counted half, within (0, 1)."""
        rounding = _ROUNDING * np.maximum(np.abs(self.resampled[..., 0]), np.abs(self.resampled[..., -1]))
        below = (self.resampled < (value - rounding)[..., None]).mean(axis=-1)
        upto = (self.resampled <= (value + rounding)[..., None]).mean(axis=-1)
        shares: Floats = np.clip((below + upto) / 2, _SMALLEST, 1 - _SMALLEST)
        return shares

    def _quantile(self, level: Floats) -> Floats:
        place = level * (RESAMPLES - 1)
        lower = np.minimum(place.astype(np.int64), RESAMPLES - 2)
        ends = np.take_along_axis(self.resampled, np.stack([lower, lower + 1], axis=-1), axis=-1)
        found: Floats = ends[..., 0] + (place - lower) * (ends[..., 1] - ends[..., 0])
        return found


def bootstrap(samples: Floats, statistic: Statistic = "mean") -> Bootstrap:
    """Resample the last axis of `samples` `[..., n]`, of at least two different values."""
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
    """Return the mean of the middle half of a sample, fractions of runs counted (Agarwal et al. 2021)."""
    finite = np.sort(sample[np.isfinite(sample)])
    return float(finite @ weights(finite.size, "interquartile mean")) if finite.size else np.nan


def weights(size: int, statistic: Statistic) -> Floats:
    """Return the weights `[size]` of values in ascending order in a statistic."""
    found: Floats = _weights(np.ones((1, size)), statistic)[0]
    return found


@lru_cache(maxsize=8)
def drawn(size: int) -> Floats:
    """Return how often each of `size` values is drawn in each resample, `[RESAMPLES, size]`."""
    draws = np.random.Generator(np.random.PCG64(0)).integers(size, size=(RESAMPLES, size))
    places = draws + size * np.arange(RESAMPLES)[:, None]
    counts: Floats = np.bincount(places.ravel(), minlength=RESAMPLES * size).reshape(RESAMPLES, size).astype(np.float64)
    return counts


@lru_cache(maxsize=8)
def _resample_weights(size: int, statistic: Statistic) -> Floats:
    return _weights(drawn(size), statistic)


def _weights(counts: Floats, statistic: Statistic) -> Floats:
    """Return the weights of values that occur `counts` times `[resample, n]`."""
    ends = counts.cumsum(axis=-1)
    total = ends[:, -1:]
    if statistic == "mean":
        even: Floats = counts / total
        return even
    middle = np.minimum(ends, 0.75 * total) - np.maximum(ends - counts, 0.25 * total)
    halved: Floats = np.maximum(middle, 0.0) / (0.5 * total)
    return halved
