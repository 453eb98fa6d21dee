"""Final scores: a panel for each condition with every seed as a dot, and a table of all cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replaybench.data.quantities import decimals
from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.figures.style import RAW_LABELS, Series, plant_name
from replaybench.experiments.report.comparison import Lead, Standing
from replaybench.experiments.report.look import (
    INK,
    MU,
    REFERENCE,
    REFERENCE_DASHES,
    REFERENCE_WORDS,
    Panel,
    Row,
    Section,
    Table,
    Trace,
    faded,
    in_reach,
    needed_digits,
    new_figure,
    number,
    plain,
    small,
    symbol,
    worded,
)
from replaybench.experiments.report.material import Material, Point
from replaybench.experiments.results.dataset import counted_in, episode_metric
from replaybench.experiments.results.statistics import RISE_LEVEL


def scores_section(material: Material, standings: dict[Point, list[Standing]]) -> Section:
    """Draw final scores and list them.

    Args:
        standings: the ranking at each condition.
    """
    lead = f"The mean of {material.late} of each run, exploration included."
    if material.data.sizes["seed"] > 1:
        lead += " A dot is a seed, the large mark their mean, the line its 95 % interval."
    lead += f" {REFERENCE_WORDS}."
    there = {point: ranked for point, ranked in standings.items() if ranked}
    spans = _spans(material, there)
    panels = [_panel(material, point, ranked, spans[_unit(material, point)]) for point, ranked in there.items()]
    return Section("scores", "Final scores", [lead], panels, [_table(material, standings)])


def _unit(material: Material, point: Point) -> tuple[int, bool]:
    """Return what panels of one unit share: their plant, and whether scores are on the scale of its references."""
    return point.plant, material.normalised(point)


def _spans(material: Material, standings: dict[Point, list[Standing]]) -> dict[tuple[int, bool], tuple[float, float]]:
    """Return the lowest and the highest score of each unit, so that its panels can be compared by eye."""
    found: dict[tuple[int, bool], tuple[float, float]] = {}
    for point, ranked in standings.items():
        finals = np.concatenate([material.final(point, one.series) for one in ranked])
        unit = _unit(material, point)
        low, high = found.get(unit, (np.inf, 1.0 if material.normalised(point) else -np.inf))
        low, high = min(low, float(np.nanmin(finals))), max(high, float(np.nanmax(finals)))
        levels = in_reach(material.levels(point), low, high).values() if not unit[1] else ()
        found[unit] = min(low, *levels, low), max(high, *levels, high)
    return found


def _panel(material: Material, point: Point, ranked: list[Standing], span: tuple[float, float]) -> Panel:
    data, normalised = material.data.isel(plant=point.plant), material.normalised(point)
    traces: list[Trace] = []
    for standing in reversed(ranked):
        traces += _marks(material, point, standing)
    low, high = span
    room = 0.06 * (high - low) or 0.05
    figure = new_figure(
        traces,
        MU if normalised else RAW_LABELS[episode_metric(data)],
        "",
        height=76 + 30 * len(ranked),
        xaxis={"showgrid": True, "range": [low - room, high + room]},
        yaxis={"type": "category", "showgrid": False},
        shapes=[_upright(level, name) for name, level in in_reach(material.levels(point), *span).items()],
    )
    title = f"{plant_name(material.plants[point.plant])}, {material.condition(point)}"
    told = "; ".join(f"{one.series.label} {worded(one.score)}, {one.seeds} seeds" for one in ranked)
    return Panel(title, f"Final scores of {title}, best first: {told}.", figure, point._asdict())


def _marks(material: Material, point: Point, standing: Standing) -> list[Trace]:
    """Return the dots of a series' seeds, its interval and its mean, in one row that its name stands beside."""
    series, score = standing.series, standing.score
    learner, strategy = material.place(series)
    runs = material.final(point, series)
    runs = runs[np.isfinite(runs)]
    label = plain(series.label)
    places = {"learner": learner, "strategy": strategy}
    common = {"type": "scatter", "meta": places, "name": label, "mode": "markers"}
    dots = {
        **common,
        "meta": {**places, "rows": len(runs)},  # the page's script repeats what stands in `y`
        "x": small(runs),
        "y": [label],
        "hoverinfo": "skip",
        "marker": {"color": faded(series.color, 0.45), "size": 5},
    }
    mean = {
        **common,
        "x": [score.mean],
        "y": [label],
        "marker": {"color": series.color, "size": 10, "symbol": symbol(series)},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [score.high - score.mean],
            "arrayminus": [score.mean - score.low],
            "color": INK,
            "thickness": 1.6,
            "width": 4,
        },
        "hovertemplate": f"{plain(worded(score))}<extra>{label}</extra>",
    }
    return [dots, mean] if len(runs) > 1 else [mean]


