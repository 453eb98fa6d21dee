"""Length of training episodes over a run, for plants whose episodes may end early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from replaybench.experiments.figures.curves import CROWDED, EPISODE_LABELS, series_curves, smoothing_window
from replaybench.experiments.figures.learning_curves import curve_caption, draw_curve
from replaybench.experiments.figures.style import (
    GREY,
    add_legend,
    all_series,
    condition,
    new_panels,
    panel_width,
    whole_numbers,
    write_note,
)
from replaybench.experiments.results.dataset import in_rounds, lengths_vary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def length_curves(data: xr.Dataset) -> Figure | None:
    """Draw the mean length of one plant's training episodes: noise down, rate across; None if all are equal."""
    if not lengths_vary(data):
        return None
    rows, columns = data.sizes["noise"], data.sizes["frequency"]
    series, window, width = all_series(data), smoothing_window(data.sizes["episode"]), panel_width(columns)
    banded = len(series) <= CROWDED
    caption = curve_caption(data, window)
    caption += ", band: 95 % bootstrap interval over runs." if data.sizes["seed"] > 1 and banded else "."
    size, labels = (width * columns + 0.5, 0.6 * width * rows), [one.label for one in series]
    figure, panels = new_panels(
        data, "length of episodes", caption, size, (rows, columns), labels, sharex=True, sharey=True
    )
    for (row, column), axes in np.ndenumerate(panels):
        here = data["episode_steps"].isel(noise=row, frequency=column)
        runs = ((one, here.sel(one.where).transpose("seed", "episode").values) for one in series)
        for one, curve in series_curves(runs, window):
            draw_curve(axes, one, curve, banded)
        if not axes.lines:
            write_note(axes, "no results")
        axes.set_title(condition(here["noise"].item(), here["frequency"].item()), color=GREY)
        axes.set_xlim(0, 1.01 * data.sizes["episode"])
        axes.xaxis.set_major_locator(whole_numbers(5, data.sizes["episode"]))
        axes.grid(axis="y")
    for axes in panels[-1]:
        axes.set_xlabel(EPISODE_LABELS[in_rounds(data)])
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].yaxis.get_major_locator().set_params(integer=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("steps per episode")
    add_legend(figure, list({line.get_label(): line for axes in panels.flat for line in axes.lines}.values()))
    return figure
