"""Metrics that learners report over training: KL divergence, far-policy share, temperature and others.

One row a metric, one column a condition. Lines are medians over runs and bands are quartiles, because one diverging
run would dominate a mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from replaybench.experiments.figures.curves import CROWDED, EPISODE_LABELS, Curve
from replaybench.experiments.figures.learning_curves import draw_curve
from replaybench.experiments.figures.style import GREY, add_legend, all_series, condition, new_panels, panel_width
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
"""Axis labels of the package's own metrics; others are shown by their names."""
_DECADES: Final = 30.0
"""Positive metrics that span more than this factor are drawn on a logarithmic axis."""


def metric_curves(data: xr.Dataset) -> Figure | None:
    """Draw one plant's metrics over its episodes; return None if no learner has any."""
    named = [str(name) for name in data.data_vars if str(name).startswith(PREFIX)]
    names = [name for name in named if data[name].notnull().any()]
    if not names:
        return None
    places = [(n, f) for n in data["noise"].values.tolist() for f in data["frequency"].values.tolist()]
    series = [one for one in all_series(data) if any(data[name].sel(one.where).notnull().any() for name in names)]
    banded = len(series) <= CROWDED
    caption = f"Medians over runs{', bands from quartile to quartile' if banded else ''}."
    size = panel_width(len(places)) * len(places) + 0.5, 1.7 * len(names) + 0.4
    shape, labels = (len(names), len(places)), [one.label for one in series]
    figure, panels = new_panels(
        data, "metrics of the learners", caption if data.sizes["seed"] > 1 else "One run.", size, shape, labels,
        sharex=True,
    )  # fmt: skip
    for (row, column), axes in np.ndenumerate(panels):
        noise, frequency = places[column]
        here = data[names[row]].sel(noise=noise, frequency=frequency)
        for one in series:
            values = here.sel(one.where).transpose("seed", "greedy_episode")
            values = values.dropna("seed", how="all").dropna("greedy_episode", how="all")
            if values.size:
                low, middle, high = np.nanquantile(values.values, (0.25, 0.5, 0.75), axis=0)
                band = (low, high) if len(values) > 1 else None
                draw_curve(axes, one, Curve(values["greedy_episode"].values, middle, band), banded)
        finite = here.values[np.isfinite(here.values)]
        if finite.size and finite.min() > 0 and finite.max() > _DECADES * finite.min():
            axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y")
        if column == 0:
            name = names[row].removeprefix(PREFIX)
            axes.set_ylabel(_LABELS.get(name, name.replace("_", " ")))
        if row == 0:
            axes.set_title(condition(noise, frequency), color=GREY)
        if row == len(names) - 1:
            axes.set_xlabel(EPISODE_LABELS[in_rounds(data)])
    add_legend(figure, list({line.get_label(): line for axes in panels.flat for line in axes.lines}.values()))
    return figure
