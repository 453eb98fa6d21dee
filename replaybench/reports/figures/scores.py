"""Figures of final scores, and of their response to noise and control rate.

Scores are μ_r. Raw rewards are drawn where μ_r is not defined.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from replaybench.experiments.comparison import final_rewards, no_learning, reference_rows, scaled
from replaybench.experiments.dataset import counted_in, episode_metric, runs_there, the_last
from replaybench.experiments.statistics import DEAD_LEVEL, RISE_LEVEL, Interval, interval
from replaybench.reports.figures import style
from replaybench.reports.figures.curves import REFERENCE_LINE, merge_levels
from replaybench.reports.figures.style import GREY, MU, Series
from replaybench.runtime.arrays import Bools, Floats

_LETTER_INCHES: Final = 0.058
"""Mean width of a letter in labels of reference controllers, whose size is 7 points."""
_LINE_POINTS: Final = 9
"""Height of a row of these labels [points]."""


class Score(NamedTuple):
    """One score of a learner with a strategy, at all noise levels and control rates of a plant.

    Attributes:
        runs: Score of each run; shape `[noise, frequency, seed]`.
        mean: Mean over runs; shape `[noise, frequency]`.
        low: Lower end of the mean's 95 % interval; shape `[noise, frequency]`.
        high: Upper end of the mean's 95 % interval; shape `[noise, frequency]`.
    """

    runs: Floats
    mean: Floats
    low: Floats
    high: Floats

    def at(self, noise: int, frequency: int) -> Interval:
        """Return the mean and its interval for one noise level and control rate, given by their indices."""
        mean, low, high = (float(part[noise, frequency]) for part in self[1:])
        return Interval(mean, low, high, degenerate=low == high)


def read_score(data: xr.Dataset, series: Series, name: str) -> Score:
    """Read one score of a learner with a strategy from the results of one plant.

    The `name` is "mu_final" (mean of the last episodes), "mu_max" (best episode), "rise_time" (episodes until μ_r ≥
    0.8) or "raw_final" (mean reward of the last episodes). The first two are in μ_r.
    """
    here = data.sel(series.where)
    if name != "raw_final":
        parts = [here[name + bound].transpose("noise", "frequency", ...) for bound in ("", "_mean", "_low", "_high")]
        return Score(*(part.values for part in parts))
    runs = final_rewards(here).transpose("noise", "frequency", "seed").values
    intervals = [interval(runs[place]) for place in np.ndindex(runs.shape[:-1])]
    bounds = np.array([(one.mean, one.low, one.high) for one in intervals]).T.reshape(3, *runs.shape[:-1])
    return Score(runs, *bounds)


def has_results(data: xr.Dataset) -> Bools:
    """Return a mask `[noise, frequency]` of the noise levels and control rates at which one plant has runs."""
    run = runs_there(data).any(["learner", "strategy", "seed"])
    mask: Bools = run.transpose("noise", "frequency").values
    return mask


def score_dots(data: xr.Dataset) -> Figure:
    """Draw the scores of one plant, with a row for each learner with a strategy.

    A row shows the runs as dots, and their mean with its interval. Each score has a panel. With several noise levels or
    control rates, each score has a row of panels, and each combination of them has a column.
    """
    series, usable = style.all_series(data), scaled(data).transpose("noise", "frequency").values
    places = [tuple(place) for place in np.argwhere(has_results(data)).tolist()]
    final, count = the_last(data).removeprefix("the "), counted_in(data)
    measures = {
        "mu_final": f"{MU}, {final}",
        "mu_max": f"{MU}, best of all {count}",
        "rise_time": f"{count} to {MU} ≥ {RISE_LEVEL:g}",
        "raw_final": f"{'return' if episode_metric(data) == 'return' else 'raw reward'}, {final}",
    }
    normalised = [usable[place] for place in places]
    rows = (["mu_final", "mu_max", "rise_time"] if any(normalised) else []) + ([] if all(normalised) else ["raw_final"])
    shape = (len(rows), len(places)) if len(places) > 1 else (1, len(rows))
    width = min(2.6, max(1.3, 11 / shape[1])) * shape[1] + 0.3 + 0.062 * max(len(one.label) for one in series)
    size = max(3.6, width), (0.65 + 0.19 * len(series)) * shape[0]
    figure, panels = style.new_panels(data, "scores", _caption(data, rows), size, shape, sharey=True)
    panels = panels if len(places) > 1 else panels.T
    for (row, column), axes in np.ndenumerate(panels):
        place, name = places[column], rows[row]
        here = data.isel(noise=place[0], frequency=place[1])
        for y, one in enumerate(series):
            score = read_score(data, one, name)
            _draw_row(axes, one, y, score.runs[place], score.at(*place))
            counts = _counts(here.sel(one.where), name)
            axes.text(1.01, y, counts, transform=axes.get_yaxis_transform(), va="center", size=7, color="0.2")
        if name != "raw_final" and not usable[place]:
            axes.text(0.5, 0.5, f"no {MU}", transform=axes.transAxes, ha="center", color=GREY)
        axes.set_xlabel(measures[name])
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
    inches = (figure.get_size_inches()[0] - 0.3 - 0.062 * max(len(one.label) for one in series)) / shape[1]
    stacked = []
    for name, across in zip(rows, panels, strict=True):
        _share_range(across.tolist(), name == "rise_time")
        stacked.append(1)
        for axes, place in zip(across, places, strict=True):
            if name == "rise_time" or (name != "raw_final") != usable[place]:
                continue
            known = reference_rows(data.isel(noise=place[0], frequency=place[1]))
            levels = {row.name: row.mu if name != "raw_final" else row.reward for row in known}
            used = _draw_levels(axes, levels if name != "mu_max" else {"reference_dp": 1.0}, inches)
            stacked[-1] = max(stacked[-1], used)
    for axes, place in zip(panels[0], places * (len(places) > 1), strict=False):
        here = data.isel(noise=place[0], frequency=place[1])
        title = style.condition(here["noise"].item(), here["frequency"].item())
        axes.set_title(title, color=GREY, size=8, pad=7 + _LINE_POINTS * stacked[0])
    heights = stacked if len(places) > 1 else [max(stacked)]  # a single place has its panels in one row
    wide, high = figure.get_size_inches()
    figure.set_size_inches(wide, high + _LINE_POINTS / 72 * (sum(heights) - len(heights)))
    panels[0, 0].set_ylim(len(series) - 0.5, -0.5)
    panels[0, 0].set_yticks(range(len(series)), [one.label for one in series])
    return figure


def _draw_row(axes: Axes, series: Series, y: float, runs: Floats, score: Interval) -> None:
    """Draw the runs of one learner with a strategy as dots, with their mean and interval, at height `y`."""
    if not np.isfinite(score.mean):  # not run yet, or all runs failed
        axes.text(0.5, y, "–", transform=axes.get_yaxis_transform(), va="center", ha="center", color=GREY)
        return
    runs = runs[np.isfinite(runs)]
    if len(runs) > 1:
        aside = 0.6 * (np.arange(1, len(runs) + 1) * 0.6180339887 % 1 - 0.5)
        axes.scatter(runs, y + aside, s=5, color=series.color, alpha=0.35, linewidths=0, zorder=2)
    if score.high > score.low:
        axes.plot([score.low, score.high], [y, y], color=series.color, linewidth=2.0, zorder=3)
    mark: dict[str, Any] = {"marker": series.marker, "markersize": 5.5, "markerfacecolor": series.face}
    axes.plot(score.mean, y, color=series.color, markeredgewidth=1.0, label=series.label, zorder=4, **mark)


def _share_range(panels: Sequence[Axes], logarithmic: bool) -> None:
    """Set a common range for the panels of one score, on a logarithmic scale if `logarithmic` and the range is wide."""
    ends = np.array([axes.dataLim.intervalx for axes in panels if axes.lines])
    if not len(ends):
        return
    low, high = ends.min(), ends.max()
    margin = 0.06 * (high - low) or 0.05
    for axes in panels:
        if logarithmic and 0 < 10 * low < high:
            axes.set_xscale("log")
            axes.set_xlim(low / 1.15, high * 1.15)
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
        else:
            axes.set_xlim(low - margin, high + margin)
            axes.locator_params(axis="x", nbins=5)


def _draw_levels(axes: Axes, levels: Mapping[str, float], inches: float) -> int:
    """Draw labelled vertical lines for reference controllers in or near the x range of a panel.

    `inches` is the width of the panel. Labels that would overlap are stacked. The number of their rows is returned.
    """
    low, high = axes.get_xlim()
    width, best = high - low, levels.get("reference_dp", np.nan)
    if high < best < high + 0.2 * width:
        high = best + 0.02 * width
        axes.set_xlim(low, high)
    near = {name: level for name, level in levels.items() if low <= level <= high}
    taken: list[list[tuple[float, float]]] = []  # parts of the panel's width with a label, by row
    for level, label in merge_levels(near, width).items():
        axes.axvline(level, **REFERENCE_LINE)
        at, length = (level - low) / (high - low), _LETTER_INCHES * len(label) / inches
        side: Any = "left" if at < 0.5 or at + length < 1.0 else "right"
        begin, end = (at, at + length) if side == "left" else (at - length, at)
        free = (row for row, parts in enumerate(taken) if all(end < left or right < begin for left, right in parts))
        if (row := next(free, len(taken))) == len(taken):
            taken.append([])
        taken[row].append((begin, end))
        axes.annotate(
            label, (level, 1.01), xytext=(0, _LINE_POINTS * row), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", ha=side, va="bottom", size=7, color=GREY,
        )  # fmt: skip
    return len(taken)


def _counts(cell: xr.Dataset, name: str) -> str:
    """Return numbers of collapsed and failed runs, or of runs without a rise time, each with a mark, as text."""
    marks = {"mu_final": {"dead": "†", "failed": "×"}, "rise_time": {"censored": "‡"}, "raw_final": {"failed": "×"}}
    counts = {mark: float(cell[count]) for count, mark in marks.get(name, {}).items()}
    return " ".join(f"{int(count)}{mark}" for mark, count in counts.items() if count > 0)


def _caption(data: xr.Dataset, rows: Sequence[str]) -> str:
    headline, _ = no_learning(data)
    several, measured = runs_there(data).sum("seed").max() > 1, "mu_final" in rows
    marks = ["× failed runs (not scored)"] if (data["failed"] > 0).any() else []
    marks += [f"† collapsed runs (final {MU} < {DEAD_LEVEL:g})"] if measured and (data["dead"] > 0).any() else []
    marks += ["‡ runs that never reach it"] if measured and (data["censored"] > 0).any() else []
    caption = f"{headline}. " * bool(headline) + ("Means and single runs." if several else "Single runs.")
    caption += f" Numbers: {', '.join(marks)}." if marks else ""
    intervals = "; 95 % bootstrap intervals" if several else ""
    return f"{caption}\n{style.run_count(data)}; training episodes, exploration included{intervals}."


def response(data: xr.Dataset, axis: Literal["noise", "frequency"]) -> Figure | None:
    """Plot one plant's final score against `axis`, which is the noise level or the control rate.

    Each value of the other quantity has a panel. The result is None if fewer than two values of `axis` have results.
    """
    present = has_results(data)
    data = data.isel(noise=present.any(axis=1), frequency=present.any(axis=0)).sortby(axis)
    if data.sizes[axis] < 2:
        return None
    rate = axis == "frequency"
    other = "noise" if rate else "frequency"
    usable = scaled(data).transpose("noise", "frequency").values
    series, normalised = style.all_series(data), bool(usable[has_results(data)].all())
    columns = data.sizes[other]
    caption = "Final scores." if normalised else f"Final rewards: {MU} is not defined everywhere."
    caption += f"\n{style.run_count(data)}; mean of {the_last(data, 'training')}, exploration included; "
    caption += "95 % bootstrap intervals."
    size, names = (0.9 * style.panel_width(columns) * columns + 0.5, 2.9), [one.label for one in series]
    title = f"final score against {'control rate' if rate else 'noise'}"
    figure, panels = style.new_panels(data, title, caption, size, (1, columns), names, sharey=True)
    values = data[axis].values
    positions = np.log(values) if rate else values
    labels, last = [], -np.inf
    for value, place in zip(values, positions / np.ptp(positions), strict=True):  # only values for which there is room
        labels.append(f"{value:g}" if place - last > 0.13 else "")
        last = place if labels[-1] else last
    for column, (axes, value) in enumerate(zip(panels[0], data[other].values, strict=True)):
        axes.set_xscale("log" if rate else "linear")
        axes.margins(x=0.08)
        for index, one in enumerate(series):
            parts = read_score(data, one, "mu_final" if normalised else "raw_final")[1:]
            mean, low, high = (part[column] if rate else part[:, column] for part in parts)
            # Points are shifted a little, so that the intervals of several series do not coincide.
            shift = (index - (len(series) - 1) / 2) * min(0.04 * np.diff(positions).min(), 0.012 * np.ptp(positions))
            x = np.exp(positions + shift) if rate else positions + shift
            axes.vlines(x, low, high, color=one.color, linewidth=1.1, zorder=2)
            mark = {"marker": one.marker, "markersize": 4.5, "markerfacecolor": one.face, "markeredgewidth": 1.0}
            line = {"color": one.color, "linestyle": one.dashes, "linewidth": 1.4, "zorder": 3}
            axes.plot(x, mean, label=one.label, **line, **mark)
        axes.set_title(f"noise {value:g}" if rate else f"{value:g} Hz", color=GREY)
        axes.set_xticks(values, labels)
        axes.minorticks_off()
        axes.set_xlabel("control rate [Hz]" if rate else "noise σ, normalised units")
        axes.grid(axis="y")
    view = panels[0, 0].get_ylim()  # fitted to the scores: levels outside are not drawn
    for axes in panels[0]:
        for level in (0.0, 1.0) if normalised else ():
            axes.axhline(level, **REFERENCE_LINE)
    panels[0, 0].set_ylim(view)
    panels[0, 0].set_ylabel(style.MU_LABEL if normalised else style.RAW_LABELS[episode_metric(data)])
    style.add_legend(figure, style.legend_lines(series, marked=True, width=1.4))
    return figure
