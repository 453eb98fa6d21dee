"""Who is ahead of whom, and how sure that is.

Seeds are the units. Cells of a study share their seeds, so two strategies are compared seed by seed, and the interval
is one of these differences: what a seed gives to both of them cancels. Whether a lead is more than chance is decided by
flipping the signs of these differences, as in the tables of a sweep. Runs that failed have no score; a seed on which
one of two failed is left out of their difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.figures.style import Series
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.results.effects import FEWEST_SEEDS, SIGNIFICANT, seeds_to_tell
from replaybench.experiments.results.sign_flips import flipped
from replaybench.experiments.results.statistics import Interval, interval

Floats = NDArray[np.float64]


class Lead(NamedTuple):
    """How far one series is ahead of another, on the seeds that both finished.

    Attributes:
        difference: mean of the differences with its 95 % interval.
        pairs: number of seeds; ahead: on how many of them the difference is positive.
        chance: p value of "both are alike", by flipped signs.
        needed: seeds that would tell them apart four times in five, if the difference and its spread are what they were
            here; None where they are more than anybody runs.
    """

    difference: Interval
    pairs: int
    ahead: int
    chance: float
    needed: int | None

    @property
    def same(self) -> bool:
        """Tell whether the scores of both are equal on every seed, as those of buffers that never fill."""
        return self.pairs > 0 and self.difference.degenerate and self.difference.mean == 0

    @property
    def sure(self) -> bool:
        """Tell whether the lead is more than chance; intervals of few seeds hold less than they say."""
        return self.pairs >= FEWEST_SEEDS and self.difference.mean > 0 and self.chance < SIGNIFICANT


def lead(one: Floats, other: Floats) -> Lead:
    """Compare the scores `[seed]` of two series."""
    both = np.isfinite(one) & np.isfinite(other)
    differences = one[both] - other[both]
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else np.nan
    needed = seeds_to_tell(spread, abs(float(differences.mean())) if len(differences) else 0.0)
    ahead = int((differences > 0).sum())
    return Lead(interval(differences), len(differences), ahead, float(flipped(differences)), needed)


class Standing(NamedTuple):
    """A series among those that it is compared with.

    Attributes:
        score: its mean with a 95 % interval, over `seeds` of them.
        behind: how far the best is ahead of it; None for the best itself.
    """

    series: Series
    score: Interval
    seeds: int
    behind: Lead | None


def ranking(
    names: Sequence[Series], scores: Sequence[Floats], summed_up: Callable[[Series, Floats], Interval]
) -> list[Standing]:
    """Rank series by their mean score `[seed]` each; those without any finite score are left out.

    Args:
        summed_up: returns the mean of a series' scores with its interval.
    """
    there = [(one, score) for one, score in zip(names, scores, strict=True) if np.isfinite(score).any()]
    there.sort(key=lambda pair: -float(np.nanmean(pair[1])))
    found = []
    for one, score in there:
        behind = None if one is there[0][0] else lead(there[0][1], score)
        found.append(Standing(one, summed_up(one, score), int(np.isfinite(score).sum()), behind))
    return found


def at_point(material: Material, point: Point) -> list[Standing]:
    """Rank the series of one condition; intervals of μ_r are those that the results hold."""
    normalised = material.normalised(point)
    return ranking(
        material.series,
        [material.final(point, one) for one in material.series],
        lambda series, _: material.mean_final(point, series, normalised),
    )


class Overall(NamedTuple):
    """A ranking over several conditions, in all of which the same series were run; no points without a common scale."""

    points: list[Point]
    standings: list[Standing]


def over_points(material: Material, plant: int) -> Overall:
    """Rank the series of one plant by their mean over its conditions, seed by seed.

    Only series that were run in every condition with μ_r are ranked, so that all are asked the same; without μ_r, where
    rewards of different rates have no common scale, a single condition alone is ranked.
    """
    points = [point for point in material.points() if point.plant == plant]
    usable = [point for point in points if material.normalised(point)] or points
    if not material.normalised(usable[0]) and len(usable) > 1:
        return Overall([], [])
    everywhere = [one for one in material.series if all(material.started(point, one) for point in usable)]
    scores = [np.mean([material.final(point, one) for point in usable], axis=0) for one in everywhere]
    return Overall(usable, ranking(everywhere, scores, lambda _, score: interval(score)))
