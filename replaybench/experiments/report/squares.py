"""A plane of squares, each with its colour and its number, of which filters can take single ones away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.style import luminance
from replaybench.experiments.report.look import MU, Figure, new_figure, number, plain
from replaybench.experiments.report.material import Material

_MIDDLE: Final = 0.179
"""The luminance on which black and white text stand out alike."""
_COLORS: Final = "Cividis"  # of even lightness, and the same to the colour-blind


class Square(NamedTuple):
    """One square.

    Attributes:
        across, up: its place.
        value: what decides its colour and stands in it.
        told: what is said when one points at it.
        meta: the places on the study's axes that it belongs to.
    """

    across: int
    up: int
    value: float
    told: str
    meta: Mapping[str, int]


def same_colours(material: Material) -> str:
    """Say in which squares of the page colours mean the same."""
    scales = {material.normalised(point) for point in material.points()}
    told = [
        *(
            [f"all squares of this page that show {MU}, from 0 (random control) to 1 (dynamic programming)"]
            * (True in scales)
        ),
        *(["all that show rewards of one plant"] * (False in scales)),
    ]
    return f"Lighter is better. A colour means the same in {', and in '.join(told)}."


def colour_span(material: Material, plant: int, normalised: bool) -> tuple[float, float]:
    """Return what the darkest and the lightest colour mean: one scale for each unit of the page.

    That of μ_r is the same for all plants, that of rewards spans all mean final rewards of a plant.
    """
    if normalised:
        return 0.0, 1.0
    points = [point for point in material.points() if point.plant == plant]
    finals = [material.final(point, one, raw=True) for point in points for one in material.series]
    means = [float(np.nanmean(final)) for final in finals if np.isfinite(final).any()]
    return (min(means), max(means)) if means else (0.0, 1.0)


def square_figure(
    squares: Sequence[Square],
    across: Sequence[str],
    up: Sequence[str],
    titles: tuple[str, str],
    span: tuple[float, float],
) -> Figure:
    """Draw squares.

    Args:
        squares: a trace each, so that filters choose them one by one.
        across: labels of the columns, from the left; up: of the rows, from below.
        titles: of both axes.
        span: values of the darkest and the lightest colour.
    """
    low, high = span
    digits = decimals(one.value for one in squares)
    traces = [
        {
            "type": "heatmap",
            "x0": one.across,
            "dx": 1,
            "y0": one.up,
            "dy": 1,
            "z": [[one.value]],
            "zmin": low,
            "zmax": high if high > low else low + 1,
            "colorscale": _COLORS,
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "text": [[number(one.value, digits)]],
            "texttemplate": "%{text}",
            "textfont": {"color": _ink(one.value, low, high)},
            "hovertemplate": f"{plain(one.told)}<extra></extra>",
            "meta": dict(one.meta),
        }
        for one in squares
    ]
    return new_figure(
        traces, titles[0], titles[1], height=96 + 42 * len(up), xaxis=_labelled(across), yaxis=_labelled(up)
    )


def _ink(value: float, low: float, high: float) -> str:
    """Return the colour of text on a square, black or white, whichever stands out more."""
    place = float(np.clip((value - low) / (high - low if high > low else 1.0), 0.0, 1.0))
    (color,) = sample_colorscale(_COLORS, [place], colortype="tuple")
    return "#000000" if luminance(color) > _MIDDLE else "#ffffff"


def _labelled(labels: Sequence[str]) -> dict[str, Any]:
    """Return what an axis of columns or rows is like."""
    return {
        "showgrid": False,
        "tickmode": "array",
        "showline": False,
        "tickvals": list(range(len(labels))),
        "ticktext": [plain(one) for one in labels],
        "range": [-0.5, len(labels) - 0.5],
    }
