"""Differences from one strategy, seed by seed: they are a test, which overlapping intervals are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from replaybench.experiments.figures.performance_profiles import draw_conditions
from replaybench.experiments.figures.style import GREY, all_series
from replaybench.experiments.results.comparison_tables import first_comparison
from replaybench.experiments.results.dataset import the_last
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
    series = {(one.learner, one.strategy): one for one in all_series(data) if (one.learner, one.strategy) in drawn}
    labels = [one.label for one in series.values()]

    def draw(axes: Axes, noise: float, rate: float) -> list[int]:
        axes.axvline(0, color="0.5", linewidth=0.9, zorder=1)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        pairs = []
        for row in rows:
            key, effect = (row.learner, row.strategy), row.effect
            one, place = series[key], list(series).index(key)
            if (row.noise, row.frequency) != (noise, rate) or effect is None:
                continue
            pairs.append(effect.n)
            if row.same:
                axes.text(0, place, " same runs", va="center", color=GREY, size=8)
                continue
            ends, face = effect.interval(), one.color if row.chance < SIGNIFICANT else "white"
            if np.isfinite(ends).all():
                axes.plot(ends, (place, place), color=one.color, linewidth=1.6, zorder=2)
            mark: dict[str, Any] = {"marker": one.marker, "color": one.color, "markerfacecolor": face}
            axes.plot(effect.estimate, place, markersize=5, zorder=3, **mark)
        return pairs

    baseline = {"noise": f"noise {baseline}", "frequency": f"{baseline} Hz"}.get(axis, baseline)
    caption = f"Over {the_last(data, 'training')}, exploration included. Mean differences of paired seeds (marks) "
    caption += "with 95 % BCa intervals; filled if p < 0.05 (paired sign-flip test, Holm within a panel). n: pairs."
    if any(row.same for row in rows):
        caption += " Same runs: equal rewards in all episodes, as with buffers that never fill."
    title, height, extra = f"compared with {baseline}", 0.75 + 0.24 * len(series), 0.062 * max(map(len, labels))
    figure, panels = draw_conditions(data, title, caption, places, draw, height, extra=extra, of="difference in ")
    panels[0, 0].set_yticks(range(len(series)), labels)
    panels[0, 0].set_ylim(len(series) - 0.4, -0.6)
    return figure
