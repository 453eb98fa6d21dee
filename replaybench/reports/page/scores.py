"""Sections of the report page about final scores, by condition, over noise and control rate, and by strategy."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.envs.registry import without_delay
from replaybench.experiments.comparison import Comparison, baseline_label, rival_measures
from replaybench.experiments.dataset import counted_in, episode_metric
from replaybench.experiments.statistics import RISE_LEVEL, Interval
from replaybench.reports.figures.style import RAW_LABELS, Series, luminance, plant_name
from replaybench.reports.page import theme
from replaybench.reports.page.report_data import Point, ReportData, Standing, interval_of
from replaybench.reports.page.theme import MU, Panel, Row, Section, Table, Trace, number, plain, worded
from replaybench.runtime.quantities import decimals
from replaybench.runtime.user_file import shortened


def scores_section(report: ReportData) -> Section:
    """Return the section with the final scores at each noise level and control rate, as figures and as a table."""
    lead = f"The mean of {report.late} of each run, exploration included."
    if report.data.sizes["seed"] > 1:
        lead += " A dot is a seed, the large mark their mean, the line its 95 % interval."
    scored = {point: ranked for point, ranked in report.standings.items() if ranked}
    spans: dict[tuple[int, bool], tuple[float, float]] = {}  # panels of a plant and unit share the range of their axis
    for point, ranked in scored.items():
        finals = np.concatenate([report.final(point, one.series) for one in ranked])
        unit = point.plant, report.normalised(point)
        low, high = spans.get(unit, (np.inf, 1.0 if unit[1] else -np.inf))
        low, high = min(low, float(np.nanmin(finals))), max(high, float(np.nanmax(finals)))
        levels = theme.in_reach(report.levels(point), low, high).values() if not unit[1] else ()
        spans[unit] = min(low, *levels, low), max(high, *levels, high)
    panels = [
        _panel(report, point, ranked, spans[point.plant, report.normalised(point)]) for point, ranked in scored.items()
    ]
    return Section(
        "scores", "Final scores", [f"{lead} {theme.REFERENCE_WORDS}."], panels, [_table(report), *_measures(report)]
    )


def _panel(report: ReportData, point: Point, ranked: list[Standing], span: tuple[float, float]) -> Panel:
    metric = RAW_LABELS[episode_metric(report.of_plants[point.plant])]
    traces = [trace for one in reversed(ranked) for trace in _marks(report, point, one)]
    low, high = span
    room = 0.06 * (high - low) or 0.05
    vertical = {"type": "line", "y0": 0, "y1": 1, "yref": "y domain", "layer": "below"}
    lines = [
        {**vertical, "x0": level, "x1": level, "line": theme.reference_line(name)}
        for name, level in theme.in_reach(report.levels(point), *span).items()
    ]
    figure = theme.new_figure(
        traces, MU if report.normalised(point) else metric, "", height=76 + 30 * len(ranked), shapes=lines,
        xaxis={"showgrid": True, "range": [low - room, high + room]}, yaxis={"type": "category", "showgrid": False},
    )  # fmt: skip
    title = report.title(point)
    words = "; ".join(f"{one.series.label} {worded(one.score)}, {one.seeds} seeds" for one in ranked)
    return Panel(title, f"Final scores of {title}, best first: {words}.", figure, point._asdict())


def _marks(report: ReportData, point: Point, standing: Standing) -> list[Trace]:
    """Return the traces of one series (learner with a strategy), a dot for each seed, and a mean with its interval."""
    series, score = standing.series, standing.score
    runs = report.final(point, series)
    runs = runs[np.isfinite(runs)]
    label, places = plain(series.label), report.places(series)
    common: Trace = {"type": "scatter", "meta": places, "name": label, "mode": "markers"}
    common["y"] = [label]  # the page's script repeats it for each seed (`rows`)
    dots = {**common, "x": theme.small(runs), "hoverinfo": "skip"}
    dots |= {
        "meta": {**places, "rows": len(runs)},
        "marker": {"color": theme.faded(series.color, theme.DOTS), "size": 5},
    }
    error: dict[str, Any] = {"type": "data", "symmetric": False, "color": theme.INK, "thickness": 1.6, "width": 4}
    error |= {"array": [score.high - score.mean], "arrayminus": [score.mean - score.low]}
    marker = {"color": series.color, "size": 10, "symbol": theme.symbol(series)}
    hover = f"{plain(worded(score))}<extra>{label}</extra>"
    mean = {**common, "x": [score.mean], "marker": marker, "error_x": error, "hovertemplate": hover}
    return [dots, mean] if len(runs) > 1 else [mean]


def _table(report: ReportData) -> Table:
    """Return a table of all learners and strategies at all noise levels and rates, and differences from a baseline."""
    several = len(report.plants) > 1
    heads = [
        *(["plant"] if several else []),
        "noise",
        "Hz",
        "learner and strategy" if report.data.sizes["learner"] > 1 else "strategy",
        "seeds",
        "failed",
        "final [95 %]",
        f"− {_baselines(report)}, seed by seed [95 %]",
        f"{counted_in(report.of_plants[0])} to {MU} ≥ {RISE_LEVEL:g}",
        *report.replayed,
    ]
    rows = []
    names = shortened(report.plants)
    digits = [_digits(report, plant) for plant in range(len(report.plants))]
    for point, ranked in report.standings.items():
        score_digits, lead_digits = digits[point.plant]
        where = [*([names[report.plants[point.plant]]] if several else []), *report.numbers(point)]
        scored = {one.series: one for one in ranked}
        for one in dict.fromkeys([*scored, *report.series]):
            if not report.started(point, one):
                continue
            standing = scored.get(one)
            score = worded(standing.score, score_digits) if standing else "–"
            if report.unbeaten(point) and ranked and one is ranked[0].series:
                score += " (not above random control)"
            never = report.count("censored", point, one)  # runs that do not reach 0.8 count with their full length
            cells = [
                *where,
                one.label,
                str(standing.seeds if standing else 0),
                str(report.count("failed", point, one)),
                score,
                _difference(standing.versus if standing else None, lead_digits),
                number(report.value("rise_time_mean", point, one), 0) + (f" ({never} never)" if never else ""),
                *(number(report.value(name, point, one), 2) for name in report.replayed),
            ]
            rows.append(Row(cells, report.places(one, point)))
        for reference in report.references(point):
            level = number(reference.mu if report.normalised(point) else reference.reward, score_digits)
            rows.append(
                Row(
                    [*where, reference.label, "", "", level, "", "", *([""] * len(report.replayed))],
                    point._asdict(),
                    "reference",
                )
            )
    return Table("All cells, the best of each condition first", heads, rows, 4 if several else 3)


def _measures(report: ReportData) -> list[Table]:
    """Return a table of the measures of signals and responses, or no table if the results have none."""
    if "measures" not in report.data:
        return []
    known = report.data[["measures", "measures_greedy"]].to_array().notnull()
    names = [name for name in report.data["measure"].values.tolist() if known.sel(measure=name).any()]
    rows = []
    for point in report.points:
        there = report.data.isel(point._asdict())
        where = [plant_name(report.plants[point.plant]), *report.numbers(point)]
        for one in report.series:
            for episodes, variable in (("training", "measures"), ("greedy", "measures_greedy")):
                if report.started(point, one):
                    means = there.sel(one.where)[variable].sel(measure=names).mean("seed").values
                    cells = [*where, one.label, episodes, *(number(mean, 3) for mean in means)]
                    rows.append(Row(cells, report.places(one, point)))
        for label, values in rival_measures(there, names):
            cells = [*where, label, "", *(number(value, 3) for value in values)]
            rows.append(Row(cells, point._asdict(), "reference"))
    heads = ("plant", "noise", "Hz", "series", "episodes", *names)
    legend = f"Signals and responses, mean of {report.late}"
    return [Table(legend, heads, rows, 5)] if names and rows else []


def _baselines(report: ReportData) -> str:
    known = [baseline_label(*found[1:]) for found in report.comparisons if found]
    return " or ".join(dict.fromkeys(known)) or "baseline"


def _difference(row: Comparison | None, digits: int) -> str:
    """Return a difference from the baseline with its interval and verdict, as text."""
    if row is None or row.effect is None:
        return "–"
    if row.same:
        return "same scores"
    unclear = "" if row.sign else " (not significant)"
    return f"{worded(interval_of(row.effect), digits)}{unclear}"


def _digits(report: ReportData, plant: int) -> tuple[int, int]:
    """Return the number of decimals for a plant's scores, and for the differences from the baseline."""
    standings = {point: ranked for point, ranked in report.standings.items() if point.plant == plant}
    every = [one for ranked in standings.values() for one in ranked]
    leads = [interval_of(one.versus.effect) for one in every if one.versus and one.versus.effect]
    scores = [theme.needed_digits(one.score) for one in every]
    digits = max([decimals(level for point in standings for level in report.levels(point).values()), *scores])
    return digits, min(digits + 1, max(map(theme.needed_digits, leads), default=2))


