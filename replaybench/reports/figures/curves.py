"""Smoothed learning curves with bands, read from results or CSV files, and the lines of reference controllers.

A CSV file is Stable-Baselines3's `monitor.csv`, or has the columns `step` (environment steps so far) and `return` (sum
of an episode's rewards).
"""

import csv
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from replaybench.experiments.comparison import RIVAL, reference_label
from replaybench.experiments.dataset import episode_metric, mu_r
from replaybench.reports.figures.style import GREY, Series, minus
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError, no_such_file, shown

CROWDED: Final = 6
"""Largest number of learning curves in a figure that are all coloured and have bands."""
EPISODE_LABELS: Final = ("training episode", "training iteration")
FLOOR: Final = -0.5
"""Lower limit of normalised scores in a figure, unless a curve ends lower. Early episodes may lie far below it."""
_RESAMPLES: Final = 1000
_MOST_POINTS: Final = 600
_POINTS: Final = 200
_LARGEST: Final = 100_000_000
"""Size of the largest CSV file that is read [bytes]."""


class Curve(NamedTuple):
    """A mean learning curve of P points with its 95 % band.

    Attributes:
        episode: Centre of the averaging window of each point, in episodes, environment steps or updates; shape `[P]`.
        mean: Mean over runs; shape `[P]`.
        band: Lower and upper limit of the band, each of shape `[P]`; None for a single run.
    """

    episode: Floats
    mean: Floats
    band: tuple[Floats, Floats] | None


def moving_mean(rewards: Floats, window: int) -> Floats:
    """Return the moving average along the last axis, whose length decreases from E to E − `window` + 1."""
    # A running sum would lose the digits of all rewards that follow a huge one.
    means: Floats = np.lib.stride_tricks.sliding_window_view(rewards, window, axis=-1).mean(axis=-1)
    return means


