"""Elements of the report page, such as sections, tables and Plotly figures.

A panel is a small figure. It states its index on the axes of the study, which the page's filters use. The entry `meta`
of a trace holds its learner, strategy or animation step. Text from files is escaped here, because Plotly
interprets HTML tags. Figures are dictionaries in Plotly's JSON schema. Plotly's classes would validate every property,
which takes half the time of a large report. A test validates the figures instead.
"""

import base64
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from replaybench.experiments.comparison import RIVAL
from replaybench.experiments.statistics import Interval
from replaybench.reports.figures.curves import ALWAYS
from replaybench.reports.figures.style import DASHES, MARKERS, PALETTE, Series, minus
from replaybench.runtime.quantities import decimals, fixed

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
"""Colours of a dark page, by the colours of a light page that they replace."""

BAND, DOTS = 0.16, 0.45
"""Opacities of bands, and of dots for seeds."""
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
_LINES: Final = ("solid", "7px,3px", "2px,2px", "8px,2px,2px,2px")
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

Trace = dict[str, Any]
Figure = dict[str, Any]
"""A figure in Plotly's JSON schema."""


@dataclass(frozen=True)
class Panel:
    """A figure of a report with its description.

    Attributes:
        title: Text above the figure.
        words: Description for readers who cannot see the figure.
        figure: Plotly figure, with traces under `data`, and `layout`.
        places: Index of the panel's value on each axis of the study that the panel depends on. Filters of other axes do
            not hide the panel.
        moves: Whether the figure has a picture for each step of its section's animation.
    """

    title: str
    words: str
    figure: Figure
    places: Mapping[str, int]
    moves: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        cells: Text of each column.
        places: Index of the row on each axis of the study that the row depends on, for the filters of the page.
        style: Name of a class in the style sheet.
    """

    cells: Sequence[str]
    places: Mapping[str, int]
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a report, which is folded on the page unless `open`.

    The first `words` columns hold text, the others numbers.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Row]
    words: int
    open: bool = False


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Attributes:
        key: Anchor of the section in the page.
        lead: Paragraphs above the figures.
        steps: Labels of the steps of an animation.
        notes: Paragraphs below the figures.
        study: Text of the study file, which is shown folded.
    """

    key: str
    title: str
    lead: Sequence[str]
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = ()
    steps: Sequence[str] = ()
    notes: Sequence[str] = ()
    study: str = ""


REFERENCE_DASHES: Final = {
    "reference_random": "4px,3px",
    "reference_zero": "1px,3px",
    "reference_lqr": "8px,3px",
    "reference_dp": "solid",
}
"""Dashes of the grey lines for reference controllers, in Plotly's notation."""
RIVAL_DASH: Final = "6px,2px,1px,2px"
REFERENCE_WORDS: Final = (
    "Grey lines, if known and near: random control (dashed), doing nothing (dotted), the linear-quadratic regulator "
    "(long dashes), dynamic programming (solid) and rivals such as a tuned PID controller (dash-dotted), under the "
    "same noise and rate"
)


def reference_line(name: str) -> dict[str, Any]:
    """Return the style of the line of a reference controller in Plotly's notation."""
    return {"color": REFERENCE, "width": 1, "dash": REFERENCE_DASHES.get(name, RIVAL_DASH)}


def _has_line(name: str) -> bool:
    return name in REFERENCE_DASHES or name.startswith(RIVAL)


def in_reach(levels: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    """Return the reference controllers that a view from `low` to `high` shows.

    Random control and dynamic programming are always shown. Other controllers are shown if they lie at most `high` −
    `low` outside the view.
    """
    reach = high - low
    near = {name for name, level in levels.items() if low - reach <= level <= high + reach}
    return {name: level for name, level in levels.items() if _has_line(name) and name in {*ALWAYS, *near}}


def plain(text: str) -> str:
    """Escape HTML characters in a string, so that Plotly shows the string unchanged."""
    return html.escape(text, quote=False)


def dash(series: Series) -> str:
    """Return the dash pattern of the lines of a learner with a strategy, in Plotly's notation."""
    return _LINES[DASHES.index(series.dashes)]


def symbol(series: Series) -> str:
    """Return the marker of a learner with a strategy in Plotly's notation."""
    return _SYMBOLS[MARKERS.index(series.marker)]


def faded(color: str, opacity: float = BAND) -> str:
    """Return a colour `#rrggbb` with an opacity as CSS text."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def dark_colors() -> dict[str, str]:
    """Return a mapping from each colour of the light page, also transparent ones, to its colour on the dark page."""
    pairs = [(opacity, color) for opacity in (BAND, DOTS) for color in PALETTE]
    return DARK | {faded(color, opacity): faded(DARK[color], opacity + 0.06) for opacity, color in pairs}


def small(values: Any, dtype: type[np.float32 | np.uint8] = np.float32) -> dict[str, str]:
    """Return numbers in one or two dimensions as a typed array of Plotly, encoded in base 64 to save space."""
    array = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
    packed = {"dtype": "f4" if dtype is np.float32 else "u1", "bdata": base64.b64encode(array.tobytes()).decode()}
    return packed if array.ndim == 1 else {**packed, "shape": ", ".join(map(str, array.shape))}


def new_figure(
    traces: Iterable[Trace],
    x: str,
    y: str,
    height: int = 250,
    *,
    xaxis: Mapping[str, Any] | None = None,
    yaxis: Mapping[str, Any] | None = None,
    **layout: Any,
) -> Figure:
    """Return a Plotly figure without title and legend, which the page shows as text.

    Args:
        x: Title of the x axis.
        y: Title of the y axis.
        height: Height [pixel].
        xaxis: Properties of the x axis that replace the default ones.
        yaxis: Properties of the y axis that replace the default ones.
        layout: Properties of the layout that replace the default ones.
    """
    font = {"family": FONT, "size": 12, "color": INK}
    axis = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "ticks": ""}
    axis |= {"automargin": True, "fixedrange": True}
    across, up = ({"title": {"text": text, "standoff": 6, "font": {"size": 12}}} for text in (x, y))
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
        "xaxis": {**axis, "showgrid": False, **across, **(xaxis or {})},
        "yaxis": {**axis, **up, **(yaxis or {})},
    }
    return {"data": list(traces), "layout": {**common, **layout}}


def number(value: float, digits: int = 2) -> str:
    """Return a number as text with a typographic minus sign, or a dash for NaN."""
    return minus(fixed(value, digits)) if np.isfinite(value) else "–"


def worded(score: Interval, digits: int | None = None) -> str:
    """Return a mean with its interval as text, by default with enough decimals to distinguish the interval's ends."""
    digits = needed_digits(score) if digits is None else digits
    bounds = " (no spread)" if score.degenerate else f" [{number(score.low, digits)}, {number(score.high, digits)}]"
    return number(score.mean, digits) + (bounds if np.isfinite(score.mean) else "")


def needed_digits(score: Interval) -> int:
    """Return the number of decimals with which the ends of an interval differ and no small number is printed as 0."""
    digits = decimals((score.mean, score.low, score.high), least=2 if abs(score.mean) < 10 else 1)
    width = score.high - score.low
    return max(digits, min(max(4, digits), -math.floor(math.log10(width)))) if width > 0 else digits