def _upright(level: float, name: str) -> dict[str, Any]:
    """Return a grey line at a reference."""
    line = {"color": REFERENCE, "width": 1, "dash": REFERENCE_DASHES[name]}
    return {
        "type": "line",
        "x0": level,
        "x1": level,
        "y0": 0,
        "y1": 1,
        "yref": "y domain",
        "line": line,
        "layer": "below",
    }


def _table(material: Material, standings: dict[Point, list[Standing]]) -> Table:
    """List every cell, the best of each condition first, and how far each is behind it."""
    several = len(material.plants) > 1
    counted = counted_in(material.data.isel(plant=0))
    heads = [
        *(["plant"] if several else []),
        "noise",
        "Hz",
        "learner and strategy" if material.data.sizes["learner"] > 1 else "strategy",
        "seeds",
        "failed",
        "final [95 %]",
        "behind the best, seed by seed [95 %]",
        f"{counted} to {MU} ≥ {RISE_LEVEL:g}",
    ]
    rows = []
    names = shortened(material.plants)
    digits = {plant: _digits(material, standings, plant) for plant in range(len(material.plants))}
    for point, ranked in standings.items():
        best = ranked[0].series if ranked else None
        first = "not above random control" if material.unbeaten(point) else "best"
        by_series = {one.series: one for one in ranked}
        for one in [standing.series for standing in ranked] + [one for one in material.series if one not in by_series]:
            if not material.started(point, one):
                continue
            learner, strategy = material.place(one)
            standing = by_series.get(one)
            cells = [
                *_where(material, point, names if several else {}),
                one.label,
                str(standing.seeds if standing else 0),
                str(material.count("failed", point, one)),
                worded(standing.score, digits[point.plant][0]) if standing else "–",
                first if one is best else _behind(standing.behind if standing else None, digits[point.plant][1]),
                _rise(material, point, one),
            ]
            rows.append(Row(cells, {**point._asdict(), "learner": learner, "strategy": strategy}))
        for reference in material.references(point):
            level = reference.mu if material.normalised(point) else reference.reward
            told = reference.label, "", "", number(level, digits[point.plant][0]), "", ""
            rows.append(Row([*_where(material, point, names if several else {}), *told], point._asdict(), "reference"))
    return Table("All cells, the best of each condition first", heads, rows, 4 if several else 3)


def _where(material: Material, point: Point, plants: Mapping[str, str]) -> list[str]:
    """Return the first cells of a row: the plant's name, where there are several, noise and rate."""
    noise, rate = material.data["noise"].values[point.noise], material.data["frequency"].values[point.frequency]
    return [*([plants[material.plants[point.plant]]] if plants else []), f"{noise:g}", f"{rate:g}"]


def _rise(material: Material, point: Point, series: Series) -> str:
    """Write the mean time to 0.8 and how many runs never come so far, which count with their whole length."""
    mean, never = number(material.value("rise_time_mean", point, series), 0), material.count("censored", point, series)
    return f"{mean} ({never} never)" if never else mean


def _digits(material: Material, standings: dict[Point, list[Standing]], plant: int) -> tuple[int, int]:
    """Return with how many digits scores and references of a plant are written, and all that others are behind."""
    mine = {point: ranked for point, ranked in standings.items() if point.plant == plant}
    leads = [one.behind.difference for ranked in mine.values() for one in ranked if one.behind and one.behind.pairs]
    scores = [needed_digits(one.score) for ranked in mine.values() for one in ranked]
    levels = [
        row.mu if material.normalised(point) else row.reward for point in mine for row in material.references(point)
    ]
    digits = max(decimals(levels), *scores)
    return digits, min(digits + 1, max(map(needed_digits, leads), default=2))


def _behind(lead: Lead | None, digits: int) -> str:
    """Write a difference with as many digits as the others of its column; one that may be chance is marked."""
    if lead is None or not lead.pairs:
        return "–"
    if lead.same:
        return "same scores"
    return f"{worded(lead.difference, digits)}{'' if lead.sure else ' (not sure)'}"
