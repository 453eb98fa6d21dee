"""Final scores of every cell, and their response to noise and control rate.

Raw rewards replace μ_r if the references do not allow it at every point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.experiments.comparison import final_rewards, no_learning, reference_rows
from replaybench.experiments.dataset import counted_in, episode_metric, mu_r, runs_there, the_last
from replaybench.experiments.statistics import DEAD_LEVEL, RISE_LEVEL, Interval, interval
from replaybench.reports.figures.curves import REFERENCES, draw_at_bars, reference_handles
from replaybench.reports.figures.style import (
    GREY,
    MU,
    MU_LABEL,
    RAW_LABELS,
    Series,
    add_legend,
    all_series,
    condition,
    legend_lines,
    new_panels,
    panel_width,
)
from replaybench.runtime.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUP_WIDTH: Final = 0.84
_NARROW: Final = 0.2
"""Width of a bar [inch] above which a count is written horizontally."""
LEVEL: Final[dict[str, Any]] = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}


class Score(NamedTuple):
    """A score of one series: its runs `[noise, frequency, seed]`, and their mean and interval `[noise, frequency]`."""

    runs: Floats
    mean: Floats
    low: Floats
    high: Floats

    def at(self, noise: int, frequency: int) -> Interval:
        """Return the mean and interval at one condition."""
        mean, low, high = (float(part[noise, frequency]) for part in self[1:])
        return Interval(mean, low, high, degenerate=low == high)


def read_score(data: xr.Dataset, series: Series, name: str) -> Score:
    """Return a series' score from one plant's dataset: `mu_final`, `mu_max`, `rise_time` or `raw_final`."""
    here = data.sel(series.where)
    if name != "raw_final":
        parts = [here[name + bound].transpose("noise", "frequency", ...) for bound in ("", "_mean", "_low", "_high")]
        return Score(*(part.values for part in parts))
    runs = final_rewards(here).transpose("noise", "frequency", "seed").values
    found = [interval(runs[place]) for place in np.ndindex(runs.shape[:-1])]
    bounds = np.array([(one.mean, one.low, one.high) for one in found]).T.reshape(3, *runs.shape[:-1])
    return Score(runs, *bounds)


def has_results(data: xr.Dataset) -> NDArray[np.bool_]:
    """Return at which conditions of one plant there is any run, bool `[noise, frequency]`."""
    found: NDArray[np.bool_] = (
        runs_there(data).any(["learner", "strategy", "seed"]).transpose("noise", "frequency").values
    )
    return found


def usable_places(data: xr.Dataset) -> NDArray[np.bool_]:
    """Return at which conditions of one plant μ_r is defined, bool `[noise, frequency]`."""
    found: NDArray[np.bool_] = np.isfinite(mu_r(data, data["reference_dp"]).transpose("noise", "frequency").values)
    return found


def score_bars(data: xr.Dataset) -> Figure:
    """Draw one plant's scores as bars with intervals, the runs as dots, grouped by noise and control rate."""
    from matplotlib.patches import Patch

    series, usable = all_series(data), usable_places(data)
    places = [place for place in np.ndindex(usable.shape) if has_results(data)[place]]
    final, count = the_last(data).removeprefix("the "), counted_in(data)
    measures = {
        "mu_final": f"{MU}, {final}",
        "mu_max": f"{MU}, best of all {count}",
        "rise_time": f"{count} to {MU} ≥ {RISE_LEVEL:g}",
        "raw_final": f"{'return' if episode_metric(data) == 'return' else 'raw reward'}, {final}",
    }
    normalised = [usable[place] for place in places]
    rows = (["mu_final", "mu_max", "rise_time"] if any(normalised) else []) + ([] if all(normalised) else ["raw_final"])
    bars = len(series) * len(places)
    width = min(13.0, max(3.4, 0.9 + 0.3 * bars + 0.3 * len(places)))
    bar_inches = _GROUP_WIDTH * (width - 0.9) / max(1, bars)
    labels = [one.label for one in series] + [label for label, _ in REFERENCES.values()]
    references: set[str] = set()
    size = width, 1.8 * len(rows) + 0.4
    figure, panels = new_panels(data, "scores", _caption(data, rows), size, (len(rows), 1), labels, sharex=True)
    for axes, name in zip(panels[:, 0], rows, strict=True):
        for index, one in enumerate(series):
            score, cells = read_score(data, one, name), data.sel(one.where)
            for group, place in enumerate(places):
                x = group + _GROUP_WIDTH * ((index + 0.5) / len(series) - 0.5)
                _draw_bar(axes, one, x, _GROUP_WIDTH / len(series), bar_inches, score.runs[place], score.at(*place))
                _draw_count(axes, x, _counts(cells.isel(noise=place[0], frequency=place[1]), name), bar_inches)
        for group, place in enumerate(places):
            if name in ("mu_final", "raw_final") and (name == "mu_final") == usable[place]:
                known = reference_rows(data.isel(noise=place[0], frequency=place[1]))
                levels = {row.name: row.mu if usable[place] else row.reward for row in known}
                references |= draw_at_bars(axes, group, 0.98, levels)
            if name != "raw_final" and not usable[place]:
                axes.text(group, 0.5, f"no {MU}", transform=axes.get_xaxis_transform(), ha="center", color=GREY)
        if name == "mu_max":
            axes.axhline(1, **LEVEL)
        axes.axhline(0, color="0.4", linewidth=0.8, zorder=1)
        axes.grid(axis="y")
        axes.set_ylabel(measures[name])
        axes.tick_params(axis="x", length=0)
        if name == "rise_time":
            axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(range(len(places)), _group_names(data, places))
    patches = [Patch(facecolor=(s.color, 0.3), edgecolor=s.color, hatch=s.hatch, label=s.label) for s in series]
    add_legend(figure, [*patches, *reference_handles(references)])
    return figure


