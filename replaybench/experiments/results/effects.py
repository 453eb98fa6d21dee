"""Effects between learners that share their seeds: estimates, BCa intervals and paired sign-flip tests.

Cells of a study give their members the same random streams, so differences are taken seed by seed. Overlap of two
intervals is no test; the test of the difference is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.results.bootstrap import Statistic, alike, bootstrap, weights
from replaybench.experiments.results.sign_flips import surpassed

Floats = NDArray[np.float64]

SIGNIFICANT: Final = 0.05
"""Differences with a smaller p value are significant."""
FEWEST_SEEDS: Final = 6
"""With five seeds no sign-flip test can reach p < 0.05."""
_POWER: Final = 0.8
MOST_SEEDS: Final = 9999
_MANY: Final = 40
"""From so many seeds on, the p values of a sign-flip test are practically continuous."""


@dataclass(frozen=True)
class Effect:
    """A statistic of paired differences `[seeds]`.

    With fewer than two seeds, or without spread, the interval is unbounded.

    Attributes:
        statistic: the mean, or the interquartile mean where a few differences depend on the length of the runs.
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
        """Standard deviation of the differences, or √n times the standard error of another statistic than the mean."""
        if self.statistic == "mean" or not self._spread:
            return float(self.differences.std(ddof=1)) if self.n > 1 else np.nan
        return math.sqrt(self.n) * float(bootstrap(self.differences, self.statistic).resampled.std())

    @cached_property
    def _spread(self) -> bool:
        return self.n > 1 and not alike(self.differences)

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
    """Return the number of seeds for which a difference at this distance is significant with a power of 0.8.

    The power is that of Student's t test at the level that a sign-flip test of so few seeds can reach: with seven
    differences there is no p value between 1/128 and 2/128. None for more than 9,999 seeds, or an unknown spread.

    Args:
        sd: standard deviation of the paired differences.
        tests: size of the family of tests, of which this one may be the strictest (Holm 1979).
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
    """Return p values that control the family-wise error (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
