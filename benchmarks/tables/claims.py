"""Verdicts on published claims by all stored runs."""

import functools
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Final

from benchmarks.tables.stored import RESULTS, cells, facts, runs
from benchmarks.tables.text import captioned, listed, number, table
from replaybench.controllers.registry import algorithm_of
from replaybench.evidence.claim import Claim, Claims, Verdict, claim_files, read_claims
from replaybench.evidence.claims_evidence import (
    SHORT,
    Evidence,
    Finding,
    expected,
    judged,
    parts,
    read_evidence,
    short,
    verdict_text,
)
from replaybench.evidence.preset import Scale, preset_names, read_preset
from replaybench.experiments.dataset import AXES
from replaybench.experiments.effects import p_text
from replaybench.experiments.study import Cell

WORDS: Final = ("reproduced", "contradicted", "smaller than relevant", "undecided", "not run")
BEFORE: Final = "claims_before.json"
"""Verdicts by the rule before, on the same runs: word, interquartile mean, mean and seeds, by claim."""
RESTATED: Final = {
    "wang2019.cheetah-per-helps-late": "replaced by `cheetah-per-equals-uniform`: the paper says it of the end of "
    "3·10⁶ steps, and prints equal means for the first half",
}
"""Claims that did not say what their paper says."""

Judged = list[tuple[Verdict, Finding | None]]


@functools.cache
def texts() -> dict[str, str]:
    tables = {f"claims.{name}": _claims(found) for name, (_, found) in judged_papers().items()}
    told = {"claims": _overview(), "claims.runs": _runs(), "claims.missing": _missing(), **_said()}
    return {
        **told,
        "claims.changed": _changed(),
        "claims.before": _before(),
        **tables,
        "claims.before-count": str(len(facts(BEFORE))),
    }


@functools.cache
def evidence() -> list[Evidence]:
    """Return all stored runs that have results and their study."""
    return [read_evidence(path) for path in sorted(RESULTS.glob("*/results.nc"))]


@functools.cache
def judged_papers() -> dict[str, tuple[Claims, Judged]]:
    """Return the claims of every paper with verdicts by all stored runs."""
    families = {name: read_claims(name) for name in claim_files()}
    return {name: (family, list(zip(*judged(family, evidence()), strict=True))) for name, family in families.items()}


def _counts(words: Iterable[str]) -> list[int]:
    counted = Counter(words)
    return [counted[word] for word in WORDS]


def _brief() -> list[int]:
    """Count, for each paper, the decided claims whose runs are far shorter than the paper's."""
    return [
        sum(short(finding) and verdict.word != "undecided" for verdict, finding in found)
        for _, found in judged_papers().values()
    ]


def _overview() -> str:
    """Count verdicts by paper."""
    lines = {family.paper: _counts(verdict.word for verdict, _ in found) for family, found in judged_papers().values()}
    brief = _brief()
    lines["all"] = [sum(column) for column in zip(*lines.values(), strict=True)]
    rows = [
        [name, *map(str, (sum(line), *line, few))]
        for (name, line), few in zip(lines.items(), [*brief, sum(brief)], strict=True)
    ]
    return table(("paper", "claims", *WORDS, f"decided on less than {100 * SHORT:g} % of the run"), rows)


def _said() -> dict[str, str]:
    counts = _counts(verdict.word for _, found in judged_papers().values() for verdict, _ in found)
    verdicts = listed([f"{count} {word}" for count, word in zip(counts, WORDS, strict=True)])
    return {"claims.count": str(sum(counts)), "claims.verdicts": verdicts, "claims.brief": str(sum(_brief()))}


def _used() -> list[str]:
    """Return the names of the runs on which verdicts rest."""
    found = (finding for _, pairs in judged_papers().values() for _, finding in pairs if finding is not None)
    return sorted({run for finding in found for run in finding.runs})


def _runs() -> str:
    """Describe each run on which verdicts rest."""
    presets = {name.replace("/", "-"): name for name in preset_names()}
    names = {run.path.name: str(run.study["name"]) for run in evidence()}
    further = {run.path.name for run in evidence() if run.study.get("first_seed")}
    rows = []
    for study in _used():
        preset = read_preset(presets[study]) if study in presets else None
        other = f"further seeds of `{names[study]}`" if study in further else "a study of this repository"
        rows.append([
            f"`{study}`",
            f"{preset.figure.figure}: {preset.figure.shows}" if preset else other,
            str(len(cells(study))),
            runs(study),
        ])  # fmt: skip
    caption = f"Of {len(evidence())} stored studies, the table shows those that claims use."
    return captioned(caption, table(("study", "figure", "cells", "seeds and episodes per cell"), rows))


def _claims(found: Judged) -> str:
    """Show each claim of a paper."""
    headings = ("claim", "expected", "effect [95 %]", "n, look, run, episodes", "p / p!", "verdict")
    return table(headings, [_row(*pair) for pair in found])


def _row(verdict: Verdict, finding: Finding | None) -> list[str]:
    claim = [f"{verdict.claim.statement} ({verdict.claim.source})", expected(verdict.claim)]
    if finding is None:
        return [*claim, "–", f"0, `{verdict.claim.preset}`", "", verdict.word]
    low, high = verdict.effect.interval()
    statistic = "" if verdict.effect.statistic == "mean" else " (interquartile mean)"
    return [
        *claim,
        f"{number(verdict.effect.estimate, 3)} [{number(low, 3)}, {number(high, 3)}]{statistic}",
        f"{verdict.effect.n}, {verdict.look}, {' '.join(f'`{run}`' for run in finding.runs)}, {finding.episodes:,}",
        f"{p_text(verdict.supports)} / {p_text(verdict.refutes)}",
        "; ".join(filter(None, (verdict_text(verdict, finding), parts(verdict, finding)))),
    ]