_MIDDLE: Final = 0.179
"""Luminance on which black and white text have equal contrast."""
_COLORS: Final = "Cividis"  # perceptually uniform, also for colour-blind readers


class Square(NamedTuple):
    """A square in a grid, coloured by a score.

    Attributes:
        across: Column, from the left.
        up: Row, from below.
        meta: Index of the square on each axis of the study, such as that of its strategy, for the filters of the page.
    """

    across: int
    up: int
    score: Interval
    label: str
    meta: Mapping[str, int]


def _same_colours(report: ReportData) -> str:
    """Return a sentence that states which squares of the page share a colour scale."""
    scales = {report.normalised(point) for point in report.points}
    named = [f"all squares of this page that show {MU}, from 0 (random control) to 1 (dynamic programming)"]
    named = named * (True in scales) + ["all that show rewards of one plant"] * (False in scales)
    return f"Lighter is better. A colour means the same in {', and in '.join(named)}."


def _colour_span(report: ReportData, points: Sequence[Point], normalised: bool) -> tuple[float, float]:
    """Return the ends of the colour scale, 0 and 1 for normalised scores, else the range of mean final rewards."""
    if normalised:
        return 0.0, 1.0
    means = [report.mean_final(point, one, False).mean for point in points for one in report.series]
    known = [mean for mean in means if np.isfinite(mean)]
    return (min(known), max(known)) if known else (0.0, 1.0)


