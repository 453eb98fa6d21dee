"""What learners tell of themselves over training: divergences, far-policy shares, temperatures, step by step.

One row a metric, one column a pair of noise and control rate; lines are medians over runs, bands their quartiles.
Medians, since a single diverging run would hide all the others in a mean of divergences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from replaybench.experiments.figures.learning_curves import CROWDED, EPISODE_LABELS
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
)
from replaybench.experiments.results.dataset import in_rounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREFIX: Final = "metric_"
_LABELS: Final = {
    "kl": "D_KL [nat]",
    "far": "far-policy share",
    "beta": "β of ReF-ER",
    "sigma": "σ [half the range]",
    "temperature": "temperature α",
    "ratio_truncated": "share with ρ > c",
    "entropy": "entropy [nat]",
}
"""What the package's own learners tell, by their names for it; others' are shown as they are."""
_DECADES: Final = 30.0
"""Positive metrics that span more than this factor are drawn on a logarithmic axis."""


def metric_curves(data: xr.Dataset) -> Figure | None:
    """Draw one plant's metrics over its episodes; None where no learner has any.

    Args:
        data: dataset of one plant.
    """
    named = [str(name) for name in data.data_vars if str(name).startswith(PREFIX)]
    names = [name for name in named if data[name].notnull().any()]
    if not names:
        return None
    places = [(n, f) for n in data["noise"].values.tolist() for f in data["frequency"].values.tolist()]
    series = [one for one in all_series(data) if any(data[name].sel(one.where).notnull().any() for name in names)]
    width, labels = panel_width(len(places)), [one.label for one in series]
    several, banded = data.sizes["seed"] > 1, len(series) <= CROWDED
    figure = new_figure(
        width * len(places) + 0.5 + legend_width(labels),
        max(1.7 * len(names) + 0.4, legend_height(labels)),
        f"{plant_name(str(data['plant'].item()))}: what the learners tell of themselves",
        "One run." if not several else f"Medians over runs{', bands from quartile to quartile' if banded else ''}.",
    )
    panels = figure.subplots(len(names), len(places), squeeze=False, sharex=True)
    for row, name in enumerate(names):
        for column, (noise, frequency) in enumerate(places):
            axes = panels[row, column]
            here = data[name].sel(noise=noise, frequency=frequency)
            for one in series:
                values = here.sel(one.where).transpose("seed", "greedy_episode")
                values = values.dropna("seed", how="all").dropna("greedy_episode", how="all")
                if not values.size:
                    continue
                low, middle, high = np.nanquantile(values.values, (0.25, 0.5, 0.75), axis=0)
                episode = values["greedy_episode"].values
                axes.plot(episode, middle, color=one.color, linestyle=one.dashes, label=one.label)
                if len(values) > 1 and banded:
                    axes.fill_between(episode, low, high, color=one.color, alpha=0.18, linewidth=0)
            finite = here.values[np.isfinite(here.values)]
            if finite.size and finite.min() > 0 and finite.max() > _DECADES * finite.min():
                axes.set_yscale("log")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(axis="y", color="0.92", linewidth=0.7)
            if column == 0:
                told = name.removeprefix(PREFIX)
                axes.set_ylabel(_LABELS.get(told, told.replace("_", " ")))
            if row == 0:
                axes.set_title(condition(noise, frequency), color=GREY)
            if row == len(names) - 1:
                axes.set_xlabel(EPISODE_LABELS[in_rounds(data)])
    lines = {line.get_label(): line for axes in panels.ravel() for line in axes.lines}
    add_legend(figure, list(lines.values()))
    return figure
