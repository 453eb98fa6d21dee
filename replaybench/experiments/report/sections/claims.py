"""Verdicts on published claims that compare cells of this study."""

from __future__ import annotations

from collections import Counter

import numpy as np

from replaybench.data.errors import UserError
from replaybench.experiments.claims.claim import Claim, Claims, claim_files, read_claims
from replaybench.experiments.claims.evidence import Finding, read_evidence
from replaybench.experiments.claims.show import expected, judged, still_needed
from replaybench.experiments.claims.verdict import Verdict
from replaybench.experiments.report.look import Row, Section, Table, number
from replaybench.experiments.report.material import Material
from replaybench.experiments.results.effects import p_text

_HEADS = ("claim", "paper and place", "expected", "verdict", "effect [95 %]", "seeds", "p", "episodes (paper's)")


def claims_section(material: Material) -> Section:
    """Judge all published claims that the package contains; without tables if none compares cells of this study."""
    title, families = "Published claims", [read_claims(name) for name in claim_files()]
    count = sum(len(family.claim) for family in families)
    if material.folder is None or not material.folder.study.is_file():
        return Section("claims", title, [])
    try:
        runs = [read_evidence(material.folder.path)]
    except UserError as error:
        return Section("claims", title, [], notes=[f"Claims could not be judged: {error}"])
    found = [(family, *pair) for family in families for pair in zip(*judged(family, runs), strict=True)]
    run = [(family, verdict, finding) for family, verdict, finding in found if finding is not None]
    if not run:
        return Section("claims", title, [])
    words = Counter(verdict.word for _, verdict, _ in run)
    verdicts = ", ".join(f"{number} {word}" for word, number in words.items())
    lead = (
        f"{len(run)} of {count} published claims compare cells of this study, which have the settings of the paper: "
        f"{verdicts}. Effects are interquartile means of the differences of paired seeds. p values are adjusted for "
        "all of a paper's claims, run or not (Holm 1979). The last column gives the length of these runs, and that of "
        "the paper's."
    )
    rows = [_row(material, family, verdict, finding) for family, verdict, finding in run]
    return Section("claims", title, [lead], tables=[Table("Claims and verdicts", _HEADS, rows, 4, open=True)])


def _row(material: Material, family: Claims, verdict: Verdict, found: Finding) -> Row:
    claim = verdict.claim
    low, high = verdict.effect.interval()
    effect = number(verdict.effect.estimate, 3)
    effect += f" [{number(low, 3)}, {number(high, 3)}]" if np.isfinite(low) else ""
    p = verdict.refutes if verdict.word == "contradicted" else verdict.supports
    word: str = verdict.word
    if verdict.word == "undecided":
        word += f"; {still_needed(verdict)}"
    seeds = f"{verdict.effect.n}" + (f" ({found.failed} failed)" if found.failed else "")
    cells = [
        claim.statement,
        f"{family.paper}, {claim.source}",
        expected(claim),
        word,
        effect,
        seeds,
        p_text(p),
        f"{found.episodes:,} ({claim.cells()[0][0].episodes:,})",
    ]
    return Row(cells, _places(material, claim), f"claim {verdict.word}")


def _places(material: Material, claim: Claim) -> dict[str, int]:
    """Return the places on the axes on which all cells of a claim agree."""
    found = {}
    for axis in ("plant", "noise", "frequency", "learner", "strategy"):
        values = {place.get(axis) for place in claim.places()}
        known = material.data[axis].values.tolist()
        if len(values) == 1 and (value := values.pop()) in known:
            found[axis] = known.index(value)
    return found
