"""How the figures of a report look: Plotly figures, with the colours, markers and dashes of the figures of a sweep.

A panel is one small figure with the places of its condition on the study's axes, by which the page's filters choose it;
its traces say in `meta` which learner, strategy or step of an animation they show. Text that comes from files is
escaped here, because Plotly reads marks in it. Figures are dictionaries in Plotly's own words: its classes check every
property of every trace anew, which takes half the time of a report of hundreds of cells; a test has them check once.
"""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.quantities import decimals, fixed
from replaybench.experiments.figures.style import DASHES, MARKERS, PALETTE, Series
from replaybench.experiments.results.statistics import Interval

MU: Final = "μᵣ"
INK: Final = "#3d454e"
GRID: Final = "#e6e8eb"
REFERENCE: Final = "#80878f"
PAPER: Final = "#ffffff"
DARK: Final = {
    INK: "#c3cad2",
    GRID: "#2c3238",
    REFERENCE: "#8d96a0",
    PAPER: "#15181b",
    "#0072b2": "#4aa8e0",
    "#d55e00": "#f5823a",
    "#009e73": "#2bc598",
    "#cc79a7": "#e59cc4",
    "#e69f00": "#f2bb45",
    "#56b4e9": "#a6d8f5",
    "#2b2b2b": "#eceff2",
    "#8c7a00": "#cdbb3a",
}
"""What takes a colour's place on a dark page."""

BAND: Final = 0.16
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
_LINES: Final = ("solid", "7px,3px", "2px,2px", "8px,2px,2px,2px")
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

Floats = NDArray[np.float64]
Trace = dict[str, Any]
Figure = dict[str, Any]
"""As Plotly's JSON schema has them."""


@dataclass(frozen=True)
class Panel:
    """A figure of a report.

    Attributes:
        title: what stands above it.
        words: what it shows, for those who cannot see it.
        figure: `data`, the traces, and `layout`.
        places: by axis of the study, the place that the panel belongs to; without an axis it belongs to all places.
        moves: whether it shows another picture at each of its section's steps.
    """

    title: str
    words: str
    figure: Figure
    places: Mapping[str, int]
    moves: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table, with the places that it belongs to; `kind` is a class of the style sheet."""

    cells: Sequence[str]
    places: Mapping[str, int]
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first `words` columns hold words, the others numbers. It is folded unless `open`."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Row]
    words: int
    open: bool = False


@dataclass(frozen=True)
class Listing:
    """Text as a file holds it, folded."""

    caption: str
    text: str


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        key: its anchor.
        lead: what it shows and how to read it, a paragraph each.
        steps: labels of the steps of an animation; traces have their step in `meta`.
        step_name: what the steps are.
        wide: whether its panels need more room than others.
        notes: what else there is to say, below the figures.
    """

    key: str
    title: str
    lead: Sequence[str]
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = ()
    steps: Sequence[str] = ()
    step_name: str = ""
    wide: bool = False
    notes: Sequence[str] = ()
    listings: Sequence[Listing] = ()


REFERENCE_DASHES: Final = {
    "reference_random": "4px,3px",
    "reference_zero": "1px,3px",
    "reference_lqr": "8px,3px",
    "reference_dp": "solid",
}
"""References that figures of rewards show as grey lines."""
REFERENCE_WORDS: Final = (
    "Grey lines, where known and near: random control (dashed), doing nothing (dotted), the linear-quadratic regulator "
    "(long dashes) and dynamic programming (solid), under the same noise and rate"
)


def in_reach(levels: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    """Return the references that a view from `low` to `high` should hold: two of them always, others where near."""
    always, reach = ("reference_random", "reference_dp"), high - low
    return {
        name: level
        for name, level in levels.items()
        if name in REFERENCE_DASHES and (name in always or low - reach <= level <= high + reach)
    }


def plain(text: str) -> str:
    """Return a text that Plotly shows as it is."""
    return html.escape(text, quote=False)


def dash(series: Series) -> str:
    """Return a series' dashes as Plotly writes them."""
    return _LINES[DASHES.index(series.dashes)]


def symbol(series: Series) -> str:
    """Return a series' marker as Plotly calls it."""
    return _SYMBOLS[MARKERS.index(series.marker)]


def faded(color: str, opacity: float = BAND) -> str:
    """Return a colour that lets others shine through."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def dark_colors() -> dict[str, str]:
    """Return what takes each colour's place on a dark page, the faded ones of series included."""
    dark = dict(DARK)
    for opacity in (BAND, 0.45):
        dark |= {faded(color, opacity): faded(DARK[color], opacity + 0.06) for color in PALETTE}
    return dark


def small(values: Any, dtype: type[np.float32 | np.uint8] = np.float32) -> dict[str, str]:
    """Return numbers `[N]` or `[N, M]` as they are embedded in the page: Plotly's typed arrays, in base 64."""
    array = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
    found = {"dtype": "f4" if dtype is np.float32 else "u1", "bdata": base64.b64encode(array.tobytes()).decode()}
    return found if array.ndim == 1 else {**found, "shape": ", ".join(map(str, array.shape))}


def new_figure(
    traces: Sequence[Trace],
    x: str,
    y: str,
    height: int = 250,
    *,
    xaxis: Mapping[str, Any] | None = None,
    yaxis: Mapping[str, Any] | None = None,
    **layout: Any,
) -> Figure:
    """Return a figure without title or legend, both of which stand in the page.

    Args:
        traces: what it draws.
        x, y: titles of the axes.
        xaxis, yaxis, layout: what is different from other figures.
    """
    font = {"family": FONT, "size": 12, "color": INK}
    axis = {
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": GRID,
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
    }
    titles = ({"text": text, "standoff": 6, "font": {"size": 12}} for text in (x, y))
    common = {
        "height": height,
        "margin": {"l": 8, "r": 10, "t": 8, "b": 8},
        "font": font,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "hoverlabel": {"bgcolor": PAPER, "font": font, "bordercolor": GRID},
        "xaxis": {**axis, "showgrid": False, "title": next(titles), **(xaxis or {})},
        "yaxis": {**axis, "title": next(titles), **(yaxis or {})},
    }
    return {"data": list(traces), "layout": {**common, **layout}}


def number(value: float, digits: int = 2) -> str:
    """Write a number for people."""
    return "–" if not np.isfinite(value) else fixed(value, digits).replace("-", "−")


def worded(found: Interval, digits: int | None = None) -> str:
    """Write a mean and its interval, with as many digits as tell the bounds apart, or as asked for."""
    digits = needed_digits(found) if digits is None else digits
    bounds = " (no spread)" if found.degenerate else f" [{number(found.low, digits)}, {number(found.high, digits)}]"
    return number(found.mean, digits) + (bounds if np.isfinite(found.mean) else "")


def needed_digits(found: Interval) -> int:
    """Return how many digits tell the bounds of an interval apart, and write none that is not 0 as 0."""
    digits = decimals((found.mean, found.low, found.high), least=2 if abs(found.mean) < 10 else 1)
    width = found.high - found.low
    return max(digits, min(max(4, digits), -math.floor(math.log10(width)))) if width > 0 else digits
