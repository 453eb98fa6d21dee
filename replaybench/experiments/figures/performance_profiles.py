"""Performance profiles: share of runs that end above each score (Agarwal et al. 2021, after Dolan and Moré 2002)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from replaybench.experiments.figures.style import (
    GREY,
    MU,
    RAW_LABELS,
    Series,
    add_legend,
    all_series,
    condition,
    legend_lines,
    new_panels,
    panel_width,
    panels_across,
    share_x,
    span,
)
from replaybench.experiments.results.comparison_tables import final_scores, scaled
from replaybench.experiments.results.dataset import episode_metric, runs_there, the_last
from replaybench.experiments.results.distribution import profile, profile_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVELS: Final = 300
_BANDS: Final = 4
"""With more series than this, bands would hide each other and are not drawn."""


def performance_profiles(data: xr.Dataset) -> Figure | None:
    """Draw one plant's profiles, a panel for each noise and control rate; return None for single runs."""
    scores, series = final_scores(data), all_series(data)
    run = runs_there(data)
    places = [
        (float(noise), float(rate))
        for noise in data["noise"].values
        for rate in data["frequency"].values
        if run.sel(noise=noise, frequency=rate).sum("seed").max() > 1
    ]
    if not places:
        return None
    across = panels_across(len(places))
    down = -(-len(places) // across)
    banded = len(series) <= _BANDS
    caption = f"Share of runs above a level over {the_last(data, 'training')}, exploration included; failed runs are "
    caption += f"above none. n: runs of each.{' Bands: 95 % for each level by itself.' * banded}"
    size, labels = (panel_width(across) * across, 2.9 * down), [one.label for one in series]
    figure, grid = new_panels(data, "performance profiles", caption, size, (down, across), labels, sharey=True)
    alike, panels = [], grid.ravel()
    for axes, (noise, rate) in zip(panels, places, strict=False):
        here = {"noise": noise, "frequency": rate}
        counts = _draw(axes, scores.sel(here), run.sel(here), series, banded)
        axes.set_title(f"{condition(noise, rate)}, n = {span(counts)}", color=GREY)
        normalised = bool(scaled(data).sel(here))
        if normalised:
            alike.append(axes)
        axes.set_xlabel(MU if normalised else RAW_LABELS[episode_metric(data)])
        axes.grid()
        axes.locator_params(axis="x", nbins=5)  # small differences have long numbers
    share_x(alike)
    for axes in panels[len(places) :]:
        axes.axis("off")
    for axes in panels[: len(places) : across]:
        axes.set_ylabel("share of runs above")
    panels[0].set_ylim(-0.03, 1.03)
    add_legend(figure, legend_lines(series, width=1.4))
    return figure


def _draw(axes: Axes, scores: xr.DataArray, run: xr.DataArray, series: list[Series], banded: bool) -> list[int]:
    finite = scores.values[np.isfinite(scores.values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = 0.04 * (high - low) or 0.05
    levels = np.linspace(low - room, high + room, _LEVELS)
    counts = []
    for one in series:
        sample = scores.sel(one.where).values[run.sel(one.where).values]
        if not len(sample):
            continue
        counts.append(len(sample))
        axes.plot(levels, profile(sample, levels), color=one.color, linestyle=one.dashes, linewidth=1.4, zorder=3)
        if banded:
            axes.fill_between(levels, *profile_band(sample, levels), color=one.color, alpha=0.12, linewidth=0)
    return counts
