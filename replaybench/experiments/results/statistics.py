"""Scores of learning runs and their uncertainty (de Bruin et al. 2018, section 5.1).

Runs are resampled, never episodes. Failed runs (a reward is not finite) have no score and are counted; collapsed runs
(`dead`, they end below μ_r = 0.2) are scored like any other, and counted too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.results.bootstrap import Statistic, alike, bootstrap, interquartile_mean

RISE_LEVEL = 0.8
DEAD_LEVEL = 0.2

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over runs with its 95 % bootstrap interval; `degenerate` if the sample has no spread or one member."""

    mean: float
    low: float
    high: float
    degenerate: bool

    def __str__(self) -> str:
        return self.text(2)

    def text(self, digits: int) -> str:
        """Return it as text with so many decimals."""
        if not np.isfinite(self.mean):
            return "–"
        bounds = " (no spread)" if self.degenerate else f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.mean:.{digits}f}{bounds}"


def interval(sample: Floats, statistic: Statistic = "mean") -> Interval:
    """Return a statistic with its 95 % BCa interval of the finite values of a sample `[runs]`."""
    finite = sample[np.isfinite(sample)]
    center = float(finite.mean()) if statistic == "mean" and finite.size else interquartile_mean(finite)
    if finite.size < 2 or alike(finite):
        return Interval(center, center, center, True)
    low, high = map(float, bootstrap(finite, statistic).interval())
    return Interval(center, low, high, alike(np.array([low, high])))


@dataclass(frozen=True)
class Scores:
    """Scores of each run `[M]`, NaN for failed runs.

    Attributes:
        final: mean μ_r of the last episodes (see `last_episodes`).
        best: μ_r of the best episode.
        rise: first episode with μ_r ≥ 0.8, the run's length if there is none (`censored`).
    """

    final: Floats
    best: Floats
    rise: Floats
    failed: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    censored: NDArray[np.bool_]


def score(mu_r: Floats, failed: NDArray[np.bool_], final: int = 100) -> Scores:
    """Score learning curves `[M, E]`; the final score is the mean of the last `final` episodes.

    Args:
        mu_r: normalised curves; all NaN where μ_r is undefined: then scores are NaN, and no run is dead or censored.
        failed: runs with a reward that is not finite, `[M]`.
        final: number of episodes in the final score.
    """
    measured = np.isfinite(mu_r).all(axis=1) & ~failed
    reached = mu_r >= RISE_LEVEL
    rise = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, float(mu_r.shape[1]))
    ended = mu_r[:, -final:].mean(axis=1)
    return Scores(
        final=np.where(measured, ended, np.nan),
        best=np.where(measured, mu_r.max(axis=1), np.nan),
        rise=np.where(measured, rise, np.nan),
        failed=failed,
        dead=(ended < DEAD_LEVEL) & measured,
        censored=~reached.any(axis=1) & measured,
    )
