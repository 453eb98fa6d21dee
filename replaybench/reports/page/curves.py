"""Sections of the report page about learning curves, contents of buffers, and computing time."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from plotly.colors import sample_colorscale

from replaybench.experiments.comparison import reference_label
from replaybench.experiments.dataset import counted_in, episode_metric, in_iterations
from replaybench.reports.figures import curves
from replaybench.reports.figures.style import RAW_LABELS, Series, plant_name
from replaybench.reports.page import theme
from replaybench.reports.page.policies import Kept, of_first_block, share_out
from replaybench.reports.page.report_data import Point, ReportData, Standing
from replaybench.reports.page.summary import amount
from replaybench.reports.page.theme import MU, Panel, Row, Section, Table, Trace, new_figure, number, plain, small
from replaybench.runtime.quantities import decimals, duration

_MOST_POINTS: Final = 160
_NUMBERS: Final = 100_000
"""Approximate limit of the amount of numbers in the curves of a page. With very many curves, each has fewer points."""


def curves_section(report: ReportData) -> Section:
    """Return the section with the learning curves of every plant, noise level and control rate."""
    standings = report.standings
    window = curves.smoothing_window(report.data.sizes["episode"])
    count = sum(report.started(point, one) > 0 for point in standings for one in report.series)
    points = max(30, min(_MOST_POINTS, _NUMBERS // (3 * max(1, count))))
    panels = [_panel(report, point, ranked, window, points) for point, ranked in standings.items()]
    lead = "Training episodes, exploration included: the mean over runs"
    lead += f", averaged over {window} {counted_in(report.of_plants[0])}" if window > 1 else ""
    if report.data.sizes["seed"] > 1:
        lead += ". The band is the 95 % confidence interval of that mean (bootstrap over runs)"
        if len(report.series) > curves.CROWDED:
            lead += f"; it is drawn if at most {curves.CROWDED} curves are chosen above"
    scale = f"; on the scale {MU} the first and the last are 0 and 1"
    grey = f"{theme.REFERENCE_WORDS}{scale * any(map(report.normalised, standings))}."
    return Section("curves", "Learning curves", [f"{lead}. Failed runs are not drawn.", grey], panels)


def _panel(report: ReportData, point: Point, ranked: list[Standing], window: int, most: int) -> Panel:
    data, normalised = report.of_plants[point.plant], report.normalised(point)
    runs = ((one, report.runs(point, one)) for one in report.series)
    drawn = curves.series_curves(runs, window, most)
    means = [curve.mean for _, curve in drawn]
    low, high = 0.0, 1.0
    if means:
        low, high = min(mean.min() for mean in means), max(mean.max() for mean in means)
        low, high = curves.curve_range(means) if normalised else (float(low), float(high))
    levels = theme.in_reach(report.levels(point), low, high)
    low, high = min(low, *levels.values(), low), max(high, *levels.values(), high)
    room = 0.06 * (high - low) or 0.5
    ends = [float(end) for mean in means for end in (mean.min(), mean.max())]
    digits = decimals([*ends, *levels.values()])
    traces = reference_traces(levels, data.sizes["episode"], digits)
    for one, curve in drawn:
        traces += curve_traces(report.places(one), one, curve, digits)
    figure = new_figure(
        traces,
        curves.EPISODE_LABELS[in_iterations(data)],
        MU if normalised else RAW_LABELS[episode_metric(data)],
        yaxis={"range": [low - room, high + room]},
        xaxis={"range": [0, 1.01 * data.sizes["episode"]]},
        hovermode="x",
    )
    title = report.title(point)
    scores = "; ".join(f"{one.series.label} {number(one.score.mean, digits)}" for one in ranked)
    words = f"By final {MU if normalised else 'reward'}, best first: {scores}." if ranked else "All runs failed."
    return Panel(title, f"Learning curves of {title}. {words}", figure, point._asdict())


def curve_traces(meta: Mapping[str, Any], series: Series, curve: curves.Curve, digits: int) -> list[Trace]:
    """Return the Plotly traces of a learning curve and, for several runs, of its 95 % band.

    Args:
        meta: Index of the curve on each axis of the study, such as that of its learner, for the filters of the page.
        digits: Number of decimals in the text that appears when the pointer is over the curve.
    """
    step = float(curve.episode[1] - curve.episode[0]) if len(curve.episode) > 1 else 1.0
    common = {"type": "scatter", "x0": float(curve.episode[0]), "dx": step, "meta": meta}
    band: list[Trace] = []
    if curve.band is not None:
        low, high = curve.band
        marked = {**meta, "band": curves.CROWDED}
        edge = {**common, "meta": marked, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        band.append({**edge, "y": small(low)})
        band.append({**edge, "y": small(high), "fill": "tonexty", "fillcolor": theme.faded(series.color)})
    mode, line = "lines" if len(curve.mean) > 2 else "lines+markers", {"color": series.color, "width": 1.8}
    mean = {**common, "y": small(curve.mean), "mode": mode, "line": {**line, "dash": theme.dash(series)}}
    return [*band, {**mean, "name": plain(series.label), "hovertemplate": f"%{{y:.{digits}f}}"}]


def level_trace(name: str, level: float, last: int, line: Mapping[str, Any], **more: Any) -> Trace:
    """Return the Plotly trace of a horizontal line from x = 0 to x = `last`, the last episode or update."""
    trace = {"type": "scatter", "x": [0, last], "y": [level, level], "mode": "lines", "line": line, "name": plain(name)}
    return {**trace, **(more or {"hoverinfo": "skip"})}


def reference_traces(levels: Mapping[str, float], last: int, digits: int) -> list[Trace]:
    """Return the Plotly trace of a grey line for each reference controller."""
    shown = {"hovertemplate": f"%{{y:.{digits}f}}"}
    return [
        level_trace(reference_label(name), level, last, theme.reference_line(name), **shown)
        for name, level in levels.items()
    ]


MOST_PANELS: Final = 40
_TENTHS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "last")
_TITLE: Final = "Contents of buffers"


def buffers_section(report: ReportData, kept: Sequence[Kept]) -> Section:
    """Return the section that shows how the contents of the replay buffers change during the runs."""
    if not kept:
        return Section("buffers", _TITLE, [])
    lead = (
        "Share of the stored experiences that was collected in each tenth of the run: dark for the first, bright for "
        "the last. The picture of a buffer that evicts the oldest experiences becomes bright; that of a buffer that "
        f"keeps everything has equal layers. All seeds of a cell together{of_first_block(report)}."
    )
    shown = share_out(kept, MOST_PANELS)
    notes = ["Pictures are of the first cells of each plant; the table lists all."] if len(shown) < len(kept) else []
    panels = [_buffer_panel(report, one) for one in shown]
    return Section("buffers", _TITLE, [lead], panels, [_buffer_table(report, kept)], notes=notes)


def _buffer_panel(report: ReportData, kept: Kept) -> Panel:
    total = np.maximum(kept.origin.sum(axis=1), 1)
    colors = sample_colorscale("Viridis", list(np.linspace(0.0, 1.0, len(_TENTHS))), colortype="rgb")
    common = {"type": "scatter", "x": kept.rounds, "mode": "lines", "stackgroup": "all", "hovertemplate": "%{y:.0f} %"}
    traces = []
    for name, color, stored in zip(_TENTHS, colors, 100 * kept.origin.T / total, strict=True):
        layer = {"y": small(stored), "line": {"width": 0.4, "color": color}, "fillcolor": color}
        traces.append(common | layer | {"name": f"{name} tenth"})
    figure = new_figure(
        traces,
        curves.EPISODE_LABELS[in_iterations(report.of_plants[kept.point.plant])],
        "share of the buffer [%]",
        height=230,
        hovermode="x unified",
        xaxis={"range": [kept.rounds[0], kept.rounds[-1]], "color": theme.INK},
        yaxis={"range": [0, 100]},
    )
    title, last, collected = report.title(kept.point, kept.series), kept.origin[-1], kept.collected.sum()
    stored = int(last.sum())
    early, late = 100 * np.array([last[:5].sum(), last[5:].sum()]) / max(1, stored)
    words = (
        f"Contents of the buffers of {title}. At the end {stored:,} of {collected:,} collected experiences were "
        f"stored, {early:.0f} % from the first half of the run and {late:.0f} % from the second."
    )
    return Panel(title, words, figure, report.places(kept.series, kept.point))


def _buffer_table(report: ReportData, kept: Sequence[Kept]) -> Table:
    rows = []
    for one in kept:
        last, stored = one.origin[-1], int(one.origin[-1].sum())
        cells = [
            report.title(one.point),
            one.series.label,
            f"{stored:,}",
            f"{100 * stored / max(1, int(one.collected.sum())):.3g} %",
            f"{100 * last[0] / max(1, stored):.0f} %",
            f"{100 * last[-1] / max(1, stored):.0f} %",
            number(float(one.exploration[0]), 3),
            number(float(one.exploration[-1]), 3),
        ]
        rows.append(Row(cells, report.places(one.series, one.point)))
    heads = (
        "condition", "learner and strategy", "stored at the end", "of those collected", "from the first tenth",
        "from the last tenth", "mean exploration at first", "at the end",
    )  # fmt: skip
    counted = counted_in(report.of_plants[0])[:-1]
    return Table(f"Stored experiences after {counted} {kept[0].rounds[0]:,} and at the end", heads, rows, 2)


class Cost(NamedTuple):
    """The computing time and memory of one learner with a strategy under one condition, over all seeds."""

    seconds: float  # sum over all processes
    rate: float  # steps of the plant per second, over all members and training episodes; 0 if unknown
    memory: float  # largest memory of a process [B]; NaN if unknown
    processor: str


Costs = dict[tuple[Point, Series], Cost]


def resources_section(report: ReportData) -> Section:
    """Return the section about the computing time and memory of the runs."""
    costs = _costs(report)
    if not costs:
        return Section("resources", "Resources", [])
    seconds = [cost.seconds for cost in costs.values()]
    processors = dict.fromkeys(cost.processor for cost in costs.values() if cost.processor)
    where = f", on {' and '.join(processors)}" if 0 < len(processors) < 4 else ""
    lead = f"{amount(len(costs), 'cell')} took {duration(sum(seconds))} of computing in all{where}."
    lead += f" The longest took {duration(max(seconds))}"
    memory = [cost.memory for cost in costs.values() if np.isfinite(cost.memory)]
    lead += f"; the largest process had {max(memory) / 1e6:,.0f} MB of memory." if memory else "."
    lead += " A dot is a cell: one series in one condition, all of its seeds together."
    panels = [_cost_panel(report, plant, costs) for plant in sorted({point.plant for point, _ in costs})]
    return Section("resources", "Resources", [lead], panels, [_cost_table(report, costs)])


def _costs(report: ReportData) -> Costs:
    data = report.data
    # Several episodes may end in an iteration; results hold only their mean length, so steps cannot be counted.
    counted = [not in_iterations(one) for one in report.of_plants]
    costs = {}
    for point, series in itertools.product(report.points, report.series):
        here = data.isel(report.places(series, point))
        seconds = float(here["seconds"].sum())
        if seconds > 0:
            steps = float(here["episode_steps"].sum()) if counted[point.plant] else 0.0
            memory = float(here["memory"].max())
            names = dict.fromkeys(map(str, here["processor"].values))
            costs[point, series] = Cost(seconds, steps / seconds, memory, ", ".join(filter(None, names)))
    return costs


def _cost_panel(report: ReportData, plant: int, costs: Costs) -> Panel:
    costs = {key: cost for key, cost in costs.items() if key[0].plant == plant}
    means = {
        one.label: float(np.mean(own))
        for one in report.series
        if (own := [cost.seconds for (_, series), cost in costs.items() if series == one])
    }
    order = list(means)
    traces = []
    for (point, series), cost in sorted(costs.items(), key=lambda pair: order.index(pair[0][1].label)):
        rate, name = f", {cost.rate:,.0f} steps/s" if cost.rate else "", plain(series.label)
        dot: Trace = {"type": "scatter", "mode": "markers", "x": [cost.seconds], "y": [name], "name": name}
        dot["marker"] = {"color": series.color, "size": 9, "symbol": theme.symbol(series), "opacity": 0.8}
        dot["hovertemplate"] = f"{report.condition(point)}: {duration(cost.seconds)}{rate}<extra></extra>"
        traces.append(dot | {"meta": report.places(series, point)})
    names = {"categoryorder": "array", "categoryarray": [plain(name) for name in reversed(order)]}
    figure = new_figure(
        traces, "seconds of a cell", "", height=76 + 26 * len(order),
        xaxis={"showgrid": True, "range": [0, 1.08 * max(cost.seconds for cost in costs.values())]},
        yaxis={"type": "category", "showgrid": True, **names},
    )  # fmt: skip
    title = plant_name(report.plants[plant])
    words = "; ".join(f"{name} {number(mean, 1)}" for name, mean in means.items())
    return Panel(title, f"Mean seconds of a cell on {title}: {words}.", figure, {"plant": plant})


def _cost_table(report: ReportData, costs: Costs) -> Table:
    rows = []
    for (point, series), cost in costs.items():
        cells = [
            plant_name(report.plants[point.plant]),
            series.label,
            *report.numbers(point),
            str(report.started(point, series)),
            f"{cost.seconds:,.1f}",
            f"{cost.rate:,.0f}" if cost.rate else "–",
            f"{cost.memory / 1e6:,.0f}" if np.isfinite(cost.memory) else "–",
        ]
        rows.append(Row(cells, report.places(series, point)))
    heads = ("plant", "learner and strategy", "noise", "Hz", "seeds", "seconds", "steps per second", "memory [MB]")
    return Table("Seconds and memory of all cells", heads, rows, 2)
