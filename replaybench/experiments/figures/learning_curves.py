"""Learning curves of a sweep, averaged over runs, smoothed, with bootstrap bands.

Curves show training episodes, exploration included; circles are greedy episodes. Of many series, whose bands and
circles would cover each other, intervals stand beside the curves' ends. Rewards are normalised to μ_r where the
references allow it, and raw otherwise, said on the axis. Failed runs have no curve and are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.experiments.figures.curves import Curve, OtherCurve, learning_curve, smoothing_window
from replaybench.experiments.figures.reference_lines import REFERENCES, MeasuredAxes, draw_references, reference_handles
from replaybench.experiments.figures.style import (
    GREY,
    MU_LABEL,
    RAW_LABELS,
    Series,
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
from replaybench.experiments.results.dataset import counted_in, episode_metric, in_rounds, mu_r, runs_there, steps_done

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_MOST_GREEDY: Final = 20
_FLOOR: Final = -0.5  # μ_r of early episodes may be far below; curves that end there are shown whole
STEPS_LABEL: Final = "environment steps of a run"
EPISODE_LABELS: Final = ("training episode", "round of training")
OTHERS: Final = ("#000000", "#7f7f7f", "#8c564b")
"""Colours of curves from elsewhere."""
CROWDED: Final = 5
"""Series beyond which bands cannot be told apart."""
_ROOM, _MOST_ROOM = 0.025, 0.28
"""What the interval of one series takes beside the curves, and what all of them do at most, as parts of the run."""


def learning_curves(data: xr.Dataset, in_steps: bool = False, others: Sequence[OtherCurve] = ()) -> Figure:
    """Draw one plant's mean reward over the training episodes: noise down, control rate across.

    Args:
        data: dataset of one plant.
        in_steps: whether the axis is that of environment steps.
        others: curves from elsewhere, to be drawn over them where there is one panel; in environment steps.
    """
    window, series = smoothing_window(data.sizes["episode"]), all_series(data)
    in_steps = in_steps or bool(others)
    noises, rates = data["noise"].values.tolist(), data["frequency"].values.tolist()
    rows, columns = len(noises), len(rates)
    width = panel_width(columns)
    overlaid = [
        Series("", "", other.label, OTHERS[place % len(OTHERS)], "", "--", "") for place, other in enumerate(others)
    ]
    labels = [one.label for one in (*series, *overlaid)] + [label for label, _ in REFERENCES.values()]
    title = f"{plant_name(str(data['plant'].item()))}: learning curves"
    height = 0.66 * width if rows == 1 else max(1.9, 0.52 * width)
    height = max(height * rows + 0.3, legend_height(labels))
    caption = _caption(data, window, len(series))
    figure = new_figure(width * columns + 0.5 + legend_width(labels), height, title, caption)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
    usable = np.isfinite(mu_r(data, data["reference_dp"]).transpose("noise", "frequency").values)
    for (row, column), axes in np.ndenumerate(panels):
        here = data.isel(noise=row, frequency=column)
        _draw_panel(axes, here, series, window, bool(usable[row, column]), in_steps)
        for one, other in zip(overlaid, others, strict=True):
            draw_curve(axes, one, other.scaled(here, bool(usable[row, column])))
        axes.set_title(condition(noises[row], rates[column]), color=GREY)
    drawn = np.array([[bool(axes.lines) for axes in row] for row in panels])
    for row, column in np.argwhere(drawn).tolist():
        axes = panels[row, column]
        if not drawn[row, :column].any() or not usable[row, : column + 1].all():
            axes.set_ylabel(MU_LABEL if usable[row, column] else RAW_LABELS[episode_metric(data)])
        else:
            axes.tick_params(labelleft=False)
        if not drawn[row + 1 :, column].any():
            axes.set_xlabel(STEPS_LABEL if in_steps else EPISODE_LABELS[in_rounds(data)])
            axes.tick_params(labelbottom=True)
    _share_view([panels[place] for place in zip(*np.nonzero(drawn & usable), strict=True)])
    known = {
        (row, column): MeasuredAxes(
            panels[row, column], _levels(data.isel(noise=row, frequency=column), bool(usable[row, column]))
        )
        for row, column in np.argwhere(drawn).tolist()
    }
    shown = draw_references([panel for place, panel in known.items() if usable[place]])
    for place, panel in known.items():
        if not usable[place]:
            shown |= draw_references([panel])
    add_legend(figure, [*_legend(series), *_legend(overlaid), *reference_handles(shown)])
    return figure


def _caption(data: xr.Dataset, window: int, series: int) -> str:
    """Say what curves, bands and circles are, as far as there are any."""
    several, crowded = data.sizes["seed"] > 1, series > CROWDED
    counted = counted_in(data)
    caption = "Training episodes, exploration included" + (": mean over runs" if several else "; one run")
    caption += f", moving average over {window} {counted}" if window > 1 else ""
    if crowded:
        last = f"the last {window} {counted}" if window > 1 else f"the last {counted.removesuffix('s')}"
        caption += f". Marks right of the curves: {last}"
        caption += ", with 95 % bootstrap intervals over runs" if several else ""
        return caption + ", in the order of the legend."
    caption += ", band: 95 % bootstrap interval over runs" if several else ""
    if data["reward_greedy"].notnull().any():
        caption += ". Open circles: greedy episodes"
        stride = _greedy_stride(data.sizes["greedy_episode"])
        caption += f", one in {stride} of each series" if stride > 1 else ""
        caption += ", in turns" if stride > 1 and series > 1 else ""
        caption += ", mean over runs" if several else ""
    return caption + "."


def _greedy_stride(count: int) -> int:
    """Return of how many greedy episodes one is drawn."""
    return max(1, -(-count // _MOST_GREEDY))


def _levels(data: xr.Dataset, normalised: bool) -> dict[str, float]:
    """Return the references of one noise and control rate, in the unit of its axis."""
    return {name: float(_scaled(data, data[name], normalised)) for name in REFERENCES if name in data}


def _scaled(data: xr.Dataset, reward: xr.DataArray, normalised: bool) -> Floats:
    values: Floats = (mu_r(data, reward) if normalised else reward).values
    return values


def _draw_panel(
    axes: Axes, data: xr.Dataset, series: Sequence[Series], window: int, normalised: bool, in_steps: bool
) -> None:
    """Draw the curves of one noise and control rate."""
    failed, crowded = [], len(series) > CROWDED
    counted = np.arange(data.sizes["episode"] + 1.0)
    done = {one.label: steps_done(data, one.where) if in_steps else counted for one in series}
    episodes = max(float(ends[-1]) for ends in done.values())
    room = min(_ROOM, _MOST_ROOM / (len(series) + 1.5))
    axes.set_xlim(0, episodes * (1.01 + crowded * room * (len(series) + 1.5)))
    for index, one in enumerate(series):
        runs = data.sel(one.where)
        rewards, greedy = (_scaled(data, runs[name], normalised) for name in ("reward", "reward_greedy"))
        present, whole = runs_there(runs).values, np.isfinite(rewards).all(axis=1)
        if (present & ~whole).any():
            failed.append(f"{(present & ~whole).sum()} of {present.sum()} {one.label}")
        if not whole.any():
            continue
        curve = learning_curve(rewards[whole], window)
        curve = curve._replace(episode=np.interp(curve.episode, counted, done[one.label]))
        draw_curve(axes, one, curve, not crowded)
        if crowded:
            _draw_end(axes, one, rewards[whole][:, -window:], episodes * (1.01 + room * (index + 1.5)))
            continue
        stride = _greedy_stride(greedy.shape[1])
        # The series take turns, so that their circles do not cover each other.
        picked = slice(stride - 1 - index * stride // len(series), None, stride)
        at = np.interp(data["greedy_episode"].values[picked], counted, done[one.label])
        _draw_greedy(axes, one, at, greedy[whole][:, picked].mean(axis=0))
    if not axes.lines:
        axes.axis("off")
        say(axes, "all runs failed" if failed else "no results")
        return
    axes.xaxis.set_major_locator(whole_numbers(5, episodes))
    if failed:
        note = axes.legend(  # which finds where least is drawn
            handles=[], title="failed runs, not drawn:\n" + "\n".join(failed), title_fontsize=7, loc="best",
            framealpha=0.8, edgecolor="none", borderpad=0.1,
        )  # fmt: skip
        note.get_title().set(color=GREY, ha="left")
    axes.grid(axis="y", color="0.92", linewidth=0.7)


def draw_curve(axes: Axes, series: Series, curve: Curve, banded: bool = True) -> None:
    """Draw a mean and, where there are several runs and it is asked for, its band."""
    marker = "." if len(curve.episode) < 3 else ""
    axes.plot(
        *(curve.episode, curve.mean), color=series.color, linestyle=series.dashes, linewidth=1.5 if banded else 1.2,
        marker=marker,
        label=series.label, zorder=3,
    )  # fmt: skip
    if curve.band is not None and banded:
        axes.fill_between(curve.episode, *curve.band, color=series.color, alpha=0.18, linewidth=0, zorder=2)


def _draw_greedy(axes: Axes, series: Series, episode: Floats, mean: Floats) -> None:
    axes.plot(
        *(episode, mean), linestyle="none", marker="o", markersize=2.8, markerfacecolor="white",
        markeredgecolor=series.color, markeredgewidth=0.7, label=f"greedy {series.label}", zorder=4,
    )  # fmt: skip


def _draw_end(axes: Axes, series: Series, rewards: Floats, x: float) -> None:
    """Draw what the last window `[N, window]` comes to, with its interval, beside the curves."""
    curve = learning_curve(rewards, rewards.shape[1])
    if curve.band is not None:
        ends = [float(end[0]) for end in curve.band]
        axes.plot((x, x), ends, color=series.color, linewidth=1.3, label=f"interval {series.label}", zorder=3)
    axes.plot(x, curve.mean[0], label=f"end {series.label}", linestyle="none", zorder=4, **_mark(series))


def _mark(series: Series) -> dict[str, Any]:
    """Return how a series is marked."""
    return {"marker": series.marker, "markersize": 4, "color": series.color, "markerfacecolor": series.face}


def _share_view(panels: Sequence[Axes]) -> None:
    """Give panels of μ_r one common view, which leaves out how deep the first episodes fall."""
    drawn = [np.asarray(line.get_ydata(), np.float64) for axes in panels for line in axes.lines]
    curves = [values for values in (values[np.isfinite(values)] for values in drawn) if values.size]
    if not curves:
        return
    late = min(values[-max(2, len(values) // 5) :].min() for values in curves)
    low = min(0.0, late, max(_FLOOR, min(values.min() for values in curves)))
    high = max(1.0, *(values.max() for values in curves))
    for axes in panels:
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        lowest = (np.asarray(line.get_ydata(), np.float64) for line in axes.lines)
        deepest = min((values[np.isfinite(values)].min(initial=low) for values in lowest), default=low)
        if deepest < axes.get_ylim()[0]:
            told = f"↓ down to {deepest:.1f}".replace("-", "−")
            axes.text(0.98, 0.02, told, transform=axes.transAxes, ha="right", color=GREY, size=7)


def _legend(series: Sequence[Series]) -> list[Any]:
    from matplotlib.lines import Line2D

    crowded = len(series) > CROWDED
    marks = [_mark(one) if crowded else {"color": one.color} for one in series]
    width = 1.5 if crowded else 1.8
    return [
        Line2D([], [], linestyle=one.dashes, linewidth=width, label=one.label, **mark)
        for one, mark in zip(series, marks, strict=True)
    ]
