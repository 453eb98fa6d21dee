"""Rankings of series, with tests of their differences.

Cells of a study share their seeds, so series are compared seed by seed and the interval is that of the differences.
Significance is decided by the paired sign-flip test, as in the tables of a sweep. Failed runs have no score; a seed on
which one of two runs failed is left out of their difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.figures.style import Series
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.results.effects import FEWEST_SEEDS, SIGNIFICANT, paired, seeds_to_tell
from replaybench.experiments.results.sign_flips import flipped
from replaybench.experiments.results.statistics import Interval, interval

Floats = NDArray[np.float64]


class Lead(NamedTuple):
    """Lead of one series over another, on the seeds that both finished.

    Attributes:
        difference: mean of the differences with its 95 % interval.
        pairs: number of seeds; ahead: on how many of them the difference is positive.
        chance: p value of no difference (paired sign-flip test).
        needed: seeds for a power of 0.8, if mean and spread of the differences are as here; None for very many.
    """

    difference: Interval
    pairs: int
    ahead: int
    chance: float
    needed: int | None

    @property
    def same(self) -> bool:
        """Whether the scores of both are equal on every seed, as with buffers that never fill."""
        return self.pairs > 0 and self.difference.degenerate and self.difference.mean == 0

    @property
    def significant(self) -> bool:
        """Whether the lead is significant, with enough seeds for the test."""
        return self.pairs >= FEWEST_SEEDS and self.difference.mean > 0 and self.chance < SIGNIFICANT


def lead(one: Floats, other: Floats) -> Lead:
    """Compare the scores `[seed]` of two series."""
    effect = paired([one], [other])
    found, differences = interval(effect.differences), effect.differences
    needed = seeds_to_tell(effect.sd, abs(found.mean)) if effect.n else None
    return Lead(found, effect.n, int((differences > 0).sum()), float(flipped(differences)), needed)


class Standing(NamedTuple):
    """A series in a ranking.

    Attributes:
        score: its mean with a 95 % interval, over `seeds` of them.
        behind: lead of the best series over it; None for the best itself.
    """

    series: Series
    score: Interval
    seeds: int
    behind: Lead | None


def ranking(
    names: Sequence[Series], scores: Sequence[Floats], mean: Callable[[Series, Floats], Interval]
) -> list[Standing]:
    """Rank series by their mean score `[seed]`; series without any finite score are left out.

    Args:
        mean: returns the mean of a series' scores with its interval.
    """
    scored = [pair for pair in zip(names, scores, strict=True) if np.isfinite(pair[1]).any()]
    scored.sort(key=lambda pair: -float(np.nanmean(pair[1])))
    return [
        Standing(one, mean(one, score), int(np.isfinite(score).sum()), lead(scored[0][1], score) if place else None)
        for place, (one, score) in enumerate(scored)
    ]


def at_point(material: Material, point: Point) -> list[Standing]:
    """Rank the series of one condition."""
    normalised = material.normalised(point)
    return ranking(
        material.series,
        [material.final(point, one) for one in material.series],
        lambda series, _: material.mean_final(point, series, normalised),
    )


def over_points(material: Material, plant: int) -> tuple[list[Point], list[Standing]]:
    """Return the conditions of one plant that have a common scale, and the ranking by their mean, seed by seed.

    Only series that were run in every condition with μ_r are ranked. Without μ_r, rewards of several conditions have
    no common scale, and only a single condition is ranked.
    """
    points = [point for point in material.points() if point.plant == plant]
    usable = [point for point in points if material.normalised(point)] or points
    if not material.normalised(usable[0]) and len(usable) > 1:
        return [], []
    everywhere = [one for one in material.series if all(material.started(point, one) for point in usable)]
    scores = [np.mean([material.final(point, one) for point in usable], axis=0) for one in everywhere]
    return usable, ranking(everywhere, scores, lambda _, score: interval(score))
