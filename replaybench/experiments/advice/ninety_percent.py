"""The rule of thumb for a buffer's capacity: the experiences until 90 % of the final performance (section 9.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from replaybench.experiments.results.effects import SIGNIFICANT, paired

Floats = NDArray[np.float64]

SHARE: Final = 0.9
LEAST_EPISODES: Final = 20
"""Fewer episodes make no curve."""
_SMOOTHED: Final = 0.05
"""Part of a run over which curves are averaged."""
_STILL: Final = 0.02
"""A curve whose last rise is below this part of final − start has converged."""
_PARTS: Final = 4
"""The last of so many parts must be significantly better than the first, or nothing was learned."""


@dataclass(frozen=True)
class Capacity:
    """The capacity by a learning curve.

    Attributes:
        steps: experiences until 90 % of the way from the start to the final performance.
        stored: experiences of the whole run.
        start, final: rewards at 0 % and at 100 %.
        rise: rise from the last but one tenth of the run to the last, in parts of final − start.
        rising: whether the rise is significantly above 0; then `steps` is a lower bound.
        converged: whether the rise is significantly below 2 %.
    """

    steps: int
    stored: int
    start: float
    final: float
    rise: float
    rising: bool
    converged: bool

    @property
    def state(self) -> str:
        """Describe whether the curve still rises."""
        if self.converged:
            return "no longer rising"
        return "still rising" if self.rising else "not known to have converged"


def ninety_percent(rewards: Floats, steps: Floats, start: float) -> Capacity | None:
    """Apply the rule to training rewards `[S, E]` of FULL[Uniform] and the lengths of episodes `[S, E]`.

    The paper normalises curves by the final performance, which needs rewards that begin near 0. Here 90 % is nine
    tenths of the way from the random controller's reward, `start`, to the final one. Failed seeds are left out.

    Returns:
        None if the final performance is not above the start, or for fewer than 20 episodes.
    """
    whole = np.isfinite(rewards).all(axis=1)
    rewards, steps = rewards[whole], steps[whole]
    episodes = rewards.shape[1]
    if not whole.any() or episodes < LEAST_EPISODES:
        return None
    last = max(1, episodes // 10)
    final = float(rewards[:, -last:].mean())
    if not final > start:
        return None
    smooth = moving_mean(rewards.mean(axis=0), max(1, round(_SMOOTHED * episodes)))
    reached = int(np.argmax(smooth >= start + SHARE * (final - start)))
    counts = steps.mean(axis=0).cumsum()
    rising = paired([rewards[:, -last:].mean(axis=1)], [rewards[:, -2 * last : -last].mean(axis=1)])
    least, most = rising.interval()
    return Capacity(
        steps=int(counts[reached]),
        stored=int(counts[-1]),
        start=start,
        final=final,
        rise=rising.estimate / (final - start),
        rising=bool(least > 0),
        converged=bool(most < _STILL * (final - start)),
    )


def improves(rewards: Floats) -> bool:
    """Return whether the last quarter of curves `[S, E]` is significantly better than the first (Mann-Whitney)."""
    quarter = max(1, rewards.shape[1] // _PARTS)
    whole = rewards[np.isfinite(rewards).all(axis=1)]
    first, last = whole[:, :quarter].ravel(), whole[:, -quarter:].ravel()
    return len(whole) > 0 and bool(stats.mannwhitneyu(last, first, alternative="greater").pvalue < SIGNIFICANT)


def moving_mean(curve: Floats, window: int) -> Floats:
    """Return the mean of the last `window` values of a curve `[E]` at each place, of fewer at its beginning."""
    # Not by a running sum, in which one huge reward costs the digits of all later ones.
    begins = np.maximum(0, np.arange(1, len(curve) + 1) - window)
    return np.array([curve[begin : end + 1].mean() for end, begin in enumerate(begins)])


def rounded(steps: int) -> int:
    """Return a number of experiences with two significant digits, rounded up."""
    if steps < 10:
        return max(1, steps)
    unit = int(10 ** (len(str(steps)) - 2))
    return -(-steps // unit) * unit
