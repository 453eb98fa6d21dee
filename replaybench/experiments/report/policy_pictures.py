"""Figures of a policy over two states: value and action as colours, and a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.experiments.figures.style import minus
from replaybench.experiments.figures.surfaces import cut_path
from replaybench.experiments.report.look import INK, PAPER, Figure, Trace, new_figure, plain, small
from replaybench.experiments.report.snapshots import ActionAxis, SnapshotFacts
from replaybench.experiments.snapshots.surfaces import PIXELS

_SHADES: Final = 255
_SIDES: Final = [0.0, 0.46], [0.54, 1.0]
"""Parts of the width for value and action."""
_SECOND: Final = {"xaxis": "x2", "yaxis": "y2"}
_MOST_POINTS: Final = 140
"""Of a trajectory."""
_STROKES: Final = "#fdfdfd", "#161616"
"""Colours of the trajectory on value and action, the same on a dark page."""

Floats = NDArray[np.floating[Any]]


def moment(
    facts: SnapshotFacts, value: Floats, action: Floats, path: Floats, span: tuple[float, float], step: int | None
) -> list[Trace]:
    """Return the traces of one time: value, first action, and the trajectory on both."""
    meta = {} if step is None else {"step": step}
    first, line = facts.actions[0], _line(facts, path)
    found: list[Trace] = []
    for side, (shown, low, high) in enumerate(((value, *span), (action[..., 0], first.low, first.high))):
        axes = _SECOND if side else {}
        (x, dx), (y, dy) = ((axis.low, (axis.high - axis.low) / PIXELS) for axis in facts.states)
        share = (np.nan_to_num(shown.T, nan=low) - low) / (high - low)
        shades = small(np.round(_SHADES * np.clip(share, 0, 1)), np.uint8)  # a byte each: a page has thousands
        found.append(
            {
                "type": "heatmap",
                "z": shades,
                "x0": x + dx / 2,
                "dx": dx,
                "y0": y + dy / 2,
                "dy": dy,
                "coloraxis": "coloraxis2" if side else "coloraxis",
                "hoverinfo": "skip",
                "meta": meta,
                **axes,
            }
        )
        stroke = {"color": _STROKES[side], "width": 2}
        found.append(
            {"type": "scatter", "mode": "lines", "line": stroke, "hoverinfo": "skip", "meta": meta, **line, **axes}
        )
    return found


def _line(facts: SnapshotFacts, path: Floats) -> dict[str, Any]:
    path = path[np.isfinite(path).all(axis=1)].astype(np.float64)
    path = path[:: -(-len(path) // _MOST_POINTS) or 1]
    path = cut_path(path, [state.high - state.low if state.periodic else np.inf for state in facts.states])
    return {"x": small(path[:, 0]), "y": small(path[:, 1])}


def surface_figure(facts: SnapshotFacts, traces: Sequence[Trace], span: tuple[float, float]) -> Figure:
    """Return value and policy side by side, each with its colours."""
    across, up = facts.states
    action = facts.actions[0]
    marks: list[Trace] = []
    for x, y, sign in ((across.initial, up.initial, "circle"), (across.reference, up.reference, "x")):
        marker = {"color": PAPER, "size": 9, "symbol": sign, "line": {"color": INK, "width": 1.5}}
        point: Trace = {"type": "scatter", "x": [x], "y": [y], "mode": "markers", "marker": marker}
        point |= {"hoverinfo": "skip", "cliponaxis": False}
        marks += [point, {**point, **_SECOND}]
    ticks = {"tickvals": [-np.pi, 0, np.pi], "ticktext": ["−π", "0", "π"]} if across.periodic else {"nticks": 4}
    view = {"range": [across.low, across.high], "showgrid": False, **ticks}
    rows = {"range": [up.low, up.high], "showgrid": False}
    colors = "RdBu" if action.low < 0 < action.high else "Cividis"
    figure = new_figure(
        [*traces, *marks],
        _labelled(across),
        _labelled(up),
        height=296,
        xaxis={**view, "domain": _SIDES[0]},
        yaxis={**rows, "nticks": 5},
        yaxis2={**rows, "showticklabels": False, "fixedrange": True, "ticks": "", "anchor": "x2"},
        coloraxis=_scale("Viridis", "value", *span, _SIDES[0]),
        coloraxis2=_scale(colors, _labelled(action), action.low, action.high, _SIDES[1]),
        margin={"l": 8, "r": 14, "t": 10, "b": 40},
    )
    figure["layout"]["xaxis2"] = {**figure["layout"]["xaxis"], "domain": _SIDES[1], "anchor": "y2"}
    return figure


def _scale(colors: str, title: str, low: float, high: float, side: list[float]) -> dict[str, Any]:
    bar = {
        "title": {"text": plain(title), "side": "bottom", "font": {"size": 11}},
        "orientation": "h",
        "thickness": 9,
        "x": (side[0] + side[1]) / 2,
        "y": -0.24,
        "yanchor": "top",
        "ypad": 4,
        "len": 0.9 * (side[1] - side[0]),
        "tickvals": [0, _SHADES / 2, _SHADES],
        "ticktext": [minus(f"{value:.3g}") for value in (low, (low + high) / 2, high)],
        "outlinewidth": 0,
    }
    return {"cmin": 0, "cmax": _SHADES, "colorscale": colors, "colorbar": bar}


def _labelled(axis: ActionAxis) -> str:
    return plain(f"{axis.name} [{axis.unit}]" if axis.unit else axis.name)
