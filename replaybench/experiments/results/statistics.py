"""Scores of learning runs and their uncertainty (de Bruin et al. 2018, section 5.1).

Runs are resampled, never episodes. Failed runs (a non-finite reward) have no score and are counted; dead ones (they
end below μ_r = 0.2) are scored like any other and counted as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.results.bootstrap import alike, bootstrap

FINAL_EPISODES = 100
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
        """Write it with so many decimals."""
        if not np.isfinite(self.mean):
            return "–"
        bounds = " (no spread)" if self.degenerate else f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.mean:.{digits}f}{bounds}"


def interval(sample: Floats) -> Interval:
    """Return mean and BCa interval of the finite values of a sample `[runs]`; resamples are always the same."""
    finite = sample[np.isfinite(sample)]
    if finite.size == 0:
        return Interval(np.nan, np.nan, np.nan, True)
    mean = float(finite.mean())
    if finite.size < 2 or alike(finite):
        return Interval(mean, mean, mean, True)
    low, high = bootstrap(finite).interval()
    return Interval(mean, float(low), float(high), False)


def median_seed(rewards: Floats) -> int | None:
    """Return the run of median final reward among `[seeds, E]`, the lower of two; None if all have failed."""
    final = rewards[:, -FINAL_EPISODES:].mean(axis=1)
    ranked = np.argsort(final)[: np.isfinite(final).sum()]  # NaN is sorted to the end
    return int(ranked[(len(ranked) - 1) // 2]) if len(ranked) else None


@dataclass(frozen=True)
class Scores:
    """Scores of each run, `[M]`: NaN for failed runs.

    `final` is the mean over the last episodes (see `last_episodes`), `best` the best episode, both as μ_r; `rise` the
    first episode with μ_r ≥ 0.8, the run's length where it is never reached (`censored`).
    """

    final: Floats
    best: Floats
    rise: Floats
    failed: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    censored: NDArray[np.bool_]


def last_episodes(count: int, rounds: bool) -> int:
    """Return how many of a run's last training episodes make its final score: 100, or the last tenth of its rounds."""
    return max(1, count // 10) if rounds else min(FINAL_EPISODES, count)


def score(mu_r: Floats, failed: NDArray[np.bool_], final: int = FINAL_EPISODES) -> Scores:
    """Score normalised learning curves `[M, E]`, of which `failed` `[M]` were not finite as rewards.

    The final score is the mean of the last `final` episodes.

    Where μ_r means nothing, all curves are NaN and so are all scores, but no run counts as dead or censored.
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
