"""How the final score of each strategy responds to noise and to the control rate.

Where the references do not allow μ_r at every point, raw rewards stand in its place, and the axis says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.experiments.figures.score_bars import LEVEL, Score, has_results, read_score, usable_places
from replaybench.experiments.figures.style import (
    GREY,
    MU,
    MU_LABEL,
    RAW_LABELS,
    Series,
    add_legend,
    all_series,
    legend_height,
    legend_width,
    new_figure,
    panel_width,
    plant_name,
)
from replaybench.experiments.results.dataset import episode_metric, the_last

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


def response(data: xr.Dataset, axis: Literal["noise", "frequency"]) -> Figure | None:
    """Draw how one plant's final score depends on noise or on the control rate, a panel for each value of the other.

    Args:
        data: dataset of one plant.
        axis: what runs along x.

    Returns:
        None where fewer than two values of the axis have results.
    """
    present = has_results(data)
    data = data.isel(noise=present.any(axis=1), frequency=present.any(axis=0)).sortby(axis)
    if data.sizes[axis] < 2:
        return None
    other = "frequency" if axis == "noise" else "noise"
    series, normalised = all_series(data), bool(usable_places(data)[has_results(data)].all())
    columns = data.sizes[other]
    against = "noise" if axis == "noise" else "control rate"
    caption = f"Mean of {the_last(data, 'training')}, exploration included; means over runs, "
    caption += "95 % intervals."
    width = 0.9 * panel_width(columns)
    labels = [one.label for one in series]
    figure = new_figure(
        width * columns + 0.5 + legend_width(labels),
        max(2.9, legend_height(labels)),
        f"{plant_name(str(data['plant'].item()))}: final score against {against}",
        caption if normalised else f"{caption} Raw rewards: {MU} is not defined everywhere.",
    )
    panels = figure.subplots(1, columns, squeeze=False, sharey=True)[0]
    for column, (axes, value) in enumerate(zip(panels, data[other].values, strict=True)):
        _set_scale(axes, axis, data[axis].values)
        for index, one in enumerate(series):
            score = read_score(data, one, "mu_final" if normalised else "raw_final")
            pick = (slice(None), column) if axis == "noise" else (column, slice(None))
            x = _dodge(data[axis].values, index - (len(series) - 1) / 2, axis == "frequency")
            _draw_response(axes, one, x, Score(*(part[pick] for part in score)))
        axes.set_title(f"{value:g} Hz" if other == "frequency" else f"noise {value:g}", color=GREY)
        axes.grid(axis="y", color="0.92", linewidth=0.7)
        for level in (0.0, 1.0) if normalised else ():
            axes.axhline(level, **LEVEL)
    panels[0].set_ylabel(MU_LABEL if normalised else RAW_LABELS[episode_metric(data)])
    add_legend(figure, _lines(series))
    return figure


def _draw_response(axes: Axes, series: Series, x: Floats, score: Score) -> None:
    axes.vlines(x, score.low, score.high, color=series.color, linewidth=1.1, zorder=2)
    axes.plot(
        *(x, score.mean), color=series.color, linestyle=series.dashes, linewidth=1.4, marker=series.marker,
        markersize=4.5, markerfacecolor=series.face, markeredgewidth=1.0, label=series.label, zorder=3,
    )  # fmt: skip


def _dodge(values: Floats, place: float, logarithmic: bool) -> Floats:
    """Move points a little aside, so that the intervals of several series stay apart."""
    scaled = np.log(values) if logarithmic else values
    moved: Floats = scaled + place * min(0.04 * np.diff(scaled).min(), 0.012 * np.ptp(scaled))
    return np.exp(moved) if logarithmic else moved


def _set_scale(axes: Axes, axis: str, values: Floats) -> None:
    """Label the x axis at the values of the study (in rising order), as far as there is room for the numbers."""
    logarithmic = axis == "frequency"
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


def _lines(series: Sequence[Series]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=s.color, linestyle=s.dashes, marker=s.marker, markerfacecolor=s.face, label=s.label)
        for s in series
    ]
