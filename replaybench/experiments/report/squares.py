"""A plane of squares, each with its colour and its number, of which filters can take single ones away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from replaybench.experiments.report.look import Figure, new_figure, number, plain

_COLORS = "Cividis"  # of even lightness, and the same to the colour-blind


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
            "text": [[number(one.value)]],
            "texttemplate": "%{text}",
            "hovertemplate": f"{plain(one.told)}<extra></extra>",
            "meta": dict(one.meta),
        }
        for one in squares
    ]
    return new_figure(
        traces, titles[0], titles[1], height=96 + 42 * len(up), xaxis=_labelled(across), yaxis=_labelled(up)
    )


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