def _square_panel(
    title: str, words: str, squares: Sequence[Square], labels: tuple[Sequence[str], Sequence[str]],
    axes: tuple[str, str], span: tuple[float, float], places: Mapping[str, int],
) -> Panel:  # fmt: skip
    """Return a panel of squares, with `labels` for the columns from the left and for the rows from below."""
    low, high = span[0], span[1] if span[1] > span[0] else span[0] + 1
    digits = decimals(one.score.mean for one in squares)
    common: Trace = {"type": "heatmap", "colorscale": _COLORS, "showscale": False, "zmin": low, "zmax": high}
    common |= {"dx": 1, "dy": 1, "xgap": 2, "ygap": 2, "texttemplate": "%{text}"}
    traces = []
    for one in squares:
        shade = float(np.clip((one.score.mean - low) / (high - low), 0.0, 1.0))
        (color,) = sample_colorscale(_COLORS, [shade], colortype="tuple")
        ink = "#000000" if luminance(color) > _MIDDLE else "#ffffff"
        hover = f"{plain(f'{one.label}: {worded(one.score)}')}<extra></extra>"
        square = {"x0": one.across, "y0": one.up, "z": [[one.score.mean]], "text": [[number(one.score.mean, digits)]]}
        square |= {"textfont": {"color": ink}, "hovertemplate": hover, "meta": dict(one.meta)}
        traces.append(common | square)
    across, up = map(_labelled, labels)
    figure = theme.new_figure(traces, *axes, height=96 + 42 * len(labels[1]), xaxis=across, yaxis=up)
    scores = "; ".join(f"{one.label}: {number(one.score.mean)}" for one in squares)
    return Panel(title, f"{words} {scores}.", figure, places)


