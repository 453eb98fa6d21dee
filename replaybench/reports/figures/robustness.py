"""Figure of the scores of a run's policies and reference controllers on changed plants."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replaybench.experiments.robustness import DELAY, NOISE_LEVEL, Row
from replaybench.reports.figures import style
from replaybench.reports.figures.style import GREY, MARKERS, PALETTE
from replaybench.runtime.arrays import Floats

_LOWEST: Final = -1.0
"""Lowest score in the figure, unless all scores are lower."""
UNITS: Final = {DELAY: "s", NOISE_LEVEL: "normalised units"}


class Line(NamedTuple):
    """The scores of one controller on K changed plants, with their intervals `[K, 3]`: mean, lower and upper bound."""

    controller: str
    learner: str
    strategy: str
    seeds: int
    values: Floats
    scores: Floats


class Part(NamedTuple):
    """The scores of all controllers under one condition of the training.

    Attributes:
        normalised: Whether the scores are μ_r, not rewards.
    """

    plant: str
    frequency: float
    noise: float
    parameter: str
    trained: float
    normalised: bool
    lines: Sequence[Line]


def parts_of(rows: Sequence[Row]) -> Iterator[Part]:
    """Yield the scores of each condition of the training, in the order of the rows."""
    for key in dict.fromkeys(row[:5] for row in rows):
        here = [row for row in rows if row[:5] == key]
        normalised = bool(np.isfinite([row.score for row in here]).any())
        lines = []
        for name in dict.fromkeys((row.controller, row.learner, row.strategy) for row in here):
            own = [row for row in here if (row.controller, row.learner, row.strategy) == name]
            scores = [row[-3:] if normalised else row[-6:-3] for row in own]
            seeds = max(row.seeds for row in own)
            lines.append(Line(*name, seeds, np.array([row.value for row in own]), np.array(scores)))
        yield Part(*key, normalised, lines)


def axis_label(part: Part) -> str:
    """Return the label of the axis of the changed parameter, with its unit if it is known."""
    return f"{part.parameter} [{UNITS[part.parameter]}]" if part.parameter in UNITS else part.parameter


def robustness_figure(rows: Sequence[Row]) -> Figure:
    """Plot the scores of controllers against a changed parameter, with one panel for each condition of the training."""
    parts = list(parts_of(rows))
    learners = list(dict.fromkeys(line.controller for part in parts for line in part.lines if line.learner))
    others = list(dict.fromkeys(line.controller for part in parts for line in part.lines if not line.learner))
    across = style.panels_across(len(parts))
    down = -(-len(parts) // across)
    seeds = style.span(line.seeds for part in parts for line in part.lines if line.learner)
    caption = (
        "Policies act without exploration and are not trained again. Grey: controllers made for the training's plant."
    )
    caption += f"\nDotted: value in the training. n = {seeds} seeds, mean and 95 % band."
    size = style.panel_width(across) * across + style.legend_width([*learners, *others])
    height = max(2.7 * down, 0.7 + 0.195 * len([*learners, *others]))
    figure = style.new_figure(size, height, f"Scores on plants with another {parts[0].parameter}", caption)
    panels: Any = figure.subplots(down, across, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, part in zip(panels.flat, parts, strict=False):
        for line in part.lines:
            handles.setdefault(line.controller, _draw(axes, line, learners, others))
        _finish(axes, part)
    for axes in panels.flat[len(parts) :]:
        axes.set_visible(False)
    style.add_legend(figure, [handles[name] for name in (*learners, *others)])
    return figure


def _draw(axes: Axes, line: Line, learners: Sequence[str], others: Sequence[str]) -> Any:
    mean, low, high = line.scores.T
    if line.learner:
        place = learners.index(line.controller)
        look: dict[str, Any] = {"color": PALETTE[place % len(PALETTE)], "linewidth": 1.6, "zorder": 3}
        look |= {"marker": MARKERS[place % len(MARKERS)], "markersize": 4}
        axes.fill_between(line.values, low, high, color=look["color"], alpha=0.16, linewidth=0)
    else:
        look = style.reference_looks(others)[line.controller] | {"zorder": 2}
    (handle,) = axes.plot(line.values, mean, label=line.controller, **look)
    return handle


def _finish(axes: Axes, part: Part) -> None:
    axes.axvline(part.trained, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    axes.set_title(f"{style.plant_name(part.plant)}, {style.condition(part.noise, part.frequency)}", color=GREY, size=8)
    axes.set(xlabel=axis_label(part), ylabel=style.MU_LABEL if part.normalised else "reward")
    axes.locator_params(axis="x", nbins=6)
    axes.grid(axis="y")
    low, high = axes.get_ylim()
    if part.normalised and low < _LOWEST < high:
        axes.set_ylim(_LOWEST, high)
