"""Forest plots of published claims with their verdicts."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replaybench.evidence.claim import Claim, Claims, Verdict, Word
from replaybench.reports.figures.style import GREY, PALETTE, minus, new_figure
from replaybench.runtime.errors import UserError

MARKS: Final[dict[Word, tuple[str, str]]] = {
    "reproduced": ("o", PALETTE[2]),
    "contradicted": ("X", PALETTE[1]),
    "smaller than relevant": ("s", PALETTE[0]),
    "undecided": ("d", "0.55"),
}
"""Marker and colour of each verdict."""
_CAPTION: Final = (
    "Effects in units of the smallest effect of interest (dashed); the expected direction is to the right. Band: where "
    "a claim expects no more, or no difference.\nn: paired seeds; means (rise times: interquartile); 95 % intervals."
)
_LETTERS: Final = 72
"""Largest number of characters in a line of a claim's statement."""


def claims_figure(families: Sequence[tuple[Claims, Sequence[Verdict]]]) -> Figure:
    """Draw the measured effects of published claims with their verdicts, with one panel per paper."""
    run = [(family.paper, [verdict for verdict in verdicts if verdict.effect.n]) for family, verdicts in families]
    papers = [(paper, verdicts) for paper, verdicts in run if verdicts]
    if not papers:
        raise UserError("these runs hold the cells of no claim: there is nothing to draw")
    words = Counter(verdict.word for _, verdicts in papers for verdict in verdicts)
    counted = ", ".join(f"{words[word]} {word}" for word in MARKS if words[word])
    lines = [[_lines(verdict.claim) for verdict in verdicts] for _, verdicts in papers]
    heights = [sum(0.145 * len(each) + 0.13 for each in paper) for paper in lines]  # [inch]
    room = sum(heights) + 0.32 * len(papers) + 0.45
    figure = new_figure(8.8, room, f"Published claims, judged by runs: {counted}", _CAPTION)
    panels = figure.subplots(len(papers), 1, squeeze=False, sharex=True, height_ratios=heights).ravel()
    for axes, (paper, verdicts), each in zip(panels, papers, lines, strict=True):
        axes.set_title(paper, loc="left", weight="bold")
        _draw(axes, verdicts, each)
    panels[-1].set_xlabel("effect, in units of the smallest effect of interest (logarithmic beyond ±1)")
    return figure


def _lines(claim: Claim) -> list[str]:
    statement = claim.statement.replace(" %", "\N{NO-BREAK SPACE}%")
    fewest = len(textwrap.wrap(statement, _LETTERS))
    narrower = (textwrap.wrap(statement, letters) for letters in range(_LETTERS // 3, _LETTERS + 1))
    return next(lines for lines in narrower if len(lines) <= fewest)


def _draw(axes: Axes, verdicts: Sequence[Verdict], lines: Sequence[Sequence[str]]) -> None:
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: minus(f"{value:g}"))
    axes.axvline(0, color="0.5", linewidth=0.9, zorder=1)
    axes.axvline(1, color="0.5", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.grid(axis="x", color="0.93", linewidth=0.7)
    axes.tick_params(axis="y", length=0, labelsize=7.5, labelcolor="0.15")
    ends = np.cumsum([0.0, *(0.145 * len(each) + 0.13 for each in lines)])
    places = (ends[1:] + ends[:-1]) / 2
    for verdict, place in zip(verdicts, places.tolist(), strict=True):
        marker, color = MARKS[verdict.word]
        scale = verdict.claim.upwards / verdict.claim.relevance
        interval = [scale * end for end in verdict.effect.interval()]
        if np.isfinite(interval).all():
            axes.plot(interval, (place, place), color=color, linewidth=1.7, zorder=2)
        axes.plot(scale * verdict.effect.estimate, place, marker=marker, color=color, markersize=5.5, zorder=3)
        axes.annotate(
            f"{verdict.word}, n = {verdict.effect.n}", (1.0, place), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=7.5, color=color if verdict.word != "undecided" else GREY,
        )  # fmt: skip
    left, right = axes.get_xlim()
    left, right = min(left, -1.5), max(right, 1.5)
    for verdict, top, bottom in zip(verdicts, ends, ends[1:], strict=False):
        if verdict.claim.expects not in ("more", "less"):
            band = [-1.0 if verdict.claim.expects == "same" else left, 1.0]
            axes.fill_between(band, top + 0.04, bottom - 0.04, color="0.9", linewidth=0, zorder=0)
    axes.set_xlim(left, right)
    axes.set_ylim(ends[-1], 0.0)
    axes.set_yticks(places, ["\n".join(each) for each in lines])
