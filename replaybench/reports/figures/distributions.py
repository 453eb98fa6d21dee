"""Figures of paired differences and of performance profiles (Agarwal et al., 2021)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replaybench.experiments.comparison import baseline_label, final_scores, first_comparison, headline, scaled
from replaybench.experiments.dataset import episode_metric, runs_there, the_last
from replaybench.experiments.effects import SIGNIFICANT, profile, profile_band
from replaybench.reports.figures import style
from replaybench.reports.figures.style import GREY, MU


def paired_differences(data: xr.Dataset) -> Figure | None:
    """Plot the final scores of one plant's strategies minus those of the study's first strategy, seed by seed.

    In a study with one strategy, the plot compares learners, noise levels or control rates instead. The result is None
    if no comparison has at least two common seeds.
    """
    rows, baseline, axis = first_comparison(data) or ([], "", "strategy")
    rows = [row for row in rows if row.effect is not None and row.effect.n > 1]
    places = list(dict.fromkeys((row.noise, row.frequency) for row in rows))
    if not places:
        return None
    drawn = {(row.learner, row.strategy) for row in rows}
    named = {(one.learner, one.strategy): one for one in style.all_series(data)}
    series = {names: one for names, one in named.items() if names in drawn}
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
            ends, face = effect.interval(), one.color if row.sign else "white"
            if np.isfinite(ends).all():
                axes.plot(ends, (place, place), color=one.color, linewidth=1.6, zorder=2)
            mark: dict[str, Any] = {"marker": one.marker, "color": one.color, "markerfacecolor": face}
            axes.plot(effect.estimate, place, markersize=5, zorder=3, **mark)
        return pairs

    label = baseline_label(baseline, axis)
    caption = f"Difference from {label}; filled if p < {SIGNIFICANT:g}."
    caption += " Same runs: equal rewards in all episodes." * any(row.same for row in rows)
    caption += f"\nn: paired seeds; mean of {the_last(data, 'training')}, exploration included; 95 % BCa intervals; "
    caption += "sign-flip test, Holm within a panel."
    title, height, extra = headline(rows, baseline, axis), 0.75 + 0.24 * len(series), 0.062 * max(map(len, labels))
    of = f"difference from {label} in " if len(places) == 1 else "difference in "
    figure, panels = draw_conditions(data, title, caption, places, draw, height, extra=extra, of=of)
    panels[0, 0].set_yticks(range(len(series)), labels)
    panels[0, 0].set_ylim(len(series) - 0.4, -0.6)
    return figure


_LEVELS: Final = 300
_BANDS: Final = 4
"""Largest number of curves with bands. With more curves, bands would hide each other."""


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
    """Draw one panel of scores for each pair of noise level and control rate.

    Args:
        places: Noise level and control rate of each panel.
        draw: Function that draws a panel, given the panel's axes, noise level and control rate. The function returns
            the numbers of runs, which are written into the title of the panel.
        height: Height of a panel [inch].
        extra: Width of the figure in addition to the panels [inch].
        of: First words of the labels of the x axes.
        labels: Texts of the legend.

    Returns:
        The figure, and its axes as an array of shape `[rows, columns]`.
    """
    across = style.panels_across(len(places))
    shape = -(-len(places) // across), across
    size = style.panel_width(across) * across + extra, height * shape[0]
    figure, panels = style.new_panels(data, title, caption, size, shape, labels, sharey=True)
    sharing: list[Axes] = []
    for axes, (noise, rate) in zip(panels.flat, places, strict=False):
        axes.set_title(f"{style.condition(noise, rate)}, n = {style.span(draw(axes, noise, rate))}", color=GREY)
        normalised = bool(scaled(data).sel(noise=noise, frequency=rate))
        sharing += [axes] * normalised
        axes.set_xlabel(of + (MU if normalised else style.RAW_LABELS[episode_metric(data)]))
        axes.locator_params(axis="x", nbins=4 if across > 2 else 6)  # small differences have long numbers
    ends = [axes.get_xlim() for axes in sharing]
    for axes in sharing:
        axes.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
    for axes in panels.flat[len(places) :]:
        axes.axis("off")
    return figure, panels


def performance_profiles(data: xr.Dataset) -> Figure | None:
    """Draw the performance profiles of one plant, with one panel for each pair of noise level and control rate.

    A profile is the share of runs whose final score lies above a level, as a function of the level (Agarwal et al.,
    2021). The result is None if no learner with a strategy has several runs at a noise level and control rate.
    """
    scores, series = final_scores(data), style.all_series(data)
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

    caption = "Share of runs above a level; failed runs are above none.\nn: runs of each; "
    caption += f"mean of {the_last(data, 'training')}, exploration included{'; bands: 95 % at each level' * banded}."
    labels = [one.label for one in series]
    figure, panels = draw_conditions(data, "performance profiles", caption, places, draw, 2.9, labels=labels)
    for axes in panels[:, 0]:
        axes.set_ylabel("share of runs above")
    panels[0, 0].set_ylim(-0.03, 1.03)
    style.add_legend(figure, style.legend_lines(series, width=1.4))
    return figure