def _counts(cell: xr.Dataset, name: str) -> str:
    """Write how many runs of a cell collapsed or failed, or never reach the level of the rise time."""
    marks = {"mu_final": {"dead": "†", "failed": "×"}, "rise_time": {"censored": ""}, "raw_final": {"failed": "×"}}
    counts = {mark: float(cell[count]) for count, mark in marks.get(name, {}).items()}
    return " ".join(f"{int(count)}{mark}" for mark, count in counts.items() if count > 0)


def _draw_count(axes: Axes, x: float, text: str, inches: float) -> None:
    """Write a count above a bar of a width [inch]; upright if the bar is narrow."""
    look: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "color": "0.2"}
    narrow = inches < _NARROW
    axes.text(x, 1.02, text, size=6 if narrow else 7, rotation=90 if narrow else 0, **look)


def _caption(data: xr.Dataset, rows: Sequence[str]) -> str:
    headline, _ = no_learning(data)
    caption = f"{headline}. " * bool(headline) + "Training episodes, exploration included."
    if runs_there(data).sum("seed").max() > 1:
        caption += " Bars: means over runs; lines: 95 % bootstrap intervals; dots: single runs."
    else:
        caption += " Bars: single runs."
    numbers = ["× failed runs (not scored)"] if (data["failed"] > 0).any() else []
    measured = "mu_final" in rows
    numbers += [f"† collapsed runs (final {MU} < {DEAD_LEVEL:g})"] if measured and (data["dead"] > 0).any() else []
    caption += f" Numbers above: {', '.join(numbers)}." if numbers else ""
    if measured and (data["censored"] > 0).any():
        caption += " Numbers above the rise time: runs that never "
        caption += f"reach {RISE_LEVEL:g}, scored with the length of the run."
    return caption


def _draw_bar(axes: Axes, series: Series, x: float, width: float, inches: float, runs: Floats, score: Interval) -> None:
    """Draw a bar, `width` in units of the axis and `inches` wide."""
    if not np.isfinite(score.mean):  # not run yet, or all runs failed
        axes.text(x, 0.02, "–", transform=axes.get_xaxis_transform(), ha="center", color=GREY)
        return
    look: dict[str, Any] = {"color": (series.color, 0.3), "edgecolor": series.color, "hatch": series.hatch}
    axes.bar(x, score.mean, 0.86 * width, linewidth=0.8, zorder=2, **look)
    runs = runs[np.isfinite(runs)]
    if len(runs) > 1:
        aside = 0.62 * width * (np.arange(1, len(runs) + 1) * 0.6180339887 % 1 - 0.5)
        axes.scatter(x + aside, runs, s=min(7.0, 30 * inches), color=series.color, alpha=0.5, linewidths=0, zorder=3)
    if score.high > score.low:
        axes.plot([x, x], [score.low, score.high], color="0.1", linewidth=1.3, solid_capstyle="butt", zorder=4)


