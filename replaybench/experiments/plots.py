"""The figures of a sweep: this file draws the learning curves and gathers all others into the run's folder.

Figures show training episodes, exploration included, unless a label says greedy. Rewards are normalised to μ_r where
the references allow it, and raw otherwise, said on the axis. Failed runs have no curve and are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.runs import RunFolder
from replaybench.experiments.figure_style import (
    GREY,
    Series,
    add_legend,
    all_series,
    condition,
    file_names,
    legend_width,
    new_figure,
    plant_name,
    save,
    say,
    style,
)
from replaybench.experiments.results import mu_r
from replaybench.experiments.score_plots import response, score_bars
from replaybench.experiments.study import Cell


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_RESAMPLES: Final = 1000
_MOST_POINTS: Final = 600
_MOST_GREEDY: Final = 30
_FLOOR: Final = -0.5  # μ_r of early episodes may be far below; curves that end there are shown whole
_ALWAYS: Final = ("reference_random", "reference_dp")
_REFERENCES: Final = {
    "reference_dp": ("dynamic programming", "-"),
    "reference_lqr": ("linear-quadratic regulator", (0, (5, 2))),
    "reference_zero": ("doing nothing", (0, (1, 1.5))),
    "reference_random": ("random actions", (0, (5, 1.5, 1, 1.5))),
}


def draw_figures(data: xr.Dataset, folder: RunFolder, cells: Sequence[Cell]) -> list[Path]:
    """Draw all figures of a sweep as PNG and SVG into its folder.

    Args:
        data: dataset of `results.assemble`.
        folder: run folder; policies are read from the folders of its cells.
        cells: cells of the study.

    Returns:
        The paths of the PNG files.
    """
    drawn = []
    plants = [str(plant) for plant in data["plant"].values]
    with style():
        for plant, name in zip(plants, file_names(plants), strict=True):
            here = data.sel(plant=plant)
            if not here["reward"].notnull().any():
                continue
            figures: dict[str, Callable[[], Figure | None]] = {
                "learning_curves": lambda here=here: learning_curves(here),
                "scores": lambda here=here: score_bars(here),
                "response_noise": lambda here=here: response(here, "noise"),
                "response_frequency": lambda here=here: response(here, "frequency"),
            }
            for kind, draw in figures.items():
                figure = draw()
                if figure is not None:
                    drawn.append(save(figure, folder.figures, f"{kind}-{name}"))
    return drawn


class Curve(NamedTuple):
    """A mean learning curve `[P]` with its 95 % band, which is None for a single run; `episode` is a window's middle."""

    episode: Floats
    mean: Floats
    band: tuple[Floats, Floats] | None


def moving_mean(rewards: Floats, window: int) -> Floats:
    """Return the mean of every whole window along the last axis, `[..., E]` → `[..., E - window + 1]`."""
    total = np.cumsum(rewards, axis=-1)
    total = np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1)
    found: Floats = (total[..., window:] - total[..., :-window]) / window
    return found