def smoothing_window(episodes: int) -> int:
    """Return the window of a moving average in episodes, an odd number of about 1/60 of the run and at most 25."""
    return min(25, 1 + 2 * (episodes // 120))


def learning_curve(rewards: Floats, window: int, most: int | None = None) -> Curve:
    """Return the mean learning curve of several runs, with a 95 % band by a percentile bootstrap over runs.

    Args:
        rewards: Reward of each run and episode; shape `[N, E]`.
        window: Number of episodes in the moving average.
        most: Largest number of points in the curve; no limit if None.
    """
    smooth = moving_mean(rewards, window)
    episode = np.arange(smooth.shape[1], dtype=np.float64) + (window + 1) / 2
    stride = max(1, min(window // 2, smooth.shape[1] // _MOST_POINTS))
    stride = max(stride, -(-smooth.shape[1] // most) if most else 1)
    smooth, episode = smooth[:, ::stride], episode[::stride]
    runs = len(smooth)
    mean: Floats = smooth.mean(axis=0)
    if runs < 2:
        return Curve(episode, mean, None)
    draws = np.random.Generator(np.random.PCG64(0)).multinomial(runs, np.full(runs, 1 / runs), _RESAMPLES)
    low, high = np.percentile(draws @ smooth / runs, (2.5, 97.5), axis=0)
    return Curve(episode, mean, (low, high))


def series_curves(
    runs: Iterable[tuple[Series, Floats]], window: int, most: int | None = None
) -> list[tuple[Series, Curve]]:
    """Return the learning curve of each pair of learner and strategy, computed without failed runs.

    Args:
        runs: Pairs of learner and strategy, each with the rewards of N runs of E episodes, of shape `[N, E]`. A pair is
            left out if all its runs failed.
        window: Number of episodes in the moving average.
        most: Largest number of points in a curve; no limit if None.
    """
    sound = ((one, rewards[np.isfinite(rewards).all(axis=1)]) for one, rewards in runs)
    return [(one, learning_curve(rewards, window, most)) for one, rewards in sound if len(rewards)]


def curve_range(means: Sequence[Floats]) -> tuple[float, float]:
    """Return the range of the score μ_r in a figure of learning curves.

    The range contains all values of the curves, except values below −0.5 in early episodes.
    """
    late = min(mean[-max(2, len(mean) // 5) :].min() for mean in means)
    low = min(late, max(FLOOR, min(mean.min() for mean in means)))
    return float(low), float(max(mean.max() for mean in means))


@dataclass(frozen=True)
class OtherCurve:
    """The runs of another program, drawn as one learning curve.

    Attributes:
        label: Text of the legend.
        runs: Three arrays of shape `[K]` for each run of K episodes: environment steps at the end of each episode,
            returns, and lengths of the episodes in steps. The lengths are None if the file lacks them.
    """

    label: str
    runs: tuple[tuple[Floats, Floats, Floats | None], ...]

    def scaled(self, data: xr.Dataset, normalised: bool) -> Curve:
        """Return the mean over runs with its band, smoothed like the curves of a sweep.

        Args:
            data: Results of a sweep for one plant, noise level and control rate. Rewards are converted to the unit of
                these results.
            normalised: Whether to return μ_r instead of rewards.

        Raises:
            UserError: The runs have no range of environment steps in common.
        """
        begin = max(steps[0] for steps, _, _ in self.runs)
        end = min(steps[-1] for steps, _, _ in self.runs)
        if begin > end:
            raise UserError(f"--overlay: the runs of {self.label} have no steps in common")
        grid = np.linspace(begin, end, _POINTS)
        rows = []
        for steps, rewards, lengths in self.runs:
            if episode_metric(data) == "mean reward":
                rewards = rewards / (float(data["whole_steps"]) if lengths is None else lengths)
            if normalised:
                rewards = mu_r(data, xr.DataArray(rewards, dims="episode")).values
            window = smoothing_window(len(steps))
            rows.append(np.interp(grid, moving_mean(steps, window), moving_mean(rewards, window)))
        return learning_curve(np.array(rows), 1)._replace(episode=grid)


def read_others(entries: Sequence[str]) -> tuple[OtherCurve, ...]:
    """Read the learning curves of other programs from entries of the form LABEL=FILE.

    Files with the same label are runs of one curve.

    Raises:
        UserError: An entry has another form, or a file is missing or holds no curve.
    """
    runs: dict[str, list[tuple[Floats, Floats, Floats | None]]] = {}
    for entry in entries:
        label, equals, path = entry.partition("=")
        if not (equals and label and path):
            raise UserError(f"--overlay takes LABEL=FILE, as in 'SB3 SAC=monitor.csv', not {shown(entry)}")
        runs.setdefault(label, []).append(_read(Path(path)))
    return tuple(OtherCurve(label, tuple(own)) for label, own in runs.items())


def _read(path: Path) -> tuple[Floats, Floats, Floats | None]:
    if not path.is_file():
        raise no_such_file(path)
    if path.stat().st_size > _LARGEST:
        raise UserError(f"{path} has more than {_LARGEST / 1e6:g} MB; thin it out")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text in UTF-8") from None
    rows = list(csv.reader(line for line in lines if line.strip() and not line.startswith("#")))
    names = [name.strip().casefold() for name in rows[0]] if rows else []
    monitor = {"r", "l"} <= set(names)
    wanted = ("l", "r") if monitor else ("step", "return")
    if missing := [name for name in wanted if name not in names]:
        raise UserError(f"{path} has no column {missing[0]!r}: a curve needs step and return, or SB3's r and l")
    first, second = (np.array([_number(path, row, names.index(name)) for row in rows[1:]]) for name in wanted)
    if not first.size:
        raise UserError(f"{path} has no row of data")
    if monitor:
        return np.cumsum(first), second, first
    if (np.diff(first) < 0).any():
        raise UserError(f"{path}: its steps do not ascend")
    return first, second, None


def _number(path: Path, row: Sequence[str], place: int) -> float:
    text = row[place] if place < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise UserError(f"{path}: {shown(text)} is no finite number")
    return value


REFERENCES: Final = {
    "reference_dp": "DP",
    "reference_random": "random",
    "reference_dp_averaged": "DP averaged",
    "reference_dp_observer": "DP observer",
    "reference_dp_unaware": "DP unaware of the delay",
    "reference_lqr_predicted": "LQR with prediction",
    "reference_lqr": "LQR",
    "reference_zero": "doing nothing",
}
"""Labels of the lines of reference controllers. If some lines nearly coincide, only the first one is drawn."""


def short_label(name: str) -> str:
    """Return the label of the line of a reference controller, or an empty text if it gets no line."""
    return REFERENCES.get(name, reference_label(name) if name.startswith(RIVAL) else "")


def _with_lines(levels: Mapping[str, float]) -> list[str]:
    """Return the names of reference controllers that get lines: the package's own in fixed order, and then rivals."""
    return [*(name for name in REFERENCES if name in levels), *(name for name in levels if name.startswith(RIVAL))]


ALWAYS: Final = ("reference_random", "reference_dp")
"""Reference controllers whose lines are part of every view."""
_REACH_UP, _REACH_DOWN = 0.5, 0.15
"""Largest growth of the y range upwards and downwards, as shares of the range, to contain other references."""
_MARGIN: Final = 0.04
_TEXT: Final[dict[str, Any]] = {"size": 7, "color": GREY}
REFERENCE_LINE: Final[dict[str, Any]] = {"color": "0.6", "linewidth": 0.9, "zorder": 1}


def merge_levels(levels: Mapping[str, float], width: float, part: float = 0.02) -> dict[float, str]:
    """Return the levels of lines for reference controllers, with the label of each line.

    Args:
        levels: Reward or normalised score of each reference controller, by name.
        width: Length of the axis, in the unit of the levels.
        part: Share of the axis. Levels that differ by less share one line, whose label names all of them.
    """
    merged: dict[float, list[str]] = {}
    for name in _with_lines(levels):
        near = [level for level in merged if abs(level - levels[name]) < part * width]
        merged.setdefault(near[0] if near else levels[name], []).append(short_label(name))
    return {level: ", ".join(labels) for level, labels in merged.items()}


def draw_references(panels: Sequence[tuple[Axes, Mapping[str, float]]], bare: Container[Axes] = ()) -> None:
    """Draw the rewards of reference controllers as labelled lines into panels that share a range of rewards.

    The range grows to contain random control and dynamic programming, and other references if they are near. If a
    reference is drawn in some panels but lies outside the range in another panel, a label at the edge states its level.

    Args:
        panels: Axes with curves, and the levels of their reference controllers by name.
        bare: Axes that get lines without labels.
    """
    if not panels:
        return
    low, high = np.mean([axes.get_ylim() for axes, _ in panels], axis=0).tolist()
    reach = low - _REACH_DOWN * (high - low), high + _REACH_UP * (high - low)
    margin = _MARGIN * (high - low)
    every = [level for _, levels in panels for level in levels.items()]
    for name, level in every:
        if name in ALWAYS or reach[0] <= level <= reach[1]:
            low, high = min(low, level - margin), max(high, level + margin)
    drawn = {name for name, level in every if low <= level <= high}
    for axes, levels in panels:
        axes.set_ylim(low, high)
        labels = merge_levels({name: level for name, level in levels.items() if low <= level <= high}, high - low)
        for level in labels:
            axes.axhline(level, **REFERENCE_LINE)
        for name in (name for name in _with_lines(levels) if name in drawn and not low <= levels[name] <= high):
            edge, arrow = (high, "↑") if levels[name] > high else (low, "↓")
            text = f"{short_label(name)}: {minus(f'{levels[name]:.3g}')}"
            labels[edge] = f"{labels[edge]}, {text}" if edge in labels else f"{arrow} {text}"
        if axes not in bare:
            _label_levels(axes, labels, high - low)


def _label_levels(axes: Axes, labels: Mapping[float, str], height: float) -> None:
    """Write labels to the right of the axes at their levels, and move them apart where they would overlap."""
    figure: Any = axes.figure
    gap = height * 0.12 / max(0.5, axes.get_position().height * figure.get_figheight())
    places = np.array(sorted(labels))
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + gap)
    for index in range(len(places) - 1, -1, -1):
        highest = axes.get_ylim()[1] + 0.5 * gap if index == len(places) - 1 else places[index + 1] - gap
        places[index] = min(places[index], highest)
    for level, place in zip(sorted(labels), places, strict=True):
        axes.annotate(
            labels[level], (1, place), xycoords=("axes fraction", "data"), xytext=(3, 0), textcoords="offset points",
            va="center", annotation_clip=False, **_TEXT,
        )  # fmt: skip
