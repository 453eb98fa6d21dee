"""Differences from one strategy, seed by seed: they are a test, which overlapping intervals are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from replaybench.experiments.figures.style import (
    GREY,
    MU,
    RAW_LABELS,
    Series,
    all_series,
    condition,
    new_panels,
    panel_width,
    panels_across,
    share_x,
    span,
)
from replaybench.experiments.results.comparison_tables import Comparison, first_comparison, scaled
from replaybench.experiments.results.dataset import episode_metric, the_last
from replaybench.experiments.results.effects import SIGNIFICANT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def paired_differences(data: xr.Dataset) -> Figure | None:
    """Draw by how much each strategy of one plant is ahead of the study's first; return None without comparisons.

    Learners, noise levels or rates are compared if strategies do not vary.
    """
    rows, baseline, axis = first_comparison(data) or ([], "", "strategy")
    rows = [row for row in rows if row.effect is not None and row.effect.n > 1]
    places = list(dict.fromkeys((row.noise, row.frequency) for row in rows))
    if not places:
        return None
    drawn = {(row.learner, row.strategy) for row in rows}
    series = [one for one in all_series(data) if (one.learner, one.strategy) in drawn]
    baseline = {"noise": f"noise {baseline}", "frequency": f"{baseline} Hz"}.get(axis, baseline)
    across = panels_across(len(places))
    down = -(-len(places) // across)
    caption = f"Over {the_last(data, 'training')}, exploration included. Mean differences of paired seeds (marks) "
    caption += "with 95 % BCa intervals; filled if p < 0.05 (paired sign-flip test, Holm within a panel). n: pairs."
    if any(row.same for row in rows):
        caption += " Same runs: equal rewards in all episodes, as with buffers that never fill."
    width = panel_width(across) * across + 0.062 * max(len(one.label) for one in series)
    size = width, (0.75 + 0.24 * len(series)) * down
    figure, grid = new_panels(data, f"compared with {baseline}", caption, size, (down, across), sharey=True)
    alike, panels = [], grid.ravel()
    for axes, (noise, rate) in zip(panels, places, strict=False):
        here = [row for row in rows if (row.noise, row.frequency) == (noise, rate)]
        _draw(axes, here, series, 4 if across > 2 else 6)
        pairs = span(row.effect.n for row in here if row.effect is not None)
        axes.set_title(f"{condition(noise, rate)}, n = {pairs}", color=GREY)
        normalised = bool(scaled(data).sel(noise=noise, frequency=rate))
        if normalised:
            alike.append(axes)
        axes.set_xlabel(f"difference in {MU if normalised else RAW_LABELS[episode_metric(data)]}")
    share_x(alike)
    for axes in panels[len(places) :]:
        axes.axis("off")
    panels[0].set_yticks(range(len(series)), [one.label for one in series])
    panels[0].set_ylim(len(series) - 0.4, -0.6)
    return figure


def _draw(axes: Axes, rows: list[Comparison], series: list[Series], ticks: int) -> None:
    """Draw one condition, with at most `ticks` steps between ticks."""
    axes.axvline(0, color="0.5", linewidth=0.9, zorder=1)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=ticks)  # small differences have long numbers
    for row in rows:
        place = next(i for i, one in enumerate(series) if (one.learner, one.strategy) == (row.learner, row.strategy))
        one, effect = series[place], row.effect
        assert effect is not None
        if row.same:
            axes.text(0, place, " same runs", va="center", color=GREY, size=8)
            continue
        ends = effect.interval()
        if np.isfinite(ends).all():
            axes.plot(ends, (place, place), color=one.color, linewidth=1.6, zorder=2)
        face = one.color if row.chance < SIGNIFICANT else "white"
        axes.plot(
            effect.estimate, place, marker=one.marker, color=one.color, markerfacecolor=face, markersize=5, zorder=3
        )
