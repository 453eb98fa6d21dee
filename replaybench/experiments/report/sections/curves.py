"""Learning curves with intervals, a panel for each condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.curves import (
    CROWDED,
    EPISODE_LABELS,
    Curve,
    curve_range,
    series_curves,
    smoothing_window,
)
from replaybench.experiments.figures.style import RAW_LABELS, Series
from replaybench.experiments.report.comparison import Standing
from replaybench.experiments.report.look import (
    MU,
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
    reference_line,
    small,
)
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.results.dataset import counted_in, episode_metric, in_rounds
from replaybench.experiments.results.references import LABELS

_MOST_POINTS: Final = 160
_NUMBERS: Final = 100_000
"""Numbers of all curves together; curves of a study of very many cells have fewer points."""


def curves_section(material: Material, standings: dict[Point, list[Standing]]) -> Section:
    """Draw the learning curves of every condition."""
    window = smoothing_window(material.data.sizes["episode"])
    curves = sum(material.started(point, one) > 0 for point in standings for one in material.series)
    points = max(30, min(_MOST_POINTS, _NUMBERS // (3 * max(1, curves))))
    panels = [_panel(material, point, ranked, window, points) for point, ranked in standings.items()]
    lead = "Training episodes, exploration included: the mean over runs"
    lead += f", averaged over {window} {counted_in(material.of_plants[0])}" if window > 1 else ""
    if material.data.sizes["seed"] > 1:
        lead += ". The band is the 95 % confidence interval of that mean (bootstrap over runs)"
        if len(material.series) > CROWDED:
            lead += f"; it is drawn if at most {CROWDED} curves are chosen above"
    scale = f"; on the scale {MU} the first and the last are 0 and 1"
    grey = f"{REFERENCE_WORDS}{scale * any(map(material.normalised, standings))}."
    return Section("curves", "Learning curves", [f"{lead}. Failed runs are not drawn.", grey], panels)


def _panel(material: Material, point: Point, ranked: list[Standing], window: int, most: int) -> Panel:
    data, normalised = material.of_plants[point.plant], material.normalised(point)
    runs = ((one, material.runs(point, one, normalised)) for one in material.series)
    curves = series_curves(runs, window, most)
    means = [curve.mean for _, curve in curves]
    low, high = 0.0, 1.0
    if means:
        low, high = min(mean.min() for mean in means), max(mean.max() for mean in means)
        low, high = curve_range(means) if normalised else (float(low), float(high))
    levels = in_reach(material.levels(point), low, high)
    low, high = min(low, *levels.values(), low), max(high, *levels.values(), high)
    room = 0.06 * (high - low) or 0.5
    ends = [float(end) for mean in means for end in (mean.min(), mean.max())]
    digits = decimals([*ends, *levels.values()])
    traces = reference_traces(levels, data.sizes["episode"], digits)
    for one, curve in curves:
        traces += curve_traces(material.places(one), one, curve, digits)
    figure = new_figure(
        traces,
        EPISODE_LABELS[in_rounds(data)],
        MU if normalised else RAW_LABELS[episode_metric(data)],
        yaxis={"range": [low - room, high + room]},
        xaxis={"range": [0, 1.01 * data.sizes["episode"]]},
        hovermode="x",
    )
    title = material.title(point)
    scores = "; ".join(f"{one.series.label} {number(one.score.mean, digits)}" for one in ranked)
    words = f"By final {MU if normalised else 'reward'}, best first: {scores}." if ranked else "All runs failed."
    return Panel(title, f"Learning curves of {title}. {words}", figure, point._asdict())


def curve_traces(meta: Mapping[str, Any], series: Series, curve: Curve, digits: int) -> list[Trace]:
    """Return the band of a series, if there are several runs, and its mean over the centres of its windows."""
    step = float(curve.episode[1] - curve.episode[0]) if len(curve.episode) > 1 else 1.0
    common = {"type": "scatter", "x0": float(curve.episode[0]), "dx": step, "meta": meta}
    found: list[Trace] = []
    if curve.band is not None:
        low, high = curve.band
        edge = {**common, "meta": {**meta, "band": CROWDED}, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        found.append({**edge, "y": small(low)})
        found.append({**edge, "y": small(high), "fill": "tonexty", "fillcolor": faded(series.color)})
    mode, line = "lines" if len(curve.mean) > 2 else "lines+markers", {"color": series.color, "width": 1.8}
    mean = {**common, "y": small(curve.mean), "mode": mode, "line": {**line, "dash": dash(series)}}
    return [*found, {**mean, "name": plain(series.label), "hovertemplate": f"%{{y:.{digits}f}}"}]


def level_trace(name: str, level: float, last: int, line: Mapping[str, Any], **more: Any) -> Trace:
    """Return a level line from 0 to the `last` episode or update."""
    trace = {"type": "scatter", "x": [0, last], "y": [level, level], "mode": "lines", "line": line, "name": plain(name)}
    return {**trace, **(more or {"hoverinfo": "skip"})}


def reference_traces(levels: Mapping[str, float], last: int, digits: int) -> list[Trace]:
    """Return a grey line for each reference."""
    shown = {"hovertemplate": f"%{{y:.{digits}f}}"}
    return [level_trace(LABELS[name], level, last, reference_line(name), **shown) for name, level in levels.items()]
