"""Response surfaces and strategy maps: squares, each with its colour and number, which filters choose one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.style import luminance
from replaybench.experiments.report.look import MU, Panel, new_figure, number, plain, worded
from replaybench.experiments.report.material import Material
from replaybench.experiments.results.statistics import Interval

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


def same_colours(material: Material) -> str:
    """Name the squares of the page that share a scale of colours."""
    scales = {material.normalised(point) for point in material.points()}
    named = [f"all squares of this page that show {MU}, from 0 (random control) to 1 (dynamic programming)"]
    named = named * (True in scales) + ["all that show rewards of one plant"] * (False in scales)
    return f"Lighter is better. A colour means the same in {', and in '.join(named)}."


def colour_span(material: Material, plant: int, normalised: bool) -> tuple[float, float]:
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
