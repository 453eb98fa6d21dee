"""Figures of learning curves, lengths of episodes and metrics of learners.

Curves show training episodes with exploration, and circles show greedy episodes. Rewards are normalised to μ_r if μ_r
is defined. Failed runs are counted and not drawn.
"""

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from replaybench.experiments import dataset
from replaybench.experiments.comparison import final_rewards, first_comparison, headline, reference_rows, scaled
from replaybench.reports.figures import curves, style
from replaybench.reports.figures.style import GREY, MU, MU_LABEL, RAW_LABELS, Series
from replaybench.runtime.arrays import Floats

_MOST_GREEDY: Final = 20
STEPS_LABEL: Final = "environment steps of a run"
OTHERS: Final = ("#000000", "#7f7f7f", "#8c564b")
"""Colours of the curves of other programs."""
_ACROSS: Final = 4
"""Number of panels in a row if each panel shows one learner with a strategy."""
_PALE: Final = "0.8"
_GREEDY: Final[dict[str, Any]] = {"marker": "o", "markersize": 2.8, "markerfacecolor": "white", "markeredgewidth": 0.7}


def learning_curves(data: xr.Dataset, in_steps: bool = False, others: Sequence[curves.OtherCurve] = ()) -> Figure:
    """Draw the mean reward of one plant over the training episodes.

    Rows of panels are noise levels, and columns are control rates. A series is a learner with a strategy. If there are
    more than six series, each panel shows two of them in colour, the study's first one and the one with the highest
    final reward. The other series are grey. With a single noise level and control rate, and without curves of other
    programs, more than six series get one panel each, in which the other series are grey.

    Args:
        in_steps: Whether the x axes count environment steps instead of episodes.
        others: Curves of other programs to add. With them, the x axes count environment steps.
    """
    window, series = curves.smoothing_window(data.sizes["episode"]), style.all_series(data)
    in_steps = in_steps or bool(others)
    shape = data.sizes["noise"], data.sizes["frequency"]
    usable = scaled(data).transpose("noise", "frequency").values
    conditions = [data.isel(noise=row, frequency=column) for row, column in np.ndindex(shape)]
    crowded = len(series) > curves.CROWDED
    multiples = crowded and len(conditions) == 1 and not others
    views = [_view(here, series, bool(ok), window) for here, ok in zip(conditions, usable.flat, strict=True)]
    if multiples:
        shape = -(-len(series) // _ACROSS), _ACROSS
        views = [views[0]._replace(series=[one]) for one in series]
    elif crowded:
        views = [view._replace(series=_pair(view.data, series)) for view in views]
    shown = list(dict.fromkeys(one for view in views for one in view.series))
    overlaid = [Series("", "", other.label, color, "", "--") for other, color in zip(others, cycle(OTHERS))]
    handles = [] if multiples else style.legend_lines([one for one in series if one in shown] + overlaid)
    handles += [Line2D([], [], label="other series", color=_PALE, linewidth=1.0)] * crowded
    if data["reward_greedy"].notnull().any():
        handles.append(Line2D([], [], label="greedy evaluation", color="none", **_GREEDY, markeredgecolor=GREY))
    labels = [] if multiples else [handle.get_label() for handle in handles]
    width = 2.35 if multiples else style.panel_width(shape[1]) + 0.4  # 0.4 inch for labels of references
    height = 0.62 * width if shape[0] == 1 else max(1.5 if multiples else 1.9, 0.5 * width)
    first = conditions[0]
    title = f"learning curves, {style.condition(first['noise'].item(), first['frequency'].item())}"
    comparison = first_comparison(data) if dataset.runs_there(data).sum("seed").max() > 1 else None
    if comparison is not None:
        title = headline(*comparison)
    caption = f"Learning curves over {dataset.counted_in(data)} of training, exploration included."
    if crowded and not multiples:
        caption += " Coloured: the study's first strategy, and the one that ends highest."
    caption += "\n" + _statistics(data, window, banded=True)
    interval = max(1, -(-data.sizes["greedy_episode"] // _MOST_GREEDY))
    if data["reward_greedy"].notnull().any() and interval > 1:
        caption += f"; circles: one in {interval} greedy evaluations"
    size = width * shape[1] + 0.5, height * shape[0] + 0.3
    figure, panels = style.new_panels(data, title, f"{caption}.", size, shape, labels, sharex=True)
    for axes, view in zip(panels.flat, views, strict=False):
        greys = [one for one in series if one not in view.series]
        _draw_panel(axes, view, greys, in_steps, several=not multiples)
        for one, other in zip(overlaid, others, strict=True):
            draw_curve(axes, one, other.scaled(view.data, view.normalised))
        name = style.condition(view.data["noise"].item(), view.data["frequency"].item())
        label = style.broken(view.series[0].label, 30) if multiples else name
        axes.set_title(label, color=GREY, size=8 if multiples else 9)
    for axes in panels.flat[len(views) :]:
        axes.axis("off")
    drawn = np.array([[bool(axes.lines) for axes in row] for row in panels])
    known = np.resize([view.normalised for view in views], panels.shape)
    for row, column in np.argwhere(drawn).tolist():
        axes = panels[row, column]
        if not drawn[row, :column].any() or not known[row, : column + 1].all():
            raw = RAW_LABELS[dataset.episode_metric(data)]
            axes.set_ylabel((MU if multiples else MU_LABEL) if known[row, column] else raw)
        else:
            axes.tick_params(labelleft=False)
        if not drawn[row + 1 :, column].any():
            axes.set_xlabel(STEPS_LABEL if in_steps else curves.EPISODE_LABELS[dataset.in_iterations(data)])
            axes.tick_params(labelbottom=True)
    _share_view(panels[drawn & known].tolist())
    levels = [(axes, view.levels(), view.normalised) for axes, view in zip(panels.flat, views, strict=False)]
    bare = panels[:, :-1].ravel().tolist() if multiples else ()  # all have the same references
    curves.draw_references([(axes, each) for axes, each, normalised in levels if axes.lines and normalised], bare)
    for axes, each, normalised in levels:
        curves.draw_references([(axes, each)] if axes.lines and not normalised else [], bare)
    style.add_legend(figure, handles, below=multiples)
    return figure


class _View(NamedTuple):
    """A panel of learning curves at one noise level and rate.

    Attributes:
        series: Pairs of learner and strategy that are drawn in colour.
        normalised: Whether rewards are converted to μ_r.
        rewards: Rewards of each pair in the unit of the panel, `[N, E]` for N seeds and E episodes.
        curves: Learning curve of each pair of which not all runs failed.
    """

    data: xr.Dataset
    series: list[Series]
    normalised: bool
    rewards: dict[Series, Floats]
    curves: dict[Series, curves.Curve]

    def scaled(self, reward: xr.DataArray) -> Floats:
        values: Floats = (dataset.mu_r(self.data, reward) if self.normalised else reward).values
        return values

    def levels(self) -> dict[str, float]:
        """Return the rewards of reference controllers by name, in the unit of the panel."""
        rows = reference_rows(self.data)
        levels = {row.name: row.mu if self.normalised else row.reward for row in rows if curves.short_label(row.name)}
        return {name: level for name, level in levels.items() if np.isfinite(level)}


def _view(data: xr.Dataset, series: list[Series], normalised: bool, window: int) -> _View:
    view = _View(data, series, normalised, {}, {})
    view.rewards.update({one: view.scaled(data["reward"].sel(one.where)) for one in series})
    view.curves.update(curves.series_curves(view.rewards.items(), window))
    return view


def _pair(data: xr.Dataset, series: Sequence[Series]) -> list[Series]:
    """Return the first pair of learner and strategy in a panel, and the pair with the highest mean final reward."""
    final = final_rewards(data).mean("seed")
    ends = {one: float(final.sel(one.where)) for one in series if np.isfinite(final.sel(one.where))}
    return list(dict.fromkeys([next(iter(ends)), max(ends, key=ends.__getitem__)])) if ends else []


def _statistics(data: xr.Dataset, window: int, banded: bool) -> str:
    """Return the second line of a caption, which states the number of runs, the moving average and the bands."""
    text = style.run_count(data) + (f"; moving average over {window} {dataset.counted_in(data)}" if window > 1 else "")
    several = bool(dataset.runs_there(data).sum("seed").max() > 1)
    return text + "; bands: 95 % bootstrap intervals" * (banded and several)


def _draw_panel(axes: Axes, view: _View, greys: Sequence[Series], in_steps: bool, several: bool) -> None:
    """Draw the curves of one panel, with a note that counts failed runs."""
    data, rewards, every = view.data, view.rewards, [*view.series, *greys]
    counted = np.arange(data.sizes["episode"] + 1.0)
    done = {one: dataset.steps_done(data, one.where) if in_steps else counted for one in every}
    episodes = max(float(ends[-1]) for ends in done.values())
    axes.set_xlim(0, 1.01 * episodes)
    interval = max(1, -(-data.sizes["greedy_episode"] // _MOST_GREEDY))
    for one, curve in ((one, view.curves[one]) for one in every if one in view.curves):
        curve = curve._replace(episode=np.interp(curve.episode, counted, done[one]))
        if one in greys:
            axes.plot(curve.episode, curve.mean, color=_PALE, linewidth=0.8, zorder=1.5, label=f"other {one.label}")
            continue
        draw_curve(axes, one, curve)
        # Circles of different series stand at different episodes.
        picked = slice(interval - 1 - view.series.index(one) * interval // len(view.series), None, interval)
        whole = np.isfinite(rewards[one]).all(axis=1)
        greedy = view.scaled(data["reward_greedy"].sel(one.where))[whole][:, picked].mean(axis=0)
        place = np.interp(data["greedy_episode"].values[picked], counted, done[one])
        label = f"greedy {one.label}"
        axes.plot(place, greedy, linestyle="none", markeredgecolor=one.color, label=label, zorder=4, **_GREEDY)
    lost, there = {}, dataset.runs_there(data)
    for one in every:
        present = there.sel(one.where).values
        lost[one] = int((present & ~np.isfinite(rewards[one]).all(axis=1)).sum()), int(present.sum())
    failed = [f"{lost[one][0]} of {lost[one][1]} {one.label}" for one in view.series if lost[one][0]]
    if several and (rest := sum(lost[one][0] for one in greys)):
        failed.append(f"{rest} of {sum(lost[one][1] for one in greys)} others")
    if not axes.lines:
        axes.axis("off")
        style.write_note(axes, "all runs failed" if failed else "no results")
        return
    axes.xaxis.set_major_locator(style.whole_numbers(5 if several else 3, episodes))
    if failed:
        note = axes.legend(  # "best" places a legend where it covers least
            handles=[], title="failed runs, not drawn:\n" + "\n".join(failed), title_fontsize=7, loc="best",
            framealpha=0.8, edgecolor="none", borderpad=0.1,
        )  # fmt: skip
        note.get_title().set(color=GREY, ha="left")
    axes.grid(axis="y")


def draw_curve(axes: Axes, series: Series, curve: curves.Curve, banded: bool = True) -> None:
    """Draw the mean of a learning curve and, if `banded` is True and the curve has a band, also the band."""
    marker, width = "." if len(curve.episode) < 3 else "", 1.5 if banded else 1.2
    line: dict[str, Any] = {"color": series.color, "linestyle": series.dashes, "linewidth": width, "marker": marker}
    axes.plot(curve.episode, curve.mean, label=series.label, zorder=3, **line)
    if curve.band is not None and banded:
        axes.fill_between(curve.episode, *curve.band, color=series.color, alpha=0.18, linewidth=0, zorder=2)


def _share_view(panels: Sequence[Axes]) -> None:
    """Set one range of the y axes in several panels, and write a note where early episodes lie below this range."""
    drawn = {axes: [np.asarray(line.get_ydata(), np.float64) for line in axes.lines] for axes in panels}
    finite = {axes: [values[np.isfinite(values)] for values in lines] for axes, lines in drawn.items()}
    drawn_values = [values for lines in finite.values() for values in lines if values.size]
    if not drawn_values:
        return
    low, high = curves.curve_range(drawn_values)
    low, high = min(0.0, low), max(1.0, high)
    for axes, lines in finite.items():
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        deepest = min(values.min(initial=low) for values in lines)
        if deepest < axes.get_ylim()[0]:
            text = style.minus(f"↓ down to {deepest:.1f}")
            axes.text(0.98, 0.02, text, transform=axes.transAxes, ha="right", color=GREY, size=7)


def length_curves(data: xr.Dataset) -> Figure | None:
    """Draw the mean length of one plant's training episodes, or return None if all episodes are equally long."""
    if not dataset.lengths_vary(data):
        return None
    shape = data.sizes["noise"], data.sizes["frequency"]
    series, width = style.all_series(data), style.panel_width(shape[1])
    window = curves.smoothing_window(data.sizes["episode"])
    banded = len(series) <= curves.CROWDED
    caption = f"Mean length of training episodes.\n{_statistics(data, window, banded)}."
    size, labels = (width * shape[1] + 0.5, 0.6 * width * shape[0]), [one.label for one in series]
    title = "length of episodes"
    figure, panels = style.new_panels(data, title, caption, size, shape, labels, sharex=True, sharey=True)
    for (row, column), axes in np.ndenumerate(panels):
        here = data["episode_steps"].isel(noise=row, frequency=column)
        runs = ((one, here.sel(one.where).transpose("seed", "episode").values) for one in series)
        for one, curve in curves.series_curves(runs, window):
            draw_curve(axes, one, curve, banded)
        if not axes.lines:
            style.write_note(axes, "no results")
        axes.set_title(style.condition(here["noise"].item(), here["frequency"].item()), color=GREY)
        axes.set_xlim(0, 1.01 * data.sizes["episode"])
        axes.xaxis.set_major_locator(style.whole_numbers(5, data.sizes["episode"]))
        axes.set_ylabel("steps per episode" if column == 0 else "")
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].yaxis.get_major_locator().set_params(integer=True)
    return _finish(figure, panels, data)


def _finish(figure: Figure, panels: Any, data: xr.Dataset) -> Figure:
    """Label the x axes of panels over episodes, and add a legend of the curves in the panels."""
    for axes in panels[-1]:
        axes.set_xlabel(curves.EPISODE_LABELS[dataset.in_iterations(data)])
    for axes in panels.flat:
        axes.grid(axis="y")
    style.add_legend(figure, list({line.get_label(): line for axes in panels.flat for line in axes.lines}.values()))
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
"""Axis labels of built-in metrics. The label of any other metric is its name."""
_DECADES: Final = 30.0
"""Ratio of the largest to the smallest value above which a positive metric is drawn on a logarithmic axis."""


def metric_curves(data: xr.Dataset) -> Figure | None:
    """Draw the metrics that one plant's learners recorded during training, or return None if there are no metrics."""
    named = [str(name) for name in data.data_vars if str(name).startswith(PREFIX)]
    names = [name for name in named if data[name].notnull().any()]
    if not names:
        return None
    places = [(n, f) for n in data["noise"].values.tolist() for f in data["frequency"].values.tolist()]
    series = [one for one in style.all_series(data) if any(data[name].sel(one.where).notnull().any() for name in names)]
    banded = len(series) <= curves.CROWDED
    caption = f"Metrics at greedy evaluations.\n{style.run_count(data)}; medians{', bands: quartiles' * banded}."
    size = style.panel_width(len(places)) * len(places) + 0.5, 1.7 * len(names) + 0.4
    shape, labels = (len(names), len(places)), [one.label for one in series]
    figure, panels = style.new_panels(data, "metrics of the learners", caption, size, shape, labels, sharex=True)
    for (row, column), axes in np.ndenumerate(panels):
        noise, frequency = places[column]
        here = data[names[row]].sel(noise=noise, frequency=frequency)
        for one in series:
            values = here.sel(one.where).transpose("seed", "greedy_episode")
            values = values.dropna("seed", how="all").dropna("greedy_episode", how="all")
            if values.size:
                low, middle, high = np.nanquantile(values.values, (0.25, 0.5, 0.75), axis=0)
                band = (low, high) if len(values) > 1 else None
                draw_curve(axes, one, curves.Curve(values["greedy_episode"].values, middle, band), banded)
        finite = here.values[np.isfinite(here.values)]
        if finite.size and finite.min() > 0 and finite.max() > _DECADES * finite.min():
            axes.set_yscale("log")
            style.plain_log_labels(axes.yaxis)
        axes.xaxis.get_major_locator().set_params(integer=True)
        name = names[row].removeprefix(PREFIX)
        axes.set_ylabel(_LABELS.get(name, name.replace("_", " ")) if column == 0 else "")
        axes.set_title(style.condition(noise, frequency) if row == 0 else "", color=GREY)
    return _finish(figure, panels, data)
