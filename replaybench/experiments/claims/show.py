"""What the command `claims` prints and writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replaybench.data.atomic import write_text
from replaybench.experiments.claims.claim import Claims, claim_files, read_claims
from replaybench.experiments.claims.evidence import Evidence, Finding, find, read_evidence
from replaybench.experiments.claims.verdict import Verdict, Word, judge

_STYLES: Final[dict[Word, str]] = {
    "reproduced": "green",
    "contradicted": "red",
    "undecided": "yellow",
    "not run": "dim",
}
_EXPECTS: Final = {"more": "> 0", "less": "< 0", "same": "≈ 0"}


def show_claims(console: Console, paths: Sequence[Path], papers: Sequence[str], output: Path | None) -> None:
    """Judge the claims of papers by runs, print a table a paper, and write all of it as JSON where asked.

    Raises:
        UserError: a run cannot be read, or a paper is not known.
    """
    runs = [read_evidence(path) for path in paths]
    families = [read_claims(name) for name in papers or claim_files()]
    records: list[dict[str, Any]] = []
    words: Counter[Word] = Counter()
    for family in families:
        verdicts, findings = judged(family, runs)
        words.update(verdict.word for verdict in verdicts)
        console.print(_table(family, verdicts, findings, everything=not runs))
        records += [record(family.paper, *pair) for pair in zip(verdicts, findings, strict=True)]
    counted = ", ".join(f"{words[word]} {word}" for word in _STYLES if words[word])
    console.print(f"{sum(words.values())} claims: {counted}", highlight=False)
    if not runs:
        console.print("to judge them, run what they compare (replaybench reproduce --list), then name the run folders")
    if output is not None:
        write_text(output, json.dumps(records, indent=1, ensure_ascii=False) + "\n")
        print(f"claims   {output}")


def judged(family: Claims, runs: Sequence[Evidence]) -> tuple[list[Verdict], list[Finding | None]]:
    """Judge one paper's claims by runs; what they hold of each claim comes with it."""
    findings = [find(claim, runs) for claim in family.claim]
    return judge(family.claim, [None if found is None else found.effect for found in findings]), findings


def _table(family: Claims, verdicts: Sequence[Verdict], findings: Sequence[Finding | None], everything: bool) -> Table:
    """Return a paper's claims; those that were not run are left out, unless everything is asked for."""
    shown = [pair for pair in zip(verdicts, findings, strict=True) if everything or pair[1] is not None]
    rest = len(verdicts) - len(shown)
    caption = "effects are of paired seeds with 95 % BCa intervals; p values are Holm's over the paper's claims" + (
        f"; {rest} claims not run" if rest else ""
    )
    table = Table(title=family.paper, caption=caption, caption_justify="left", box=box.SIMPLE_HEAD)
    for heading, justify in (("claim", "left"), ("expected", "left"), ("effect [95 %]", "right"), ("n", "right"),
                             ("p", "right"), ("verdict", "left"), ("printed", "left")):  # fmt: skip
        table.add_column(heading, justify=justify, no_wrap=heading in ("effect [95 %]", "n", "p"))  # type: ignore[arg-type]
    for verdict, found in shown:
        claim = verdict.claim
        statement = f"[bold]{claim.id}[/] {escape(claim.statement)} [dim]({escape(claim.source)})[/]"
        word = f"[{_STYLES[verdict.word]}]{verdict.word}[/]"
        if verdict.word == "undecided":
            word += f"\n{f'{verdict.more_seeds} more seeds' if verdict.more_seeds else 'too near to tell'}"
        numbers = ["", "", ""]
        if found is not None:
            low, high = verdict.effect.interval()
            numbers = [f"{verdict.effect.mean:+.3f} [{low:+.3f}, {high:+.3f}]", str(verdict.effect.n)]
            numbers[1] += f" ({found.failed} failed)" if found.failed else ""
            numbers.append(_chance(verdict))
        expected = f"{_EXPECTS[claim.expects]} by {claim.relevance:g}" if claim.expects != "same" else (
            f"within ±{claim.relevance:g}"
        )  # fmt: skip
        table.add_row(statement, f"{claim.measure} {expected}", *numbers, word, escape(claim.printed))
    return table


def _chance(verdict: Verdict) -> str:
    chance = verdict.refutes if verdict.word == "contradicted" else verdict.supports
    return f"{chance:.3f}" if chance >= 0.001 else "< 0.001"


def record(paper: str, verdict: Verdict, found: Finding | None) -> dict[str, Any]:
    """Return a verdict as plain values; what was not run has no numbers."""
    claim = verdict.claim
    told: dict[str, Any] = {
        "paper": paper,
        "id": claim.id,
        "source": claim.source,
        "statement": claim.statement,
        "preset": claim.preset,
        "measure": claim.measure,
        "expects": claim.expects,
        "relevance": claim.relevance,
        "printed": claim.printed,
        "verdict": verdict.word,
    }
    if found is not None:
        low, high = verdict.effect.interval()
        told |= {
            "effect": verdict.effect.mean,
            "interval": [low, high] if np.isfinite(low) else None,
            "n": verdict.effect.n,
            "failed": found.failed,
            "episodes": found.episodes,
            "supports": verdict.supports,
            "refutes": verdict.refutes,
            "more_seeds": verdict.more_seeds,
        }
    return told
