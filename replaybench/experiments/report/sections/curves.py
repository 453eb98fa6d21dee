"""Learning curves with intervals, a panel for each condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.curves import Curve, learning_curve, smoothing_window
from replaybench.experiments.figures.learning_curves import CROWDED, EPISODE_LABELS
from replaybench.experiments.figures.style import RAW_LABELS, Series, plant_name
from replaybench.experiments.report.comparison import Standing
from replaybench.experiments.report.look import (
    MU,
    REFERENCE,
    REFERENCE_DASHES,
    REFERENCE_WORDS,
    Panel,
    Section,
    Trace,
    dash,
    faded,
    in_reach,
    new_figure,
    number,
    plain,
    small,
)
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.results.dataset import counted_in, episode_metric, in_rounds
from replaybench.experiments.results.references import LABELS

_MOST_POINTS: Final = 160
_NUMBERS: Final = 100_000
"""Numbers of all curves together; a study of very many cells has fewer points in each."""
_FLOOR: Final = -0.5

Floats = NDArray[np.float64]


def curves_section(material: Material, standings: dict[Point, list[Standing]]) -> Section:
    """Draw the learning curves of every condition.

    Args:
        standings: the ranking at each condition.
    """
    window = smoothing_window(material.data.sizes["episode"])
    curves = sum(material.started(point, one) > 0 for point in standings for one in material.series)
    points = max(30, min(_MOST_POINTS, _NUMBERS // (3 * max(1, curves))))
    panels = [_panel(material, point, standings[point], window, points) for point in standings]
    counted = counted_in(material.data.isel(plant=0))
    lead = "Training episodes, exploration included: the mean over runs"
    lead += f", averaged over {window} {counted}" if window > 1 else ""
    if material.data.sizes["seed"] > 1:
        lead += (
            ". The band is where that mean lies with 95 % confidence if other seeds were drawn (bootstrap over runs)"
        )
        if len(material.series) > CROWDED:
            lead += (
                f"; more than {CROWDED} would cover each other, so there are none until fewer curves are chosen above"
            )
    lead += ". Failed runs are not drawn."
    grey = REFERENCE_WORDS
    grey += (
        f"; on the scale {MU} the first and the last are 0 and 1." if any(map(material.normalised, standings)) else "."
    )
    return Section("curves", "Learning curves", [lead, grey], panels)


def _panel(material: Material, point: Point, standings: list[Standing], window: int, most: int) -> Panel:
    data = material.data.isel(plant=point.plant)
    normalised = material.normalised(point)
    drawn: list[tuple[Series, Curve]] = []
    lowest, highest, late = [], [], []
    for one in material.series:
        runs = material.runs(point, one, normalised)
        runs = runs[np.isfinite(runs).all(axis=1)]
        if not len(runs):
            continue
        curve = learning_curve(runs, window, most)
        drawn.append((one, curve))
        mean = curve.mean
        lowest.append(float(mean.min()))
        highest.append(float(mean.max()))
        late.append(float(mean[-max(1, len(mean) // 5) :].min()))
    floor = max(_FLOOR, min(lowest, default=0.0)) if normalised else min(lowest, default=0.0)
    levels = in_reach(material.levels(point), min([floor, *late]), max(highest, default=1.0))
    low, high = min([floor, *late, *levels.values()]), max([*highest, *levels.values()], default=1.0)
    room = 0.06 * (high - low) or 0.5
    digits = decimals([*lowest, *highest, *late, *levels.values()])
    traces: list[Trace] = []
    for one, curve in drawn:
        learner, strategy = material.place(one)
        traces += curve_traces({"learner": learner, "strategy": strategy}, one, curve, digits)
    figure = new_figure(
        [*reference_traces(levels, data.sizes["episode"], digits), *traces],
        EPISODE_LABELS[in_rounds(data)],
        MU if normalised else RAW_LABELS[episode_metric(data)],
        yaxis={"range": [low - room, high + room]},
        xaxis={"range": [0, 1.01 * data.sizes["episode"]]},
        hovermode="x",
    )
    title = f"{plant_name(material.plants[point.plant])}, {material.condition(point)}"
    return Panel(title, _words(title, standings, normalised, digits), figure, point._asdict())


def curve_traces(meta: Mapping[str, Any], series: Series, curve: Curve, digits: int) -> list[Trace]:
    """Return the band of a series, if there are several runs, and its mean over the middles of its windows.

    Args:
        meta: what the page's filters choose it by.
        digits: decimals that are shown of it.
    """
    step = float(curve.episode[1] - curve.episode[0]) if len(curve.episode) > 1 else 1.0
    common = {"type": "scatter", "x0": float(curve.episode[0]), "dx": step}
    common |= {"meta": meta}
    found: list[Trace] = []
    if curve.band is not None:
        low, high = curve.band
        edge = {**common, "meta": {**meta, "band": CROWDED}, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        found.append({**edge, "y": small(low)})
        found.append({**edge, "y": small(high), "fill": "tonexty", "fillcolor": faded(series.color)})
    found.append(
        {
            **common,
            "y": small(curve.mean),
            "mode": "lines" if len(curve.mean) > 2 else "lines+markers",
            "line": {"color": series.color, "width": 1.8, "dash": dash(series)},
            "name": plain(series.label),
            "hovertemplate": f"%{{y:.{digits}f}}",
        }
    )
    return found


def reference_traces(levels: Mapping[str, float], last: int, digits: int) -> list[Trace]:
    """Return a grey line for each reference, from 0 to the `last` episode or update."""
    return [
        {
            "type": "scatter",
            "x": [0, last],
            "y": [level, level],
            "mode": "lines",
            "line": {"color": REFERENCE, "width": 1, "dash": REFERENCE_DASHES[name]},
            "hovertemplate": f"%{{y:.{digits}f}}",
            "name": LABELS[name],
        }
        for name, level in levels.items()
    ]


def _words(title: str, standings: list[Standing], normalised: bool, digits: int) -> str:
    """Say what the curves come to."""
    kind = f"final {MU}" if normalised else "final reward"
    if not standings:
        return f"Learning curves of {title}: all runs failed."
    ends = "; ".join(f"{one.series.label} {number(one.score.mean, digits)}" for one in standings)
    return f"Learning curves of {title}. By {kind}, best first: {ends}."
