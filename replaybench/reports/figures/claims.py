"""Forest plots of published claims with their verdicts, and verdicts as text and as values for JSON."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replaybench.evidence.claim import Claim, Claims, Verdict, Word, judge
from replaybench.evidence.claims_evidence import Evidence, Finding, find
from replaybench.experiments.effects import SIGNIFICANT, exactly_flipped, p_text
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


def judged(family: Claims, runs: Sequence[Evidence]) -> tuple[list[Verdict], list[Finding | None]]:
    """Return the verdict on each claim of one paper, and the effect that the runs measured for each claim.

    The effect is None if the runs do not contain what the claim compares.
    """
    findings = [find(claim, runs) for claim in family.claim]
    return judge(family.claim, [None if finding is None else finding.effect for finding in findings]), findings


_NAMES: Final = {"final": "μ_final", "best": "μ_max", "rise": "episodes to 0.8", "greedy": "greedy μ_r"}
_DIRECTIONS: Final = {
    "more": "higher by ≥ {}",
    "less": "lower by ≥ {}",
    "not more": "not {} higher",
    "not less": "not {} lower",
    "same": "within ±{}",
}


def expected(claim: Claim) -> str:
    """Return as text the effect that a claim expects and the smallest effect of interest."""
    kind, _, name = claim.measure.partition(" ")
    measure = _NAMES.get(claim.measure) or (f"{kind} of {name}" if kind == "noise" else name or kind)
    if claim.logarithm:
        measure = f"log10 {measure}"
    than = f" than {claim.level:g}" if claim.level else ""
    return f"{measure} {_DIRECTIONS[claim.expects].format(f'{claim.relevance:g}')}{than}"


SHORT: Final = 0.2
"""Verdicts on runs that are shorter than this fraction of the paper's name the fraction."""


def verdict_text(verdict: Verdict, finding: Finding | None) -> str:
    """Return a verdict as text, with what an undecided claim needs, and the length of short runs."""
    told = f"undecided; {still_needed(verdict)}" if verdict.word == "undecided" else verdict.word
    return f"{told}; at {100 * finding.share:.2g} % of the run" if finding is not None and short(finding) else told


def short(finding: Finding | None) -> bool:
    """Return whether the runs of a claim are a small part of the paper's runs."""
    return finding is not None and finding.share < SHORT


def parts(verdict: Verdict, finding: Finding | None) -> str:
    """Return as text how a difference of scores comes about: by the mean, the typical run, and collapsed runs.

    The typical run is the interquartile mean. Only the mean decides; p of collapsed runs is not corrected.
    """
    effect, least = verdict.effect, verdict.claim.relevance
    if finding is None or effect.n < 2 or effect.statistic != "mean":
        return ""
    words = []
    for name, statistic in (("mean", effect), ("typical run", replace(effect, statistic="interquartile mean"))):
        low, high = statistic.interval()
        word = "higher" if low > 0 else "lower" if high < 0 else "open"
        words.append(f"{name} {'equal' if -least < low and high < least else word}")
    collapses = finding.collapses.differences[: effect.n]
    if len(collapses):
        p, share = exactly_flipped(collapses), collapses.mean()
        word = "open" if p >= SIGNIFICANT else "fewer" if share < 0 else "more"
        if collapses.any():
            words.append(f"collapses {word} ({minus(f'{100 * share:+.0f}')} points; p {p_text(p)})")
        else:
            words.append("no difference of collapses")
    return ", ".join(words)


def still_needed(verdict: Verdict) -> str:
    """Return as text how many more seeds would decide a claim, or why more seeds would not decide it."""
    more = verdict.more_seeds
    if verdict.effect.n < 2:
        return "one seed is not enough" if verdict.effect.n else "no seed is left to compare"
    if verdict.effect.sd == 0:
        return "all differences are equal"
    if verdict.hangs_on_one:
        return "hangs on one run"
    return f"{more} more seed{'s' if more > 1 else ''}" if more else "no planned look would decide"


def record(paper: str, verdict: Verdict, finding: Finding | None) -> dict[str, Any]:
    """Return the verdict on a claim as values for JSON, without numbers if the claim was not run."""
    kept = ("id", "source", "statement", "preset", "measure", "expects", "relevance", "printed")
    row = {"paper": paper} | {name: getattr(verdict.claim, name) for name in kept} | {"verdict": verdict.word}
    if finding is not None:
        low, high = verdict.effect.interval()
        row |= {
            "effect": verdict.effect.estimate if verdict.effect.n else None,
            "statistic": verdict.effect.statistic,
            "interval": [low, high] if np.isfinite(low) else None,
            "n": verdict.effect.n,
            "failed": finding.failed,
            "episodes": finding.episodes,
            "runs": finding.runs,
            "supports": verdict.supports,
            "refutes": verdict.refutes,
            "look": verdict.look,
            "parts": parts(verdict, finding),
            "share": finding.share,
            "more_seeds": verdict.more_seeds,
        }
    return row
