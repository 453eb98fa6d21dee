"""Forest plots of published claims with their verdicts, and the command `claims`."""

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from warnings import warn

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replaybench.data.run_folder import RunFolder
from replaybench.evidence.claim import Claim, Claims, Verdict, Word, claim_files, judge, read_claims
from replaybench.evidence.claims_evidence import Evidence, Finding, find, read_evidence
from replaybench.evidence.claims_plan import plan_seeds
from replaybench.experiments.effects import SIGNIFICANT, exactly_flipped, p_text
from replaybench.reports.figures.style import GREY, PALETTE, check_figure, minus, new_figure, style, write_figure
from replaybench.runtime.atomic import new_path, write_text
from replaybench.runtime.errors import ReplaybenchWarning, UserError, unknown

MARKS: Final[dict[Word, tuple[str, str]]] = {
    "reproduced": ("o", PALETTE[2]),
    "contradicted": ("X", PALETTE[1]),
    "smaller than relevant": ("s", PALETTE[0]),
    "undecided": ("d", "0.55"),
}
"""Marker and colour of each verdict."""
_STYLES: Final[dict[Word, str]] = dict(zip((*MARKS, "not run"), ("green", "red", "cyan", "yellow", "dim"), strict=True))
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


def _read_runs(paths: Sequence[Path]) -> list[Evidence]:
    """Read run folders. Other files and folders, as in `results/*`, are left out with a warning that names them."""
    others = [path for path in paths if path.exists() and path.name != "results.nc" and not _holds_run(path)]
    if others and len(others) < len(paths):
        names = ", ".join(map(str, others))
        warn(f"left out, because they are no run folders: {names}", ReplaybenchWarning, stacklevel=3)
        paths = [path for path in paths if path not in others]
    return [read_evidence(path) for path in paths]


def _holds_run(path: Path) -> bool:
    return any(file.is_file() for file in (RunFolder(path).study, RunFolder(path).results))


def show_claims(
    console: Console,
    paths: Sequence[Path],
    papers: Sequence[str],
    output: Path | None,
    figure: Path | None,
    claim: str | None = None,
) -> list[dict[str, Any]]:
    """Test the claims of papers by the results of runs, print a table for each paper, and return the verdicts.

    Args:
        paths: Run folders. If empty, the claims are only listed.
        papers: Names of the papers, for example "debruin2018"; all papers if empty.
        output: JSON file to which the verdicts are also written.
        figure: Figure file to draw effects and verdicts into.
        claim: Name of the only claim to show. Its p values are corrected for multiple testing over all claims of its
            paper.
    """
    place = None if output is None else new_path(output)
    if figure is not None:
        if not paths:
            raise UserError("--figure draws verdicts by runs: name run folders")
        drawing = check_figure(figure)
    runs = _read_runs(paths)
    families = [read_claims(name) for name in papers or claim_files()]
    if claim is not None:
        names = {each.id for family in families for each in family.claim}
        if claim not in names:
            raise unknown("claim", claim, names)
    records: list[dict[str, Any]] = []
    words: Counter[Word] = Counter()
    brief, drawn = 0, []
    for family in families:
        verdicts, findings = judged(family, runs)
        pairs = [pair for pair in zip(verdicts, findings, strict=True) if claim in (None, pair[0].claim.id)]
        if not pairs:
            continue
        words.update(verdict.word for verdict, _ in pairs)
        brief += sum(short(finding) and verdict.word != "undecided" for verdict, finding in pairs)
        drawn.append((family, [verdict for verdict, _ in pairs]))
        if not runs or any(finding for _, finding in pairs):
            console.print(_table(family, pairs, everything=not runs))
        records += [record(family.paper, *pair) for pair in pairs]
    counted = ", ".join(f"{words[word]} {word}" for word in _STYLES if words[word])
    few = f"; {brief} of the verdicts are on less than {100 * SHORT:g} % of the paper's run" if brief else ""
    console.print(f"{sum(words.values())} claims: {counted}{few}", highlight=False)
    if not runs:
        console.print("to test them, run their presets (replaybench reproduce --list), then name the run folders")
    if place is not None:
        write_text(place, json.dumps(records, indent=1, ensure_ascii=False) + "\n")
        print(f"claims   {output}")
    if figure is not None:
        with style():
            write_figure(claims_figure(drawn), drawing)
        print(f"figure   {figure}")
    return records


