"""Learning curves, episode lengths and learner metrics of a sweep.

Curves show training episodes with exploration; circles are greedy episodes. With many series, intervals at the ends of
the curves replace bands and circles. Rewards are normalised to μ_r if the references allow it. Failed runs are counted
and not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr

from replaybench.experiments.dataset import (
    counted_in,
    episode_metric,
    in_rounds,
    lengths_vary,
    mu_r,
    runs_there,
    steps_done,
)
from replaybench.reports.figures.curves import (
    CROWDED,
    EPISODE_LABELS,
    REFERENCES,
    Curve,
    OtherCurve,
    curve_range,
    draw_references,
    learning_curve,
    reference_handles,
    series_curves,
    smoothing_window,
)
from replaybench.reports.figures.style import (
    GREY,
    MU_LABEL,
    RAW_LABELS,
    Series,
    add_legend,
    all_series,
    condition,
    legend_lines,
    minus,
    new_panels,
    panel_width,
    whole_numbers,
    write_note,
)
from replaybench.runtime.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_GREEDY: Final = 20
STEPS_LABEL: Final = "environment steps of a run"
OTHERS: Final = ("#000000", "#7f7f7f", "#8c564b")
"""Colours of curves from elsewhere."""
_ROOM, _MOST_ROOM = 0.025, 0.28
"""Width of one series' interval right of the curves, and of all of them at most, as parts of the run."""


def learning_curves(data: xr.Dataset, in_steps: bool = False, others: Sequence[OtherCurve] = ()) -> Figure:
    """Draw one plant's mean reward over the training episodes: noise down, control rate across.

    Args:
        in_steps: whether the x axis counts environment steps.
        others: curves from elsewhere to draw over them, in environment steps; for a single panel.
    """
    window, series = smoothing_window(data.sizes["episode"]), all_series(data)
    in_steps = in_steps or bool(others)
    rows, columns = data.sizes["noise"], data.sizes["frequency"]
    width = panel_width(columns)
    overlaid = [
        Series("", "", other.label, OTHERS[place % len(OTHERS)], "", "--", "") for place, other in enumerate(others)
    ]
    labels = [one.label for one in (*series, *overlaid)] + [label for label, _ in REFERENCES.values()]
    height = 0.66 * width if rows == 1 else max(1.9, 0.52 * width)
    size = width * columns + 0.5, height * rows + 0.3
    caption = _caption(data, window, len(series))
    figure, panels = new_panels(data, "learning curves", caption, size, (rows, columns), labels, sharex=True)
    usable = np.isfinite(mu_r(data, data["reference_dp"]).transpose("noise", "frequency").values)
    for place, axes in np.ndenumerate(panels):
        here = data.isel(noise=place[0], frequency=place[1])
        _draw_panel(axes, here, series, window, bool(usable[place]), in_steps)
        for one, other in zip(overlaid, others, strict=True):
            draw_curve(axes, one, other.scaled(here, bool(usable[place])))
        axes.set_title(condition(here["noise"].item(), here["frequency"].item()), color=GREY)
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
    _share_view(panels[drawn & usable].tolist())
    known = [
        (panels[row, column], _levels(data, row, column, usable[row, column]), usable[row, column])
        for row, column in np.ndindex(rows, columns)
    ]
    shown = draw_references([(axes, levels) for axes, levels, normalised in known if axes.lines and normalised])
    for axes, levels, normalised in known:
        shown |= draw_references([(axes, levels)] if axes.lines and not normalised else [])
    crowded = len(series) > CROWDED
    handles = legend_lines(series, crowded, 1.5 if crowded else 1.8)
    add_legend(figure, [*handles, *legend_lines(overlaid), *reference_handles(shown)])
    return figure