def _before() -> str:
    """Count the verdicts before."""
    counts = _counts(word for word, *_ in facts(BEFORE).values())
    return listed([f"{count} {word}" for count, word in zip(counts, WORDS, strict=True) if count])


def _changed() -> str:
    """Show each claim whose verdict is another than before, and why."""
    before = facts(BEFORE)
    now = {f"{name}.{v.claim.id}": v for name, (_, found) in judged_papers().items() for v, _ in found}
    rows = []
    for name, (word, typical, mean, seeds) in before.items():
        verdict = now.get(name)
        after = verdict.word if verdict is not None else "–"
        if after != word:
            rows.append([f"`{name}`", word, after, _reason(name, verdict, typical, mean, seeds)])
    return table(("claim", "before", "now", "why"), rows)


def why_not(claim: Claim, runs: Iterable[Evidence]) -> str:
    """Return why runs of a claim's own presets are not evidence for it; empty if they are, or if there are none."""
    own = {str(run.study.get("name")): run for run in reversed([*runs])}  # not the runs of further seeds
    plus, minus = claim.cells()
    for preset, cell in zip(claim.presets(), (*plus, *minus), strict=True):
        if (run := own.get(preset.replace("/", "-"))) is None:
            continue
        if tuple(getattr(cell, axis) for axis in AXES) not in run.places:
            return f"{run.path.name} does not contain {cell.plant}, {cell.learner}, {cell.strategy}"
        if difference := next(run.differences(cell), ""):
            return f"{run.path.name} has another value of {difference}"
    return ""


def _reason(name: str, verdict: Verdict | None, typical: float, mean: float, seeds: int) -> str:
    if verdict is None or name in RESTATED:
        return RESTATED[name]
    if verdict.word == "not run":
        return f"must be run again: {why_not(verdict.claim, evidence()) or 'no stored run has its cells'}"
    told = f"{seeds} seeds before, {verdict.effect.n} now; " if verdict.effect.n != seeds else ""
    if verdict.hangs_on_one:
        return f"{told}hangs on one run"
    if verdict.claim.measure == "rise":
        return f"{told}half of the error is kept for further looks"
    return f"{told}mean {number(mean, 3)}, interquartile mean {number(typical, 3)}"


def _missing() -> str:
    """Show for each preset which claims no run decides, what they lack, and the time of their cells."""
    found: dict[str, list[Claim]] = {}
    for _, pairs in judged_papers().values():
        for verdict, finding in pairs:
            if finding is None:
                found.setdefault(verdict.claim.preset, []).append(verdict.claim)
    rows = []
    for preset, claims in found.items():
        reasons = dict.fromkeys(why_not(claim, evidence()) for claim in claims)
        named: dict[str, tuple[str, Cell]] = {}
        for claim in claims:
            plus, minus = claim.cells()
            named |= {cell.id: (own, cell) for own, cell in zip(claim.presets(), (*plus, *minus), strict=True)}
        hours = [_hours(*each) for each in named.values()]
        rows.append([
            f"`{preset}`",
            listed([f"`{claim.id}`" for claim in claims]),
            "; ".join(filter(None, reasons)) or "never run",
            number(sum(hours), 1),
        ])  # fmt: skip
    caption = (
        "*Core hours* is the estimated time for the cells that these claims compare. The estimate uses the scale "
        "`standard`, or `paper` for plants that `standard` omits. The time of a step is the median over stored results "
        "of the same learner."
    )
    return captioned(caption, table(("preset", "claims", "why", "core hours"), rows))


def _hours(preset: str, cell: Cell) -> float:
    """Return the core hours of all seeds of a cell."""
    scales: tuple[Scale, ...] = "standard", "paper"
    for scale in scales:
        mine = [each for each in _preset_cells(preset, scale) if _point(each) == _point(cell)]
        if mine:
            steps = sum(each.members * each.episodes * each.steps_per_episode for each in mine)
            return steps * _step_seconds(preset, cell) / 3600
    return float("nan")


@functools.cache
def _preset_cells(preset: str, scale: Scale) -> list[Cell]:
    return read_preset(preset).study(scale).cells()


def _point(cell: Cell) -> tuple[str | float, ...]:
    return cell.plant, cell.learner, cell.strategy, cell.noise, cell.frequency


def _step_seconds(preset: str, cell: Cell) -> float:
    """Return the median time of a step of one learner: in the preset's own run, on the plant, or in all stored runs."""
    algorithm = algorithm_of(cell.learner).removesuffix("-discrete")
    keys = (preset.replace("/", "-"), algorithm), (algorithm, cell.plant), (algorithm,)
    return next((statistics.median(_rates()[key]) for key in keys if key in _rates()), float("nan"))


@functools.cache
def _rates() -> dict[tuple[str, ...], list[float]]:
    """Return seconds of a step in stored runs, by run and algorithm, by algorithm and plant, and by algorithm."""
    found: dict[tuple[str, ...], list[float]] = {}
    lengths = {
        (cell.plant, cell.frequency): cell.steps_per_episode
        for preset in preset_names()
        for cell in _preset_cells(preset, "standard")
    }
    for run in evidence():
        for told in facts(f"{run.path.name}/provenance.json").get("cells", {}).values():
            cell = told.get("cell", {})
            steps = lengths.get((cell.get("plant"), cell.get("frequency")))
            if steps is not None and "seconds" in told:
                rate = told["seconds"] / (steps * cell["members"] * cell["episodes"])
                algorithm = algorithm_of(cell["learner"])
                for key in ((run.path.name, algorithm), (algorithm, cell["plant"]), (algorithm,)):
                    found.setdefault(key, []).append(rate)
    return found