def _labelled(labels: Sequence[str]) -> dict[str, Any]:
    ticks = {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": [plain(one) for one in labels]}
    return {"showgrid": False, "showline": False, "range": [-0.5, len(labels) - 0.5], **ticks}


def responses_section(report: ReportData) -> Section:
    """Return the section about scores over noise, control rate and delay, for plants with several of these."""
    panels: list[Panel] = []
    notes = []
    for plant, name in enumerate(report.plants):
        points = [point for point in report.points if point.plant == plant]
        if len(points) < 2:
            continue
        normalised = all(report.normalised(point) for point in points)
        panels += _panels(report, plant_name(name), {"plant": plant}, points, _RATES)
        if not normalised:
            raw = RAW_LABELS[episode_metric(report.of_plants[plant])]
            notes.append(f"{plant_name(name)}: {MU} is not defined in every condition, so squares show the {raw}.")
    delayed: dict[tuple[str, int], list[Point]] = {}
    for point in report.points:
        delayed.setdefault((without_delay(report.plants[point.plant])[0], point.frequency), []).append(point)
    for (bare, rate), points in delayed.items():
        if len({point.plant for point in points}) > 1:
            title = f"{plant_name(bare)}, {report.data['frequency'].values[rate]:g} Hz"
            panels += _panels(report, title, {"frequency": rate}, points, _DELAYS)
    lead = f"Mean final score, of {report.late}, at each noise level, control rate and delay. {_same_colours(report)}"
    return Section("responses", "Response to noise, rate and delay", [lead], panels, notes=notes)


class _Across(NamedTuple):
    """The horizontal axis of maps of scores. Their vertical axis is the noise."""

    name: str
    title: str
    value: Callable[[ReportData, Point], float]


_RATES: Final = _Across(
    "control rate", "control rate [Hz]", lambda report, point: float(report.data["frequency"].values[point.frequency])
)
_DELAYS: Final = _Across(
    "delay", "delay [ms]", lambda report, point: 1e3 * (without_delay(report.plants[point.plant])[1] or 0.0)
)


def _panels(
    report: ReportData, name: str, own: Mapping[str, int], points: Sequence[Point], across: _Across
) -> list[Panel]:
    """Return a map of scores for each learner and strategy.

    `name` is the first part of their titles, and `own` has their places on the axes of the study.
    """
    normalised = all(report.normalised(point) for point in points)
    span = _colour_span(report, points, normalised)
    noise, values = sorted({point.noise for point in points}), {point: across.value(report, point) for point in points}
    columns = sorted(set(values.values()))
    labels = [f"{value:g}" for value in columns], [f"{level:g}" for level in report.data["noise"].values[noise]]
    label = report.condition if len({point.plant for point in points}) == 1 else report.title
    panels = []
    for series in report.series:
        squares = []
        for point in points:
            score = report.mean_final(point, series, normalised)
            if np.isfinite(score.mean):
                place = columns.index(values[point]), noise.index(point.noise)
                squares.append(Square(*place, score, label(point), point._asdict()))
        if len(squares) > 1:
            title = f"{name}, {series.label}"
            words = f"Final {MU if normalised else 'reward'} of {title}, by noise and {across.name}."
            places, axes = {**own, **report.places(series)}, (across.title, "noise")
            panels.append(_square_panel(title, words, squares, labels, axes, span, places))
    return panels


def strategies_section(report: ReportData) -> Section:
    """Return the section with final scores by retention and sampling, for each noise, control rate and learner.

    Conditions are left out if no two retentions and two samplings were run in all four combinations.
    """
    panels = []
    for point, ranked in report.standings.items():
        for learner in dict.fromkeys(one.learner for one in report.series):
            own = [one for one in ranked if one.series.learner == learner and parts(one.series) is not None]
            if crossed([one.series for one in own]):
                panels.append(_strategy_panel(report, point, own))
    lead = f"Mean final scores by retention (vertical) and sampling (horizontal). {_same_colours(report)}"
    return Section("strategies", "Retention × sampling", [lead], panels)


def crossed(series: Sequence[Series]) -> bool:
    """Return whether two retentions and two samplings were run in all four combinations."""
    samplings: dict[str, set[str]] = {}
    for names in filter(None, map(parts, series)):
        samplings.setdefault(names[0], set()).add(names[1])
    return any(len(one & other) > 1 for one, other in itertools.combinations(samplings.values(), 2))


def parts(series: Series) -> tuple[str, str] | None:
    """Return the retention and the sampling of a strategy, or None if its name is not `Retention[Sampling]`."""
    retention, bracket, sampling = series.strategy.partition("[")
    return (retention, sampling[:-1]) if bracket and sampling.endswith("]") else None


def _strategy_panel(report: ReportData, point: Point, ranked: list[Standing]) -> Panel:
    scored = {one.series: one for one in ranked}
    named = [names for one in report.series if one in scored and (names := parts(one))]  # in the order of the study
    retentions, samplings = (list(dict.fromkeys(names[part] for names in named)) for part in (0, 1))
    squares = []
    for one in ranked:
        retention, sampling = parts(one.series) or ("", "")
        place = samplings.index(sampling), len(retentions) - 1 - retentions.index(retention)
        meta = {"strategy": report.places(one.series)["strategy"]}
        squares.append(Square(*place, one.score, one.series.strategy, meta))
    title = report.title(point)
    if report.data.sizes["learner"] > 1:
        title = f"{title}, {ranked[0].series.learner}"
    words = f"Final {MU if report.normalised(point) else 'reward'} by retention and sampling, {title}, best first:"
    points = [each for each in report.points if each.plant == point.plant]
    span = _colour_span(report, points, report.normalised(point))
    places = {**point._asdict(), "learner": report.places(ranked[0].series)["learner"]}
    return _square_panel(title, words, squares, (samplings, retentions[::-1]), ("sampling", "retention"), span, places)
