"""Sections of the report page about published claims and about the origin of the results."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from replaybench.evidence.claim import Claims, Verdict, claim_files, read_claims
from replaybench.evidence.claims_evidence import Finding, expected, judged, parts, read_evidence, verdict_text
from replaybench.experiments.comparison import RIVAL, reference_label
from replaybench.experiments.effects import p_text
from replaybench.experiments.schedule import horizon
from replaybench.reports.figures.style import plant_name
from replaybench.reports.page.report_data import ReportData
from replaybench.reports.page.theme import Row, Section, Table, number
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import decimals

_HEADS = ("claim", "paper and place", "expected", "verdict", "effect [95 %]", "seeds", "p", "episodes (paper's)")


def claims_section(report: ReportData) -> Section:
    """Return the section with verdicts on published claims, without tables if this study can test no claim."""
    nothing, families = Section("claims", "Published claims", []), [read_claims(name) for name in claim_files()]
    if report.folder is None or not report.folder.study.is_file():
        return nothing
    try:
        runs = [read_evidence(report.folder.path)]
    except UserError as error:
        return replace(nothing, notes=[f"Claims could not be judged: {error}"])
    every = [(family, *pair) for family in families for pair in zip(*judged(family, runs), strict=True)]
    run = [(family, verdict, finding) for family, verdict, finding in every if finding is not None]
    if not run:
        return nothing
    words = Counter(verdict.word for _, verdict, _ in run)
    count = sum(len(family.claim) for family in families)
    verdicts = ", ".join(f"{number} {word}" for word, number in words.items())
    lead = (
        f"{len(run)} of {count} published claims compare cells of this study, which have the settings of the paper: "
        f"{verdicts}. Effects are means of the differences of paired seeds (interquartile means "
        "of rise times). p values are adjusted for "
        "all of a paper's claims, run or not (Holm 1979). The last column gives the length of these runs, and that of "
        "the paper's."
    )
    rows = [_row(report, family, verdict, finding) for family, verdict, finding in run]
    return replace(nothing, lead=[lead], tables=[Table("Claims and verdicts", _HEADS, rows, 4, open=True)])


def _row(report: ReportData, family: Claims, verdict: Verdict, finding: Finding) -> Row:
    claim = verdict.claim
    low, high = verdict.effect.interval()
    effect = number(verdict.effect.estimate, 3)
    effect += f" [{number(low, 3)}, {number(high, 3)}]" if np.isfinite(low) else ""
    p = verdict.refutes if verdict.word == "contradicted" else verdict.supports
    word = "; ".join(filter(None, (verdict_text(verdict, finding), parts(verdict, finding))))
    seeds = f"{verdict.effect.n}" + (f" ({finding.failed} failed)" if finding.failed else "")
    episodes = f"{finding.episodes:,} ({claim.cells()[0][0].episodes:,})"
    where = f"{family.paper}, {claim.source}"
    cells = [claim.statement, where, expected(claim), word, effect, seeds, p_text(p), episodes]
    places = {}  # on the axes on which all cells of the claim agree
    for axis in ("plant", "noise", "frequency", "learner", "strategy"):
        values = {place.get(axis) for place in claim.places()}
        known = report.data[axis].values.tolist()
        if len(values) == 1 and (value := values.pop()) in known:
            places[axis] = known.index(value)
    return Row(cells, places, f"claim {verdict.word}")


def provenance_section(report: ReportData) -> Section:
    """Return the section about the origin of the results, as described by the files of the run folder."""
    origin, data = report.origin, report.data
    facts = [("results made by", f"replaybench {data.attrs.get('version', '?')}")]
    facts.append(("numerics", f"version {data.attrs.get('numerics_version', '?')}"))
    for name, what in (("commit", "code"), ("processor", "processor"), ("target", "kernels compiled for")):
        values = [text for text in dict.fromkeys(map(str, data[name].values.ravel())) if text]
        facts.append((what, "; ".join(values[:6]) + (f"; {len(values) - 6} more" if len(values) > 6 else "")))
    facts += _discounts(report)
    for name in (name for name in ("channel", "spread") if name in data.coords):
        described = zip(map(plant_name, report.plants), data[name].values, strict=True)
        facts.append((name, "; ".join(f"{plant}: {words or 'none'}" for plant, words in described)))
    if "observed" in data.coords:
        observed = zip(map(plant_name, report.plants), data["observed"].values, strict=True)
        facts.append(("observed states", "; ".join(f"{name}: {states or 'all'}" for name, states in observed)))
    if np.isfinite(data["max_substep"]).any():
        steps = zip(map(plant_name, report.plants), data["max_substep"].values, strict=True)
        facts.append(("Runge-Kutta steps", ", ".join(f"{n}: at most {s:.4g} s" for n, s in steps if np.isfinite(s))))
    written = origin.get("written")
    if isinstance(written, Mapping):
        names = {"results written": "at", "command": "argv", "system": "system"}
        facts += [(what, _text(written.get(name))) for what, name in names.items()]
        if isinstance(versions := written.get("versions"), Mapping):
            facts.append(("libraries", ", ".join(f"{name} {_text(value)}" for name, value in versions.items())))
    if "complete" in origin:
        complete = "yes" if origin["complete"] is True else "no: it was interrupted, or is still running"
        facts.append(("study complete", complete))
    rows = [Row(fact, {}) for fact in facts if fact[1]]
    tables = [Table("Origin", ("what", "value in the files"), rows, 2, open=True), _references(report)]
    tables += [table] if (table := _rivals(report)) else []
    return Section("provenance", "Provenance", [], tables=tables, study=report.study)


def _discounts(report: ReportData) -> list[tuple[str, str]]:
    """Return texts with the time horizon of each learner's discount factor, on each plant and at each control rate."""
    by_text: dict[str, list[str]] = {}
    data = report.data["discount"].transpose("plant", "learner", "frequency")
    for plant, learner, rate in np.argwhere(np.isfinite(data.values)):
        frequency = float(data["frequency"].values[rate])
        words = horizon(float(data.values[plant, learner, rate]), frequency)
        who = str(data["learner"].values[learner])
        by_text.setdefault(f"{words} at {frequency:g} Hz", []).append(f"{plant_name(report.plants[plant])} {who}")
    return [("discount", f"{words}: {', '.join(whose)}") for words, whose in by_text.items()]


