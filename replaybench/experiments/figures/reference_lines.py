"""What rewards are measured against, as grey lines: every one that a legend names is seen, or told, in every panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replaybench.experiments.figures.style import GREY
from replaybench.experiments.results.references import LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_DASHES: Final[dict[str, Any]] = {
    "reference_dp": "-",
    "reference_dp_averaged": (0, (8, 1.5)),
    "reference_dp_observer": (0, (8, 1.5, 1, 1.5)),
    "reference_lqr": (0, (5, 2)),
    "reference_zero": (0, (1, 1.5)),
    "reference_random": (0, (5, 1.5, 1, 1.5)),
}
REFERENCES: Final = {name: (LABELS[name], dashes) for name, dashes in _DASHES.items()}
_ALWAYS: Final = ("reference_random", "reference_dp")
_REACH: Final = 0.5
"""Views grow upwards by this part of their height, if a reference is there; below lies what is of no use."""
_REACH_DOWN: Final = 0.15
_MARGIN: Final = 0.04
_LINE: Final[dict[str, Any]] = {"color": "0.45", "linewidth": 0.9}


class MeasuredAxes(NamedTuple):
    """Axes with their curves drawn, and the references there by name, in the unit of the axis; NaN where unknown."""

    axes: Axes
    levels: Mapping[str, float]


def draw_references(panels: Sequence[MeasuredAxes]) -> set[str]:
    """Draw the references of panels that share a view of rewards, which grows to hold them; return those drawn.

    Random actions and dynamic programming are always in view, others where they are near. One that is drawn in some of
    the panels and is far out of the view of another is written into that.
    """
    if not panels:
        return set()
    low, high = (float(np.array([panel.axes.get_ylim() for panel in panels])[:, side].mean()) for side in (0, 1))
    reach = low - _REACH_DOWN * (high - low), high + _REACH * (high - low)
    margin = _MARGIN * (high - low)
    for panel in panels:
        for name, level in panel.levels.items():
            if np.isfinite(level) and (name in _ALWAYS or reach[0] <= level <= reach[1]):
                low, high = min(low, level - margin), max(high, level + margin)
    drawn = {name for panel in panels for name, level in panel.levels.items() if low <= level <= high}
    for panel in panels:
        panel.axes.set_ylim(low, high)
        _draw(panel, {name: level for name, level in panel.levels.items() if name in drawn and np.isfinite(level)})
    return drawn


def _draw(panel: MeasuredAxes, levels: Mapping[str, float]) -> None:
    low, high = panel.axes.get_ylim()
    outside = {True: "", False: ""}
    for name, level in levels.items():
        label, dashes = REFERENCES[name]
        if low <= level <= high:
            panel.axes.axhline(level, linestyle=dashes, zorder=1, **_LINE)
        else:
            outside[level > high] += f"{label}: {f'{level:.3g}'.replace('-', '−')}\n"
    for above, text in outside.items():
        if text:
            look: dict[str, Any] = {"size": 7, "color": GREY, "transform": panel.axes.transAxes, "zorder": 5}
            place = (0.02, 0.98, "above: " + text.strip()) if above else (0.02, 0.03, "below: " + text.strip())
            panel.axes.text(*place, ha="left", va="top" if above else "bottom", **look)


def draw_beside_bars(axes: Axes, group: int, width: float, levels: Mapping[str, float]) -> set[str]:
    """Draw the references of a group of bars across it, two of them always, others in view; return those drawn."""
    low, high = axes.get_ylim()
    drawn = {name for name, level in levels.items() if name in REFERENCES and (name in _ALWAYS or low <= level <= high)}
    for name in drawn:
        ends = group - width / 2, group + width / 2
        axes.plot(ends, (levels[name], levels[name]), linestyle=REFERENCES[name][1], zorder=3.5, **_LINE)
    return drawn


def reference_handles(names: set[str]) -> list[Line2D]:
    """Return what a legend shows of these references, in their order."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], linestyle=dashes, label=label, **_LINE)
        for name, (label, dashes) in REFERENCES.items()
        if name in names
    ]
