"""Scores of a sweep as bars, one for every cell.

Scores are those of the dataset (`results`, `stats`): means over runs with 95 % bootstrap intervals. Where the
references do not allow μ_r, raw rewards stand in its place, and the axis says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.experiments.figures.reference_lines import REFERENCES, draw_beside_bars, reference_handles
from replaybench.experiments.figures.style import (
    GREY,
    MU,
    Series,
    add_legend,
    all_series,
    condition,
    legend_height,
    legend_width,
    new_figure,
    plant_name,
)
from replaybench.experiments.results.dataset import counted_in, episode_metric, last_of, mu_r, runs_there, the_last
from replaybench.experiments.results.references import no_learning, reference_rows
from replaybench.experiments.results.statistics import DEAD_LEVEL, RISE_LEVEL, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_GROUP_WIDTH: Final = 0.84
_NARROW: Final = 0.2
"""Inches of a bar over which a count has no room to lie."""
LEVEL: Final[dict[str, Any]] = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}
_BOUNDS: Final = ("mean", "low", "high")


class Score(NamedTuple):
    """A score with its interval, `[noise, frequency]` or of one place; `runs` has a last axis of seeds."""

    runs: Floats
    mean: Floats
    low: Floats
    high: Floats


def score_bars(data: xr.Dataset) -> Figure:
    """Draw one plant's scores as bars with intervals, the runs as dots, grouped by noise and control rate.

    Args:
        data: dataset of one plant.
    """
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
    across = _GROUP_WIDTH * (width - 0.9) / max(1, bars)
    labels = [one.label for one in series] + [label for label, _ in REFERENCES.values()]
    references: set[str] = set()
    figure = new_figure(
        width + legend_width(labels),
        max(1.8 * len(rows) + 0.4, legend_height(labels)),
        f"{plant_name(str(data['plant'].item()))}: scores",
        _bars_caption(data, rows),
    )
    for axes, name in zip(figure.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0], rows, strict=True):
        for index, one in enumerate(series):
            score = read_score(data, one, name)
            for group, place in enumerate(places):
                x = group + _GROUP_WIDTH * ((index + 0.5) / len(series) - 0.5)
                _draw_bar(axes, one, x, _GROUP_WIDTH / len(series), across, Score(*(part[place] for part in score)))
                text = _counts(data.sel(one.where).isel(noise=place[0], frequency=place[1]), name)
                _count_above(axes, x, text, across)
        for group, place in enumerate(places):
            if name in ("mu_final", "raw_final") and (name == "mu_final") == usable[place]:
                rows_here = reference_rows(data.isel(noise=place[0], frequency=place[1]))
                levels = {row.name: row.mu if usable[place] else row.reward for row in rows_here}
                references |= draw_beside_bars(axes, group, 0.98, levels)
            if name != "raw_final" and not usable[place]:
                axes.text(group, 0.5, f"no {MU}", transform=axes.get_xaxis_transform(), ha="center", color=GREY)
        if name == "mu_max":
            axes.axhline(1, **LEVEL)
        axes.axhline(0, color="0.4", linewidth=0.8, zorder=1)
        axes.grid(axis="y", color="0.92", linewidth=0.7)
        axes.set_ylabel(measures[name])
        axes.tick_params(axis="x", length=0)
        if name == "rise_time":
            axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(range(len(places)), _group_names(data, places))
    add_legend(figure, [*_patches(series), *reference_handles(references)])
    return figure


def has_results(data: xr.Dataset) -> NDArray[np.bool_]:
    """Return where any run is there, bool `[noise, frequency]`."""
    found: NDArray[np.bool_] = (
        runs_there(data).any(["learner", "strategy", "seed"]).transpose("noise", "frequency").values
    )
    return found


def usable_places(data: xr.Dataset) -> NDArray[np.bool_]:
    """Return where μ_r is defined, bool `[noise, frequency]`."""
    found: NDArray[np.bool_] = np.isfinite(mu_r(data, data["reference_dp"]).transpose("noise", "frequency").values)
    return found


def read_score(data: xr.Dataset, series: Series, name: str) -> Score:
    """Return a score of the dataset, or `raw_final`, over all noises and control rates."""
    here = data.sel(series.where)
    if name != "raw_final":
        parts = (here[name].transpose("noise", "frequency", "seed"), *(here[f"{name}_{b}"] for b in _BOUNDS))
        return Score(parts[0].values, *(part.transpose("noise", "frequency").values for part in parts[1:]))
    rewards = here["reward"].transpose("noise", "frequency", "seed", "episode").values
    whole = np.isfinite(rewards).all(axis=-1)
    runs = np.where(whole, rewards[..., -last_of(data) :].mean(axis=-1), np.nan)
    bounds = np.empty((3, *runs.shape[:-1]))
    for place in np.ndindex(runs.shape[:-1]):
        found = interval(runs[place])
        bounds[:, *place] = found.mean, found.low, found.high
    return Score(runs, *bounds)


def _counts(cell: xr.Dataset, name: str) -> str:
    """Say how many runs of a cell are dead or failed, or never reach the level of the rise time."""
    failed = cell["failed"]
    found: dict[str, list[tuple[Any, str]]] = {
        "mu_final": [(cell["dead"], "†"), (failed, "×")],
        "rise_time": [(cell["censored"], "")],
        "raw_final": [(failed, "×")],
    }
    return " ".join(f"{int(count)}{mark}" for count, mark in found.get(name, []) if float(count) > 0)


def _count_above(axes: Axes, x: float, text: str, room: float) -> None:
    """Write a count above a bar that is so many inches wide; upright where its neighbours leave no other room."""
    look: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "color": "0.2"}
    narrow = room < _NARROW
    axes.text(x, 1.02, text, size=6 if narrow else 7, rotation=90 if narrow else 0, **look)


def _bars_caption(data: xr.Dataset, rows: Sequence[str]) -> str:
    """Say what bars, lines, dots and numbers are, as far as there are any."""
    headline, _ = no_learning(data)
    caption = f"{headline}. " * bool(headline) + "Training episodes, exploration included."
    if runs_there(data).sum("seed").max() > 1:
        caption += " Bars: means over runs; lines: 95 % bootstrap intervals; dots: single runs."
    else:
        caption += " Bars: single runs."
    told = ["× failed runs (not scored)"] if (data["failed"] > 0).any() else []
    measured = "mu_final" in rows
    told += [f"† dead runs (final {MU} < {DEAD_LEVEL:g})"] if measured and (data["dead"] > 0).any() else []
    caption += f" Numbers above: {', '.join(told)}." if told else ""
    if measured and (data["censored"] > 0).any():
        caption += " Numbers above the rise time: runs that never "
        caption += f"reach {RISE_LEVEL:g}, scored with the length of the run."
    return caption


def _draw_bar(axes: Axes, series: Series, x: float, width: float, room: float, score: Score) -> None:
    """Draw a bar, `width` of the axis and `room` inches wide."""
    if not np.isfinite(score.mean):
        # Not run yet, or all runs failed.
        axes.text(x, 0.02, "–", transform=axes.get_xaxis_transform(), ha="center", color=GREY)
        return
    face, edge = (series.color, 0.3), series.color
    axes.bar(x, score.mean, 0.86 * width, color=face, edgecolor=edge, linewidth=0.8, hatch=series.hatch, zorder=2)
    runs = score.runs[np.isfinite(score.runs)]
    if len(runs) > 1:
        aside = 0.62 * width * (np.arange(1, len(runs) + 1) * 0.6180339887 % 1 - 0.5)
        axes.scatter(x + aside, runs, s=min(7.0, 30 * room), color=series.color, alpha=0.5, linewidths=0, zorder=3)
    if score.high > score.low:
        axes.plot([x, x], [score.low, score.high], color="0.1", linewidth=1.3, solid_capstyle="butt", zorder=4)


def _group_names(data: xr.Dataset, places: Sequence[tuple[int, ...]]) -> list[str]:
    """Name the groups by what differs between them."""
    noises, rates = data["noise"].values, data["frequency"].values
    by_noise, by_rate = (len({place[axis] for place in places}) > 1 for axis in (0, 1))
    if by_noise == by_rate:
        return [condition(noises[i], rates[j]).replace(", ", "\n" if by_noise else ", ") for i, j in places]
    return [f"noise {noises[i]:g}" if by_noise else f"{rates[j]:g} Hz" for i, j in places]


def _patches(series: Sequence[Series]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(facecolor=(s.color, 0.3), edgecolor=s.color, hatch=s.hatch, label=s.label) for s in series]