def smoothing_window(episodes: int) -> int:
    """Return the odd number of episodes to average over: about a hundredth of the run, at most 25."""
    return min(25, 1 + 2 * (episodes // 200))


def learning_curve(rewards: Floats, window: int) -> Curve:
    """Average runs `[N, E]` over windows of episodes and over runs; the band is a percentile bootstrap over runs."""
    smooth = moving_mean(rewards, window)
    episode = np.arange(smooth.shape[1]) + (window + 1) / 2
    stride = max(1, min(window // 2, smooth.shape[1] // _MOST_POINTS))  # denser points would show nothing more
    smooth, episode = smooth[:, ::stride], episode[::stride]
    runs = len(smooth)
    if runs < 2:
        return Curve(episode, smooth.mean(axis=0), None)
    draws = np.random.Generator(np.random.PCG64(0)).multinomial(runs, np.full(runs, 1 / runs), _RESAMPLES)
    low, high = np.percentile(draws @ smooth / runs, (2.5, 97.5), axis=0)
    return Curve(episode, smooth.mean(axis=0), (low, high))


def learning_curves(data: xr.Dataset) -> Figure:
    """Draw one plant's mean reward over the training episodes: noise down, control rate across.

    Args:
        data: dataset of one plant.
    """
    window, series = smoothing_window(data.sizes["episode"]), all_series(data)
    noises, rates = data["noise"].values, data["frequency"].values
    rows, columns = len(noises), len(rates)
    several = data.sizes["seed"] > 1
    caption = "Training episodes, exploration included" + (": mean over runs" if several else "; one run")
    caption += f", moving average over {window} episodes" if window > 1 else ""
    caption += ", band: 95 % bootstrap interval over runs" if several else ""
    if data["reward_greedy"].notnull().any():
        caption += ". Open circles: greedy episodes, not smoothed"
    width = min(5.0, max(2.3, 11 / columns))
    labels = [one.label for one in series] + [label for label, _ in _REFERENCES.values()]
    title = f"{plant_name(str(data['plant'].item()))}: learning curves"
    figure = new_figure(
        width * columns + 0.5 + legend_width(labels), max(2.0, 0.66 * width) * rows + 0.3, title, caption + "."
    )
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
    usable = np.isfinite(mu_r(data, data["reference_dp"]).transpose("noise", "frequency").values)
    for (row, column), axes in np.ndenumerate(panels):
        _draw_panel(axes, data.isel(noise=row, frequency=column), series, window, bool(usable[row, column]))
        axes.set_title(condition(noises[row], rates[column]), color=GREY)
        if column == 0 or usable[row, column] != usable[row, 0]:
            axes.set_ylabel("μ_r  (0 = random, 1 = DP)" if usable[row, column] else "raw mean reward per step")
        if row == rows - 1:
            axes.set_xlabel("training episode")
    _share_view([axes for place, axes in np.ndenumerate(panels) if usable[place]])
    shown: set[str] = set()
    for (row, column), axes in np.ndenumerate(panels):
        if axes.lines:
            shown |= _draw_references(axes, data.isel(noise=row, frequency=column), bool(usable[row, column]))
    add_legend(figure, _legend(series, shown))
    return figure


def _scaled(data: xr.Dataset, reward: xr.DataArray, normalised: bool) -> Floats:
    values: Floats = (mu_r(data, reward) if normalised else reward).values
    return values


def _draw_panel(axes: Axes, data: xr.Dataset, series: Sequence[Series], window: int, normalised: bool) -> None:
    """Draw the curves of one noise and control rate."""
    failed = []
    axes.set_xlim(0, data.sizes["episode"] + 1)
    for one in series:
        runs = data.sel(one.where)
        rewards, greedy = (_scaled(data, runs[name], normalised) for name in ("reward", "reward_greedy"))
        present, whole = ~np.isnan(rewards).all(axis=1), np.isfinite(rewards).all(axis=1)
        if (present & ~whole).any():
            failed.append(f"{(present & ~whole).sum()} of {present.sum()} {one.label}")
        if whole.any():
            _draw_curve(axes, one, learning_curve(rewards[whole], window))
            _draw_greedy(axes, one, data["greedy_episode"].values, greedy[whole])
    if not axes.lines:
        say(axes, "all runs failed" if failed else "no results")
        return
    if failed:
        text = "failed runs, not drawn:\n" + "\n".join(failed)
        axes.text(0.98, 0.03, text, transform=axes.transAxes, ha="right", va="bottom", size=7, color=GREY, zorder=5)
    axes.grid(axis="y", color="0.92", linewidth=0.7)


def _draw_curve(axes: Axes, series: Series, curve: Curve) -> None:
    marker = "." if len(curve.episode) < 3 else ""
    axes.plot(
        *(curve.episode, curve.mean), color=series.color, linestyle=series.dashes, linewidth=1.5, marker=marker,
        label=series.label, zorder=3,
    )  # fmt: skip
    if curve.band is not None:
        axes.fill_between(curve.episode, *curve.band, color=series.color, alpha=0.18, linewidth=0, zorder=2)


def _draw_greedy(axes: Axes, series: Series, episodes: NDArray[np.int64], rewards: Floats) -> None:
    stride = max(1, -(-len(episodes) // _MOST_GREEDY))
    picked = slice(stride - 1, None, stride)
    axes.plot(
        *(episodes[picked], rewards.mean(axis=0)[picked]), linestyle="none", marker="o", markersize=3,
        markerfacecolor="white", markeredgecolor=series.color, markeredgewidth=0.7, zorder=4,
        label=f"greedy {series.label}",
    )  # fmt: skip


def _draw_references(axes: Axes, data: xr.Dataset, normalised: bool) -> set[str]:
    """Draw the level of each reference, random and DP always, the others if in view; return the names of the drawn."""
    levels = {name: float(_scaled(data, data[name], normalised)) for name in _REFERENCES}
    always = [level for name, level in levels.items() if name in _ALWAYS and np.isfinite(level)]
    low, high = axes.get_ylim()
    axes.set_ylim(min([low, *always]), max([high, *always]))
    drawn = {name: level for name, level in levels.items() if axes.get_ylim()[0] <= level <= axes.get_ylim()[1]}
    for name, level in drawn.items():
        axes.axhline(level, color="0.45", linewidth=0.9, linestyle=_REFERENCES[name][1], zorder=1)
    return set(drawn)


def _share_view(panels: Sequence[Axes]) -> None:
    """Give panels of μ_r one common view, which leaves out how deep the first episodes fall."""
    curves = [line.get_ydata() for axes in panels for line in axes.lines if line.get_label()[0] != "_"]
    curves = [values[np.isfinite(values)] for values in map(np.asarray, curves)]
    curves = [values for values in curves if values.size]
    if not curves:
        return
    late = min(values[-max(1, len(values) // 5) :].min() for values in curves)
    low = min(0.0, late, max(_FLOOR, min(values.min() for values in curves)))
    high = max(1.0, *(values.max() for values in curves))
    for axes in panels:
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


def _legend(series: Sequence[Series], references: set[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    curves = [Line2D([], [], color=one.color, linestyle=one.dashes, linewidth=1.8, label=one.label) for one in series]
    levels = [
        Line2D([], [], color="0.45", linestyle=dashes, linewidth=0.9, label=label)
        for name, (label, dashes) in _REFERENCES.items()
        if name in references
    ]
    return [*curves, *levels]
