"""Draw claims as a forest plot: effect, interval and verdict of each, in units of the smallest effect of interest."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from replaybench.data.errors import UserError
from replaybench.experiments.claims.claim import Claim, Claims
from replaybench.experiments.claims.verdict import Verdict, Word
from replaybench.experiments.figures.style import GREY, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: Final[dict[Word, tuple[str, str]]] = {
    "reproduced": ("o", PALETTE[2]),
    "contradicted": ("X", PALETTE[1]),
    "smaller than relevant": ("s", PALETTE[0]),
    "undecided": ("d", "0.55"),
}
"""Marker and colour of a verdict."""
_CAPTION: Final = (
    "Interquartile means of the differences of paired seeds, with 95 % BCa intervals, in units of the smallest effect "
    "of interest (dashed). The expected direction is to the right. "
    "The band is where a claim expects no more, or no difference."
)
_WIDTH: Final = 8.8
_LETTERS: Final = 72
"""In a line of a statement."""
_LINE, _GAP = 0.145, 0.13
"""Inches of a line of a statement, and between statements."""


def claims_figure(families: Sequence[tuple[Claims, Sequence[Verdict]]]) -> Figure:
    """Draw the claims that were run, the papers one below the other."""
    run = [(family.paper, [verdict for verdict in verdicts if verdict.effect.n]) for family, verdicts in families]
    papers = [(paper, verdicts) for paper, verdicts in run if verdicts]
    if not papers:
        raise UserError("these runs hold the cells of no claim: there is nothing to draw")
    words = Counter(verdict.word for _, verdicts in papers for verdict in verdicts)
    counted = ", ".join(f"{words[word]} {word}" for word in LOOKS if words[word])
    heights = [sum(_height(verdict.claim) for verdict in verdicts) for _, verdicts in papers]
    room = sum(heights) + 0.32 * len(papers) + 0.45
    figure = new_figure(_WIDTH, room, f"Published claims, judged by runs: {counted}", _CAPTION)
    panels = figure.subplots(len(papers), 1, squeeze=False, sharex=True, height_ratios=heights).ravel()
    for axes, (paper, verdicts) in zip(panels, papers, strict=True):
        axes.set_title(paper, loc="left", weight="bold")
        _draw(axes, verdicts)
    panels[-1].set_xlabel("effect, in units of the smallest effect of interest (logarithmic beyond ±1)")
    return figure


def _lines(claim: Claim) -> list[str]:
    statement = claim.statement.replace(" %", "\N{NO-BREAK SPACE}%")
    fewest = len(textwrap.wrap(statement, _LETTERS))
    narrower = (textwrap.wrap(statement, letters) for letters in range(_LETTERS // 3, _LETTERS + 1))
    return next(lines for lines in narrower if len(lines) <= fewest)


def _height(claim: Claim) -> float:
    return _LINE * len(_lines(claim)) + _GAP


def _draw(axes: Axes, verdicts: Sequence[Verdict]) -> None:
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
    axes.axvline(0, color="0.5", linewidth=0.9, zorder=1)
    axes.axvline(1, color="0.5", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.grid(axis="x", color="0.93", linewidth=0.7)
    axes.tick_params(axis="y", length=0)
    top, places, bands = 0.0, [], []
    for verdict in verdicts:
        height = _height(verdict.claim)
        places.append(top + height / 2)
        if verdict.claim.expects not in ("more", "less"):
            bands.append((verdict.claim.expects, top + 0.04, top + height - 0.04))
        _mark(axes, verdict, places[-1])
        top += height
    left, right = axes.get_xlim()
    left, right = min(left, -1.5), max(right, 1.5)
    for expects, begin, end in bands:
        axes.fill_between([-1.0 if expects == "same" else left, 1.0], begin, end, color="0.9", linewidth=0, zorder=0)
    axes.set_xlim(left, right)
    axes.set_ylim(top, 0.0)
    axes.set_yticks(places, ["\n".join(_lines(verdict.claim)) for verdict in verdicts])
    axes.tick_params(axis="y", labelsize=7.5, labelcolor="0.15")


def _mark(axes: Axes, verdict: Verdict, place: float) -> None:
    marker, color = LOOKS[verdict.word]
    scale = verdict.claim.upwards / verdict.claim.relevance
    ends = [scale * end for end in verdict.effect.interval()]
    if all(map(math.isfinite, ends)):
        axes.plot(ends, (place, place), color=color, linewidth=1.7, zorder=2)
    axes.plot(scale * verdict.effect.estimate, place, marker=marker, color=color, markersize=5.5, zorder=3)
    axes.annotate(
        f"{verdict.word}, n = {verdict.effect.n}", (1.0, place), xycoords=("axes fraction", "data"), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=7.5, color=color if verdict.word != "undecided" else GREY,
    )  # fmt: skip
