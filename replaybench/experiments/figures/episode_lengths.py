"""How long training episodes last: survival, which returns alone do not tell where leaving early can pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from replaybench.experiments.figures.curves import learning_curve, smoothing_window
from replaybench.experiments.figures.learning_curves import CROWDED, EPISODE_LABELS, draw_curve
from replaybench.experiments.figures.style import (
    GREY,
    add_legend,
    all_series,
    condition,
    legend_height,
    legend_width,
    new_figure,
    panel_width,
    plant_name,
    say,
    whole_numbers,
)
from replaybench.experiments.results.dataset import counted_in, in_rounds, lengths_vary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def length_curves(data: xr.Dataset) -> Figure | None:
    """Draw the mean length of one plant's training episodes over the run, noise and control rates across.

    Args:
        data: dataset of one plant.

    Returns:
        None where all episodes are equally long.
    """
    if not lengths_vary(data):
        return None
    noises, rates = data["noise"].values.tolist(), data["frequency"].values.tolist()
    series, window = all_series(data), smoothing_window(data.sizes["episode"])
    width, labels = panel_width(len(rates)), [one.label for one in series]
    several, banded = data.sizes["seed"] > 1, len(series) <= CROWDED
    caption = "Training episodes, exploration included" + (": mean over runs" if several else "; one run")
    caption += f", moving average over {window} {counted_in(data)}" if window > 1 else ""
    caption += ", band: 95 % bootstrap interval over runs." if several and banded else "."
    figure = new_figure(
        width * len(rates) + 0.5 + legend_width(labels),
        max(0.6 * width * len(noises), legend_height(labels)),
        f"{plant_name(str(data['plant'].item()))}: length of episodes",
        caption,
    )
    panels = figure.subplots(len(noises), len(rates), squeeze=False, sharex=True, sharey=True)
    for (row, column), axes in np.ndenumerate(panels):
        here = data["episode_steps"].isel(noise=row, frequency=column)
        for one in series:
            runs = here.sel(one.where).transpose("seed", "episode").values
            runs = runs[np.isfinite(runs).all(axis=1)]
            if len(runs):
                draw_curve(axes, one, learning_curve(runs, window), banded)
        if not axes.lines:
            say(axes, "no results")
        axes.set_title(condition(noises[row], rates[column]), color=GREY)
        axes.set_xlim(0, 1.01 * data.sizes["episode"])
        axes.xaxis.set_major_locator(whole_numbers(5, data.sizes["episode"]))
        axes.grid(axis="y", color="0.92", linewidth=0.7)
    for axes in panels[-1]:
        axes.set_xlabel(EPISODE_LABELS[in_rounds(data)])
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].yaxis.get_major_locator().set_params(integer=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("steps per episode")
    add_legend(figure, list({line.get_label(): line for axes in panels.flat for line in axes.lines}.values()))
    return figure