def _caption(data: xr.Dataset, window: int, series: int) -> str:
    several, crowded = data.sizes["seed"] > 1, series > CROWDED
    caption, counted = curve_caption(data, window), counted_in(data)
    if crowded:
        last = f"the last {window} {counted}" if window > 1 else f"the last {counted.removesuffix('s')}"
        caption += f". Marks right of the curves: {last}"
        caption += ", with 95 % bootstrap intervals over runs" if several else ""
        return caption + ", in the order of the legend."
    caption += ", band: 95 % bootstrap interval over runs" if several else ""
    if data["reward_greedy"].notnull().any():
        caption += ". Open circles: greedy episodes"
        interval = _marker_interval(data.sizes["greedy_episode"])
        caption += f", one in {interval} of each series" if interval > 1 else ""
        caption += ", in turns" if interval > 1 and series > 1 else ""
        caption += ", mean over runs" if several else ""
    return caption + "."


def curve_caption(data: xr.Dataset, window: int) -> str:
    """Return the beginning of a caption of curves over training episodes."""
    caption = "Training episodes, exploration included"
    caption += ": mean over runs" if data.sizes["seed"] > 1 else "; one run"
    return caption + (f", moving average over {window} {counted_in(data)}" if window > 1 else "")


def _marker_interval(count: int) -> int:
    return max(1, -(-count // _MOST_GREEDY))


def _levels(data: xr.Dataset, noise: int, frequency: int, normalised: bool) -> dict[str, float]:
    here = data.isel(noise=noise, frequency=frequency)
    levels = {name: float(_scaled(here, here[name], normalised)) for name in REFERENCES if name in here}
    return {name: level for name, level in levels.items() if np.isfinite(level)}


def _scaled(data: xr.Dataset, reward: xr.DataArray, normalised: bool) -> Floats:
    values: Floats = (mu_r(data, reward) if normalised else reward).values
    return values


def _draw_panel(
    axes: Axes, data: xr.Dataset, series: Sequence[Series], window: int, normalised: bool, in_steps: bool
) -> None:
    """Draw the curves of one noise and control rate."""
    crowded = len(series) > CROWDED
    counted = np.arange(data.sizes["episode"] + 1.0)
    done = {one: steps_done(data, one.where) if in_steps else counted for one in series}
    episodes = max(float(ends[-1]) for ends in done.values())
    room = min(_ROOM, _MOST_ROOM / (len(series) + 1.5))
    axes.set_xlim(0, episodes * (1.01 + crowded * room * (len(series) + 1.5)))
    rewards = {one: _scaled(data, data.sel(one.where)["reward"], normalised) for one in series}
    for one, curve in series_curves(rewards.items(), window):
        draw_curve(axes, one, curve._replace(episode=np.interp(curve.episode, counted, done[one])), not crowded)
        whole, index = np.isfinite(rewards[one]).all(axis=1), series.index(one)
        if crowded:
            _draw_end(axes, one, rewards[one][whole][:, -window:], episodes * (1.01 + room * (index + 1.5)))
            continue
        interval = _marker_interval(data.sizes["greedy_episode"])
        picked = slice(interval - 1 - index * interval // len(series), None, interval)  # series alternate
        greedy = _scaled(data, data.sel(one.where)["reward_greedy"], normalised)[whole][:, picked].mean(axis=0)
        axes.plot(
            *(np.interp(data["greedy_episode"].values[picked], counted, done[one]), greedy), linestyle="none",
            marker="o", markersize=2.8, markerfacecolor="white", markeredgecolor=one.color, markeredgewidth=0.7,
            label=f"greedy {one.label}", zorder=4,
        )  # fmt: skip
    failed = []
    for one in series:
        present = runs_there(data.sel(one.where)).values
        lost = present & ~np.isfinite(rewards[one]).all(axis=1)
        failed += [f"{lost.sum()} of {present.sum()} {one.label}"] if lost.any() else []
    if not axes.lines:
        axes.axis("off")
        write_note(axes, "all runs failed" if failed else "no results")
        return
    axes.xaxis.set_major_locator(whole_numbers(5, episodes))
    if failed:
        note = axes.legend(  # a legend is placed where it covers least
            handles=[], title="failed runs, not drawn:\n" + "\n".join(failed), title_fontsize=7, loc="best",
            framealpha=0.8, edgecolor="none", borderpad=0.1,
        )  # fmt: skip
        note.get_title().set(color=GREY, ha="left")
    axes.grid(axis="y")


def draw_curve(axes: Axes, series: Series, curve: Curve, banded: bool = True) -> None:
    """Draw a mean and, if `banded` and there are several runs, its band."""
    marker, width = "." if len(curve.episode) < 3 else "", 1.5 if banded else 1.2
    look: dict[str, Any] = {"color": series.color, "linestyle": series.dashes, "linewidth": width, "marker": marker}
    axes.plot(curve.episode, curve.mean, label=series.label, zorder=3, **look)
    if curve.band is not None and banded:
        axes.fill_between(curve.episode, *curve.band, color=series.color, alpha=0.18, linewidth=0, zorder=2)


def _draw_end(axes: Axes, series: Series, rewards: Floats, x: float) -> None:
    curve = learning_curve(rewards, rewards.shape[1])
    if curve.band is not None:
        ends = [float(end[0]) for end in curve.band]
        axes.plot((x, x), ends, color=series.color, linewidth=1.3, label=f"interval {series.label}", zorder=3)
    mark: dict[str, Any] = {"marker": series.marker, "markersize": 4, "markerfacecolor": series.face}
    axes.plot(x, curve.mean[0], label=f"end {series.label}", linestyle="none", zorder=4, color=series.color, **mark)


def _share_view(panels: Sequence[Axes]) -> None:
    """Set a common range of all panels in μ_r, which cuts off low values of the first episodes."""
    drawn = {axes: [np.asarray(line.get_ydata(), np.float64) for line in axes.lines] for axes in panels}
    finite = {axes: [values[np.isfinite(values)] for values in lines] for axes, lines in drawn.items()}
    curves = [values for lines in finite.values() for values in lines if values.size]
    if not curves:
        return
    low, high = curve_range(curves)
    low, high = min(0.0, low), max(1.0, high)
    for axes, lines in finite.items():
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        deepest = min(values.min(initial=low) for values in lines)
        if deepest < axes.get_ylim()[0]:
            text = minus(f"↓ down to {deepest:.1f}")
            axes.text(0.98, 0.02, text, transform=axes.transAxes, ha="right", color=GREY, size=7)


def length_curves(data: xr.Dataset) -> Figure | None:
    """Draw the mean length of one plant's training episodes: noise down, rate across; None if all are equal."""
    if not lengths_vary(data):
        return None
    rows, columns = data.sizes["noise"], data.sizes["frequency"]
    series, window, width = all_series(data), smoothing_window(data.sizes["episode"]), panel_width(columns)
    banded = len(series) <= CROWDED
    caption = curve_caption(data, window)
    caption += ", band: 95 % bootstrap interval over runs." if data.sizes["seed"] > 1 and banded else "."
    size, labels = (width * columns + 0.5, 0.6 * width * rows), [one.label for one in series]
    figure, panels = new_panels(
        data, "length of episodes", caption, size, (rows, columns), labels, sharex=True, sharey=True
    )
    for (row, column), axes in np.ndenumerate(panels):
        here = data["episode_steps"].isel(noise=row, frequency=column)
        runs = ((one, here.sel(one.where).transpose("seed", "episode").values) for one in series)
        for one, curve in series_curves(runs, window):
            draw_curve(axes, one, curve, banded)
        if not axes.lines:
            write_note(axes, "no results")
        axes.set_title(condition(here["noise"].item(), here["frequency"].item()), color=GREY)
        axes.set_xlim(0, 1.01 * data.sizes["episode"])
        axes.xaxis.set_major_locator(whole_numbers(5, data.sizes["episode"]))
        axes.grid(axis="y")
    for axes in panels[-1]:
        axes.set_xlabel(EPISODE_LABELS[in_rounds(data)])
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].yaxis.get_major_locator().set_params(integer=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("steps per episode")
    add_legend(figure, list({line.get_label(): line for axes in panels.flat for line in axes.lines}.values()))
    return figure


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
