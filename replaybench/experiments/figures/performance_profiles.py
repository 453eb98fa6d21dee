"""Performance profiles: share of runs that end above each score (Agarwal et al. 2021, after Dolan and Moré 2002)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr

from replaybench.experiments.figures.style import (
    GREY,
    MU,
    RAW_LABELS,
    add_legend,
    all_series,
    condition,
    legend_lines,
    new_panels,
    panel_width,
    panels_across,
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


def draw_conditions(
    data: xr.Dataset,
    title: str,
    caption: str,
    places: Sequence[tuple[float, float]],
    draw: Callable[[Axes, float, float], Iterable[int]],
    height: float,
    *,
    extra: float = 0.0,
    of: str = "",
    labels: Sequence[str] = (),
) -> tuple[Figure, Any]:
    """Draw a panel for each condition; panels in μ_r have the same range along x, the axis of scores.

    Args:
        places: noise and control rate of each panel.
        draw: draws a panel at a noise and control rate, and returns the numbers of runs for its title.
        height: of a panel [inch]; extra: width in addition to that of the panels.
        of: beginning of the label of the x axis.
        labels: of the legend.

    Returns:
        The figure, and its panels `[rows, columns]`.
    """
    across = panels_across(len(places))
    shape = -(-len(places) // across), across
    size = panel_width(across) * across + extra, height * shape[0]
    figure, panels = new_panels(data, title, caption, size, shape, labels, sharey=True)
    alike: list[Axes] = []
    for axes, (noise, rate) in zip(panels.flat, places, strict=False):
        axes.set_title(f"{condition(noise, rate)}, n = {span(draw(axes, noise, rate))}", color=GREY)
        normalised = bool(scaled(data).sel(noise=noise, frequency=rate))
        alike += [axes] * normalised
        axes.set_xlabel(of + (MU if normalised else RAW_LABELS[episode_metric(data)]))
        axes.locator_params(axis="x", nbins=4 if across > 2 else 6)  # small differences have long numbers
    ends = [axes.get_xlim() for axes in alike]
    for axes in alike:
        axes.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
    for axes in panels.flat[len(places) :]:
        axes.axis("off")
    return figure, panels


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
    banded = len(series) <= _BANDS

    def draw(axes: Axes, noise: float, rate: float) -> list[int]:
        here = scores.sel(noise=noise, frequency=rate)
        finite = here.values[np.isfinite(here.values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        room = 0.04 * (high - low) or 0.05
        levels = np.linspace(low - room, high + room, _LEVELS)
        counts = []
        for one in series:
            sample = here.sel(one.where).values[run.sel({"noise": noise, "frequency": rate, **one.where}).values]
            if len(sample):
                counts.append(len(sample))
                mean = profile(sample, levels)
                axes.plot(levels, mean, color=one.color, linestyle=one.dashes, linewidth=1.4, zorder=3)
            if len(sample) and banded:
                axes.fill_between(levels, *profile_band(sample, levels), color=one.color, alpha=0.12, linewidth=0)
        axes.grid()
        return counts

    caption = f"Share of runs above a level over {the_last(data, 'training')}, exploration included; failed runs are "
    caption += f"above none. n: runs of each.{' Bands: 95 % for each level by itself.' * banded}"
    labels = [one.label for one in series]
    figure, panels = draw_conditions(data, "performance profiles", caption, places, draw, 2.9, labels=labels)
    for axes in panels[:, 0]:
        axes.set_ylabel("share of runs above")
    panels[0, 0].set_ylim(-0.03, 1.03)
    add_legend(figure, legend_lines(series, width=1.4))
    return figure
