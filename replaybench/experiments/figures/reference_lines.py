"""Rewards of the references as grey lines: each one in the legend is visible, or written, in every panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replaybench.experiments.figures.style import GREY, minus
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
ALWAYS: Final = ("reference_random", "reference_dp")
"""References that every view contains."""
_REACH_UP, _REACH_DOWN = 0.5, 0.15
"""Views grow by at most these parts of their height to contain another reference."""
_MARGIN: Final = 0.04
_LINE: Final[dict[str, Any]] = {"color": "0.45", "linewidth": 0.9}


def draw_references(panels: Sequence[tuple[Axes, Mapping[str, float]]]) -> set[str]:
    """Draw the references of panels that share a range of rewards, which grows to hold them; return those drawn.

    Random control and dynamic programming are always in view, others if they are near. A reference that is drawn in
    one panel and is far outside the range of another is written into the latter.

    Args:
        panels: axes with their curves drawn, and the levels of the known references by name.
    """
    if not panels:
        return set()
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
        outside = {"above": "", "below": ""}
        for name in (name for name in levels if name in drawn):
            label, dashes = REFERENCES[name]
            if low <= (level := levels[name]) <= high:
                axes.axhline(level, linestyle=dashes, zorder=1, **_LINE)
            else:
                outside["above" if level > high else "below"] += f"{label}: {minus(f'{level:.3g}')}\n"
        for where, text in outside.items():
            look: dict[str, Any] = {"size": 7, "color": GREY, "transform": axes.transAxes, "zorder": 5}
            y, side = (0.98, "top") if where == "above" else (0.03, "bottom")
            if text:
                axes.text(0.02, y, f"{where}: {text.strip()}", ha="left", va=side, **look)
    return drawn


def draw_at_bars(axes: Axes, group: int, width: float, levels: Mapping[str, float]) -> set[str]:
    """Draw the references of a group of bars across it, two of them always, others in view; return those drawn."""
    low, high = axes.get_ylim()
    drawn = {name for name, level in levels.items() if name in REFERENCES and (name in ALWAYS or low <= level <= high)}
    for name in drawn:
        ends = group - width / 2, group + width / 2
        axes.plot(ends, (levels[name], levels[name]), linestyle=REFERENCES[name][1], zorder=3.5, **_LINE)
    return drawn


def reference_handles(names: set[str]) -> list[Line2D]:
    """Return the handles of these references for a legend."""
    from matplotlib.lines import Line2D

    known = {name: look for name, look in REFERENCES.items() if name in names}
    return [Line2D([], [], linestyle=dashes, label=label, **_LINE) for label, dashes in known.values()]