def show_plan(paths: Sequence[Path], papers: Sequence[str], claim: str | None = None) -> None:
    """Print the commands that compute further seeds for the undecided claims of runs.

    Args:
        paths: Run folders.
        papers: Names of the papers, for example "debruin2018"; all papers if empty.
        claim: Name of the only claim to plan for.
    """
    if not paths:
        raise UserError("--plan continues stored runs: name run folders")
    runs = _read_runs(paths)
    found = [pair for name in papers or claim_files() for pair in zip(*judged(read_claims(name), runs), strict=True)]
    total = 0.0
    for step in plan_seeds([pair for pair in found if claim in (None, pair[0].claim.id)], runs):
        total += step.hours
        claims = ", ".join(f"{name} (chance {chance:.2f})" for name, chance in step.claims.items())
        completes = f"; completes the seeds of {claims}" if claims else ""
        print(f"# {step.hours:.2f} core hours, {total:.2f} in all{completes}")
        print(step.command)
    if not total:
        print("# no claim of these runs is undecided and likely to be decided by the next look")


def judged(family: Claims, runs: Sequence[Evidence]) -> tuple[list[Verdict], list[Finding | None]]:
    """Return the verdict on each claim of one paper, and the effect that the runs measured for each claim.

    The effect is None if the runs do not contain what the claim compares.
    """
    findings = [find(claim, runs) for claim in family.claim]
    return judge(family.claim, [None if finding is None else finding.effect for finding in findings]), findings


def _table(family: Claims, pairs: Sequence[tuple[Verdict, Finding | None]], everything: bool) -> Table:
    """Return a table of one paper's claims, without claims that the runs cannot test unless `everything` is True."""
    shown = [pair for pair in pairs if everything or pair[1] is not None]
    caption = (
        "effects: means of the differences of paired seeds (interquartile means of rise times) with 95 % BCa "
        "intervals; p if the claim were false, and if it were true (!), by sign-flip tests, Holm's over all claims of "
        "a paper, at the last look; below a verdict: mean, typical run (interquartile mean) and collapsed runs"
    )
    if rest := len(pairs) - len(shown):
        caption += f"; {rest} claims not run"
    table = Table(title=family.paper, box=box.SIMPLE_HEAD, expand=True, show_lines=True)
    table.add_column("claim", ratio=1)
    table.add_column("expected", min_width=12, max_width=18)
    if everything:
        table.add_column("cells of", no_wrap=True)
        for verdict, _ in shown:
            table.add_row(_described(verdict.claim), expected(verdict.claim), verdict.claim.preset)
        return table
    table.caption, table.caption_justify = caption, "left"
    for heading in ("effect [95 %]", "n", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for verdict, finding in shown:
        low, high = verdict.effect.interval()
        effect = f"{verdict.effect.estimate:+.3f} [{low:+.3f}, {high:+.3f}]" if verdict.effect.n else "–"
        if verdict.claim.printed:
            effect += f"\n[dim]{escape(verdict.claim.printed)}[/]"
        seeds = str(verdict.effect.n) + (
            f" ({finding.failed} failed)" if finding is not None and finding.failed else ""
        )
        first, *notes = verdict_text(verdict, finding).split("; ")
        word = "\n".join([f"[{_STYLES[verdict.word]}]{first}[/]", *notes, *parts(verdict, finding).split(", ")])
        both = f"{p_text(verdict.supports)}\n{p_text(verdict.refutes)} !"
        table.add_row(_described(verdict.claim), expected(verdict.claim), effect, seeds, both, word)
    return table


def _described(claim: Claim) -> str:
    return f"[bold]{escape(claim.id)}[/]\n{escape(claim.statement)} [dim]{escape(claim.source)}[/]"


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
