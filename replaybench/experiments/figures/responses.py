"""Response of the final score of each strategy to noise and to the control rate.

Raw rewards replace μ_r if the references do not allow it at every point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.experiments.figures.score_bars import LEVEL, has_results, read_score, usable_places
from replaybench.experiments.figures.style import (
    GREY,
    MU,
    MU_LABEL,
    RAW_LABELS,
    add_legend,
    all_series,
    legend_lines,
    new_panels,
    panel_width,
)
from replaybench.experiments.results.dataset import episode_metric, the_last

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


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