def _text(value: Any) -> str:
    """Return a value from an untrusted file as text of at most 400 characters."""
    return "" if value is None else (" ".join(map(str, value)) if isinstance(value, list) else str(value))[:400]


def _references(report: ReportData) -> Table:
    data, rows = report.data, []
    ends = [f"reference_{name}" for name in ("random", "dp")]
    digits = decimals((value for name in ends for value in data[name].values.ravel()), least=3)
    for point in report.points:
        here = data.isel(point._asdict())
        grid = str(here["reference_grid"].item())
        start = str(here["reference_dp_from"].item()) if "reference_dp_from" in data else ""
        grid += f"; predicts from the {start}" if start else ""
        change = float(here["reference_change"])
        cells = [
            plant_name(report.plants[point.plant]),
            grid or "–",
            *report.numbers(point),
            *(number(float(here[name]), digits) for name in ends),
            f"{100 * change:.2f} %" if np.isfinite(change) else "–",
        ]
        rows.append(Row(cells, point._asdict()))
    heads = ("plant", "grid of dynamic programming", "noise", "Hz", "random", "dynamic programming", "last refinement")
    return Table("References of scores: μᵣ is 0 at random control, 1 at dynamic programming", heads, rows, 2)


def _rivals(report: ReportData) -> Table | None:
    """Return a table of the gains of rivals, such as a tuned PID controller, and the cost of their tuning."""
    rows = []
    for point in report.points if "rival_note" in report.data else ():
        here = report.data["rival_note"].isel(point._asdict())
        for name, note in zip(here["rival"].values.tolist(), here.values.tolist(), strict=True):
            if note:
                plant = plant_name(report.plants[point.plant])
                rows.append(Row([plant, reference_label(RIVAL + name), note, *report.numbers(point)], point._asdict()))
    return Table("Rivals and their tuning", ("plant", "rival", "gains", "noise", "Hz"), rows, 3) if rows else None
