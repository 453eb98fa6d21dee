"""Which published claims hold in the runs that are stored."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

from benchmarks.tables.stored import RESULTS, made
from benchmarks.tables.text import captioned, number, table
from replaybench.experiments.claims.claim import Claims, claim_files, read_claims
from replaybench.experiments.claims.evidence import Finding, read_evidence
from replaybench.experiments.claims.show import expected, judged, still_needed
from replaybench.experiments.claims.verdict import Verdict

STUDIES = (
    "debruin2018-fig7",
    "debruin2018-fig12",
    "debruin2018-fig18",
    "debruin2018-table6",
    "separation",
    "refer",
    "drafting",
)
"""Stored runs with cells that claims compare."""


def texts() -> dict[str, str]:
    found = list(_judged())
    words = Counter(verdict.word for _, verdict, _ in found)
    said = ", ".join(f"{count} {word}" for word, count in words.most_common())
    runs = "; ".join(f"`{study}`, {made(study)}" for study in STUDIES)
    folders = " ".join(f"benchmarks/results/{study}" for study in STUDIES)
    caption = (
        f"{len(found)} claims, {said}. `replaybench claims {folders}`: {runs}. "
        "Effects are means of paired differences, of rise times interquartile means, with 95 % BCa intervals, p by "
        "flipped signs (Holm within a paper); episodes are those of these runs."
    )
    headings = ("claim", "paper", "expected", "effect [95 %]", "n", "episodes", "p", "verdict")
    return {"claims": captioned(caption, table(headings, map(_row, *zip(*found, strict=True))))}


def judged_families() -> list[tuple[Claims, list[Verdict]]]:
    """Return the claims of every paper with their verdicts."""
    return [(family, verdicts) for family, verdicts, _ in _families()]


@functools.cache
def _families() -> list[tuple[Claims, list[Verdict], list[Finding | None]]]:
    runs = [read_evidence(RESULTS / study) for study in STUDIES]
    return [(family, *judged(family, runs)) for family in map(read_claims, claim_files())]


def _judged() -> Iterator[tuple[str, Verdict, Finding]]:
    for family, verdicts, findings in _families():
        for verdict, finding in zip(verdicts, findings, strict=True):
            if finding is not None:
                yield family.paper, verdict, finding


def _row(paper: str, verdict: Verdict, finding: Finding) -> list[str]:
    low, high = verdict.effect.interval()
    chance = verdict.refutes if verdict.word == "contradicted" else verdict.supports
    effect = f"{number(verdict.effect.estimate, 3)} [{number(low, 3)}, {number(high, 3)}]"
    word = f"undecided; {still_needed(verdict)}" if verdict.word == "undecided" else verdict.word
    return [
        verdict.claim.statement,
        f"{paper}, {verdict.claim.source}",
        expected(verdict.claim),
        effect,
        str(verdict.effect.n),
        f"{finding.episodes:,}",
        f"{chance:.3f}" if chance >= 0.001 else "< 0.001",
        word,
    ]
