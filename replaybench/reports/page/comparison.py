"""Comparisons on the report page: which strategy leads, with significance.

Cells of a study share their seeds, so series are compared seed by seed and the interval is that of the differences.
Significance is decided by the paired sign-flip test, as in the tables of a sweep. Failed runs have no score; a seed on
which one of two runs failed is left out of their difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.experiments.effects import FEWEST_SEEDS, SIGNIFICANT, flipped, paired, seeds_to_tell
from replaybench.experiments.statistics import Interval, interval
from replaybench.reports.figures.style import Series, luminance
from replaybench.reports.page.report_data import Point, ReportData
from replaybench.reports.page.theme import MU, Panel, new_figure, number, plain, worded
from replaybench.runtime.arrays import Floats
from replaybench.runtime.quantities import decimals


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


def at_point(material: ReportData, point: Point) -> list[Standing]:
    """Rank the series of one condition."""
    normalised = material.normalised(point)
    return ranking(
        material.series,
        [material.final(point, one) for one in material.series],
        lambda series, _: material.mean_final(point, series, normalised),
    )


def over_points(material: ReportData, plant: int) -> tuple[list[Point], list[Standing]]:
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


_MIDDLE: Final = 0.179
"""Luminance on which black and white text have the same contrast."""
_COLORS: Final = "Cividis"  # perceptually uniform, also for colour-blind readers


class Square(NamedTuple):
    """One square.

    Attributes:
        across, up: its place.
        score: score that is written in it and decides its colour.
        label: name of the score.
        meta: its places on the study's axes.
    """

    across: int
    up: int
    score: Interval
    label: str
    meta: Mapping[str, int]


def same_colours(material: ReportData) -> str:
    """Name the squares of the page that share a scale of colours."""
    scales = {material.normalised(point) for point in material.points()}
    named = [f"all squares of this page that show {MU}, from 0 (random control) to 1 (dynamic programming)"]
    named = named * (True in scales) + ["all that show rewards of one plant"] * (False in scales)
    return f"Lighter is better. A colour means the same in {', and in '.join(named)}."


def colour_span(material: ReportData, plant: int, normalised: bool) -> tuple[float, float]:
    """Return the values of the darkest and the lightest colour.

    They are 0 and 1 for μ_r; rewards span all mean final rewards of a plant.
    """
    if normalised:
        return 0.0, 1.0
    points = [point for point in material.points() if point.plant == plant]
    means = [material.mean_final(point, one, False).mean for point in points for one in material.series]
    known = [mean for mean in means if np.isfinite(mean)]
    return (min(known), max(known)) if known else (0.0, 1.0)


def square_panel(
    title: str,
    words: str,
    squares: Sequence[Square],
    labels: tuple[Sequence[str], Sequence[str]],
    axes: tuple[str, str],
    span: tuple[float, float],
    places: Mapping[str, int],
) -> Panel:
    """Draw squares, a trace each.

    Args:
        words: beginning of the panel's description.
        labels: of the columns, from the left, and of the rows, from below.
        axes: titles of both axes.
        span: values of the darkest and the lightest colour.
    """
    low, high = span[0], span[1] if span[1] > span[0] else span[0] + 1
    digits = decimals(one.score.mean for one in squares)
    traces = [
        {
            "type": "heatmap",
            "x0": one.across,
            "dx": 1,
            "y0": one.up,
            "dy": 1,
            "z": [[one.score.mean]],
            "zmin": low,
            "zmax": high,
            "colorscale": _COLORS,
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "text": [[number(one.score.mean, digits)]],
            "texttemplate": "%{text}",
            "textfont": {"color": _ink(float(np.clip((one.score.mean - low) / (high - low), 0.0, 1.0)))},
            "hovertemplate": f"{plain(f'{one.label}: {worded(one.score)}')}<extra></extra>",
            "meta": dict(one.meta),
        }
        for one in squares
    ]
    across, up = map(_labelled, labels)
    figure = new_figure(traces, *axes, height=96 + 42 * len(labels[1]), xaxis=across, yaxis=up)
    scores = "; ".join(f"{one.label}: {number(one.score.mean)}" for one in squares)
    return Panel(title, f"{words} {scores}.", figure, places)


def _ink(place: float) -> str:
    """Return the colour of text, black or white, at a place in [0, 1] on the scale of colours."""
    (color,) = sample_colorscale(_COLORS, [place], colortype="tuple")
    return "#000000" if luminance(color) > _MIDDLE else "#ffffff"


def _labelled(labels: Sequence[str]) -> dict[str, Any]:
    ticks = {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": [plain(one) for one in labels]}
    return {"showgrid": False, "showline": False, "range": [-0.5, len(labels) - 0.5], **ticks}
