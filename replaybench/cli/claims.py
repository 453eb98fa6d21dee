"""Printing of verdicts on published claims, and of the commands that compute further seeds."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from warnings import warn

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replaybench.data.run_folder import RunFolder
from replaybench.evidence.claim import Claim, Claims, Verdict, Word, claim_files, read_claims
from replaybench.evidence.claims_evidence import (
    SHORT,
    Evidence,
    Finding,
    expected,
    judged,
    parts,
    read_evidence,
    record,
    short,
    verdict_text,
)
from replaybench.evidence.claims_plan import plan_seeds
from replaybench.experiments.effects import p_text
from replaybench.runtime.atomic import new_path, write_text
from replaybench.runtime.errors import ReplaybenchWarning, UserError, unknown

_STYLES: Final[dict[Word, str]] = {
    "reproduced": "green", "contradicted": "red", "smaller than relevant": "cyan", "undecided": "yellow",
    "not run": "dim",
}  # fmt: skip


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
    console: Console, paths: Sequence[Path], papers: Sequence[str], output: Path | None, figure: Path | None,
    claim: str | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Test the claims of papers by the results of runs, print a table for each paper, and return the verdicts.

    All papers are tested if `papers` is empty. The p values of a single `claim` are corrected for multiple testing over
    all claims of its paper.
    """
    place = None if output is None else new_path(output)
    if figure is not None:
        from replaybench.reports.figures.claims import claims_figure
        from replaybench.reports.figures.style import check_figure, style, write_figure

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
    """Print the commands that compute further seeds for the undecided claims of runs."""
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