def _group_names(data: xr.Dataset, places: Sequence[tuple[int, ...]]) -> list[str]:
    """Name the groups by the axis along which they differ."""
    noises, rates = data["noise"].values, data["frequency"].values
    by_noise, by_rate = (len({place[axis] for place in places}) > 1 for axis in (0, 1))
    if by_noise == by_rate:
        return [condition(noises[i], rates[j]).replace(", ", "\n" if by_noise else ", ") for i, j in places]
    return [f"noise {noises[i]:g}" if by_noise else f"{rates[j]:g} Hz" for i, j in places]


def response(data: xr.Dataset, axis: Literal["noise", "frequency"]) -> Figure | None:
    """Draw how one plant's final score depends on noise or on the control rate, a panel for each value of the other.

    None if fewer than two values of the axis have results.
    """
    present = has_results(data)
    data = data.isel(noise=present.any(axis=1), frequency=present.any(axis=0)).sortby(axis)
    if data.sizes[axis] < 2:
        return None
    rate = axis == "frequency"
    other = "noise" if rate else "frequency"
    series, normalised = all_series(data), bool(usable_places(data)[has_results(data)].all())
    columns = data.sizes[other]
    caption = f"Mean of {the_last(data, 'training')}, exploration included; means over runs, 95 % intervals."
    caption += "" if normalised else f" Raw rewards: {MU} is not defined everywhere."
    size, labels = (0.9 * panel_width(columns) * columns + 0.5, 2.9), [one.label for one in series]
    title = f"final score against {'control rate' if rate else 'noise'}"
    figure, panels = new_panels(data, title, caption, size, (1, columns), labels, sharey=True)
    values = data[axis].values
    for column, (axes, value) in enumerate(zip(panels[0], data[other].values, strict=True)):
        _set_scale(axes, rate, values)
        for index, one in enumerate(series):
            parts = read_score(data, one, "mu_final" if normalised else "raw_final")[1:]
            mean, low, high = (part[column] if rate else part[:, column] for part in parts)
            x = _dodge(values, index - (len(series) - 1) / 2, rate)
            axes.vlines(x, low, high, color=one.color, linewidth=1.1, zorder=2)
            look: dict[str, Any] = {"color": one.color, "linestyle": one.dashes, "linewidth": 1.4, "zorder": 3}
            look |= {"marker": one.marker, "markersize": 4.5, "markerfacecolor": one.face, "markeredgewidth": 1.0}
            axes.plot(x, mean, label=one.label, **look)
        axes.set_title(f"noise {value:g}" if rate else f"{value:g} Hz", color=GREY)
        axes.grid(axis="y")
        for level in (0.0, 1.0) if normalised else ():
            axes.axhline(level, **LEVEL)
    panels[0, 0].set_ylabel(MU_LABEL if normalised else RAW_LABELS[episode_metric(data)])
    add_legend(figure, legend_lines(series, marked=True, width=1.4))
    return figure


def _dodge(values: Floats, place: float, logarithmic: bool) -> Floats:
    """Shift points a little, so that the intervals of several series do not coincide."""
    scaled = np.log(values) if logarithmic else values
    moved: Floats = scaled + place * min(0.04 * np.diff(scaled).min(), 0.012 * np.ptp(scaled))
    return np.exp(moved) if logarithmic else moved


def _set_scale(axes: Axes, logarithmic: bool, values: Floats) -> None:
    """Label the x axis at the values of the study (ascending) for which there is room."""
    scaled = np.log(values) if logarithmic else values
    position = (scaled - scaled[0]) / (scaled[-1] - scaled[0])
    edge = 0.08 * (scaled[-1] - scaled[0])
    limits = scaled[0] - edge, scaled[-1] + edge
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xlim(*(np.exp(limits) if logarithmic else limits))
    labels, last = [], -1.0
    for value, place in zip(values, position, strict=True):
        labels.append(f"{value:g}" if place - last > 0.13 else "")
        last = place if labels[-1] else last
    axes.set_xticks(values, labels)
    axes.minorticks_off()
    axes.set_xlabel("control rate [Hz]" if logarithmic else "noise σ, normalised units")
