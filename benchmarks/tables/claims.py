"""Which published claims hold in the runs that are stored."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Final

from benchmarks.tables.stored import RESULTS, cells, facts, made, runs
from benchmarks.tables.text import captioned, listed, number, table
from replaybench.experiments.claims.claim import Claims, claim_files, read_claims
from replaybench.experiments.claims.evidence import Finding, read_evidence
from replaybench.experiments.claims.show import expected, judged, still_needed
from replaybench.experiments.claims.verdict import Verdict
from replaybench.experiments.presets.preset import preset_names, read_preset
from replaybench.experiments.results.effects import p_text

STUDIES: Final = (
    "expl-zero",
    "fedus2020-capacity",
    "debruin2018-fig3",
    "debruin2018-fig5",
    "debruin2018-fig7",
    "debruin2018-fig8",
    "debruin2018-fig9",
    "debruin2018-fig10",
    "debruin2018-fig11",
    "debruin2018-fig12",
    "debruin2018-fig13",
    "debruin2018-fig14",
    "debruin2018-fig15",
    "debruin2018-fig18",
    "debruin2018-fig19",
    "debruin2018-fig20",
    "debruin2018-fig21",
    "debruin2018-table6",
    "separation",
    "novati2019-fig1",
    "novati2019-fig1mujoco",
    "novati2019-fig3",
    "novati2019-fig3mujoco",
    "novati2019-fig4",
    "novati2019-fig4mujoco",
    "novati2019-fig6",
    "refer-million",
    "panahi2024-variants",
    "sun2020-fig3",
    "sun2020-fig4",
    "sun2020-fig6",
    "sun2020-small",
    "wang2017-fig3",
    "wang2017-fig4",
    "wang2019-small",
    "wang2019-table1",
)
"""Stored runs with cells that claims compare."""
WORDS: Final = ("reproduced", "contradicted", "undecided")

Judged = list[tuple[Verdict, Finding]]


def texts() -> dict[str, str]:
    tables = {f"claims.{name}": _claims(found) for name, (_, found) in judged_papers().items()}
    return {"claims": _overview(), "claims.runs": _runs(), "claims.said": _said(), **tables}


@functools.cache
def judged_papers() -> dict[str, tuple[Claims, Judged]]:
    """Return the claims of every paper of which some were run, and what these say."""
    evidence = [read_evidence(RESULTS / study) for study in STUDIES]
    papers = {}
    for name in claim_files():
        family = read_claims(name)
        pairs = zip(*judged(family, evidence), strict=True)
        if found := [(verdict, finding) for verdict, finding in pairs if finding is not None]:
            papers[name] = family, found
    return papers


def _counts(found: Judged) -> list[int]:
    words = Counter(verdict.word for verdict, _ in found)
    return [words[word] for word in WORDS]


def _overview() -> str:
    """Count verdicts by paper."""
    lines = [(family.paper, len(family.claim), *_counts(found)) for family, found in judged_papers().values()]
    rows = [[paper, *map(str, (said, sum(counts), *counts))] for paper, said, *counts in lines]
    rows.append(["all", *(str(sum(line)) for line in zip(*((r[1], sum(r[2:]), *r[2:]) for r in lines), strict=True))])
    return table(("paper", "claims", "run", *WORDS), rows)


def _said() -> str:
    counts = [sum(column) for column in zip(*(_counts(found) for _, found in judged_papers().values()), strict=True)]
    written = sum(len(read_claims(name).claim) for name in claim_files())
    verdicts = listed([f"{count} {word}" for count, word in zip(counts, WORDS, strict=True)])
    return f"{sum(counts)} of {written} claims are judged: {verdicts}"


def _runs() -> str:
    """Say what each of the runs is, and what it took."""
    presets = {name.replace("/", "-"): name for name in preset_names()}
    rows = []
    for study in STUDIES:
        preset = read_preset(presets[study]) if study in presets else None
        ran = facts(f"{study}/provenance.json").get("cells", {}).values()
        minutes = sum(cell["seconds"] for cell in ran) / 60 if all("seconds" in cell for cell in ran) else float("nan")
        rows.append([
            f"`{study}`",
            f"{preset.figure.figure}: {preset.figure.shows}" if preset else "a study of this repository",
            str(len(list(cells(study)))),
            runs(study),
            number(minutes, 0),
            made(study),
        ])  # fmt: skip
    folders = " ".join(f"benchmarks/results/{study}" for study in STUDIES)
    caption = f"`replaybench claims {folders}`. Minutes are of one core, which other work shared."
    return captioned(caption, table(("run", "what", "cells", "runs of each", "minutes", "made"), rows))


def _claims(found: Judged) -> str:
    """Tell of each claim of a paper."""
    headings = ("claim", "source", "expected", "effect [95 %]", "n", "run, episodes", "p", "p!", "verdict")
    return table(headings, [_row(*pair) for pair in found])


def _row(verdict: Verdict, finding: Finding) -> list[str]:
    low, high = verdict.effect.interval()
    effect = f"{number(verdict.effect.estimate, 3)} [{number(low, 3)}, {number(high, 3)}]"
    word = f"undecided; {still_needed(verdict)}" if verdict.word == "undecided" else verdict.word
    return [
        verdict.claim.statement,
        verdict.claim.source,
        expected(verdict.claim),
        effect,
        str(verdict.effect.n),
        f"{' '.join(f'`{run}`' for run in finding.runs)}, {finding.episodes:,}",
        p_text(verdict.supports),
        p_text(verdict.refutes),
        word,
    ]
