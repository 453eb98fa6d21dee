"""Print advice as text or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from replaybench.experiments.advice.ninety_percent import rounded
from replaybench.experiments.advice.proposal import Advice, Probe
from replaybench.experiments.advice.rules import Rule, stored_evidence
from replaybench.experiments.results.effects import p_text

_FIRST: Final = 6
"""Strategies that are named where none was tried."""


def show(advices: Advice | Sequence[Advice], form: str, console: Console) -> None:
    """Print advice, as text or as JSON: an object, of a run folder a list."""
    if form == "json":
        record = as_record(advices) if isinstance(advices, Advice) else [as_record(each) for each in advices]
        print(json.dumps(record, ensure_ascii=False, indent=1))
        return
    for each in [advices] if isinstance(advices, Advice) else advices:
        _print_advice(console, each)


def _print_advice(console: Console, advice: Advice) -> None:

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=False)

    chosen = advice.chosen
    noise = "noise not known" if advice.noise is None else f"noise {advice.noise:g}"
    where = f"{advice.plant}, {advice.frequency:g} Hz, {noise}, {advice.learner}"
    if chosen is None:
        line(f"{where}: {advice.headline}, so no strategy is proposed", "bold")
        line("likely causes, in order", "bold")
        for place, cause in enumerate(advice.causes, 1):
            line(f"  {place}. {cause}")
    else:
        line(f"{where}: use {chosen.name}", "bold")
        line(f"capacity: {_capacity_words(advice, chosen)}")
    if advice.capacity is not None:
        found = advice.capacity
        line(
            f"the 90 % rule (section 9.1): the learning curve is at nine tenths of {found.start:.4g} … "
            f"{found.final:.4g} after {found.steps} of {found.stored} experiences; {found.state}"
        )
    if chosen is not None:
        _print_reasons(line, advice, chosen)
    console.print(_table(advice) if advice.probes else _ranking(advice))
    if advice.changes:
        line("what would change it", "bold")
    for said in advice.changes:
        line(f"  {said}")
    for said in advice.cautions:
        line(f"caution: {said}", "yellow")


def _print_reasons(line: Callable[..., None], advice: Advice, chosen: Probe) -> None:
    line("reasons", "bold")
    for verb, rules in (("for", chosen.candidate.for_), ("against", chosen.candidate.against)):
        for rule in rules:
            line(f"  {verb} it: {rule.because}")
            value = rule.value(advice.traits)
            measured = "without limit" if value is not None and math.isinf(value) else f"{value:.3g}"
            line(f"      {rule.trait} = {measured} ({rule.ends()}); section {rule.section}; rule {rule.id}", "dim")
            line(f"      claims: {', '.join(rule.claims)}", "dim")
            for name in rule.evidence:
                line(f"      stored: {_evidence_words(name)}", "dim")
    if not (chosen.candidate.for_ or chosen.candidate.against):
        line(f"  no rule speaks for or against it{': it did best' if advice.probes else ''}")


def _capacity_words(advice: Advice, chosen: Probe) -> str:
    if chosen.candidate.retention == "FULL":
        if advice.capacity is None:
            return "all experiences"
        return f"all experiences ({advice.capacity.stored} here); {rounded(advice.capacity.steps)} by the 90 % rule"
    return f"{chosen.capacity} experiences"


def _evidence_words(name: str) -> str:
    found = stored_evidence()[name]
    low, high = found["interval"]
    effect = f"{found['contrast']} = {found['effect']:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"{effect}, n = {found['n']} after {found['episodes']} episodes, {found['stored']}"


def _table(advice: Advice) -> Table:
    table = Table(title=f"tried with {advice.seeds} seeds × {advice.episodes} episodes", box=box.SIMPLE_HEAD)
    table.caption = (
        f"score: {advice.unit}; differences are of paired seeds with BCa intervals; p by sign-flip tests, Holm's"
    )
    table.caption_justify = "left"
    for heading in ("strategy", "votes", "score", "failed", "− FULL[Uniform] [95 %]", "p"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right", no_wrap=heading == "strategy")
    for probe in advice.probes:
        counts = f"{probe.candidate.votes:+d}", f"{probe.mean:z.3f}", f"{probe.failed}"
        table.add_row(Text(probe.name), *counts, *_difference(probe))
    table.add_section()
    for label, score in advice.known.items():
        table.add_row(label, "", f"{score:z.3f}", "", "", "")
    return table


def _ranking(advice: Advice) -> Table:
    table = Table(title="by rules alone", box=box.SIMPLE_HEAD)
    table.add_column("strategy")
    table.add_column("votes", justify="right")
    for each in advice.ranked[:_FIRST]:
        table.add_row(Text(each.name), f"{each.candidate.votes:+d}")
    return table


def _difference(probe: Probe) -> tuple[str, str]:
    if probe.beyond is None or not probe.beyond.n:
        return "", ""
    low, high = probe.beyond.interval()
    ends = f" [{low:+z.3f}, {high:+z.3f}]" if math.isfinite(low) else ""
    return f"{probe.beyond.estimate:+z.3f}{ends}", p_text(probe.chance)


def as_record(advice: Advice) -> dict[str, Any]:
    """Return advice as plain values; null for what is unknown or infinite."""
    return {
        **{name: getattr(advice, name) for name in ("plant", "frequency", "noise", "learner", "episodes", "seeds")},
        "strategy": None if advice.chosen is None else advice.chosen.name,
        "capacity": None if advice.chosen is None else advice.chosen.capacity,
        "headline": advice.headline,
        "causes": list(advice.causes),
        "ninety_percent": None if advice.capacity is None else _plain(vars(advice.capacity)),
        "traits": _plain(vars(advice.traits)),
        "reasons": [
            _reason(rule, advice, favours)
            for favours in (True, False)
            for rule in (_rules_on(advice.chosen, favours) if advice.chosen else ())
        ],
        "unit": advice.unit,
        "references": dict(advice.known),
        "tried": [_tried(probe) for probe in advice.probes],
        "ranked": [{"strategy": each.name, "votes": each.candidate.votes} for each in advice.ranked],
        "changes": list(advice.changes),
        "cautions": list(advice.cautions),
    }


def _rules_on(chosen: Probe, favours: bool) -> Sequence[Rule]:
    return chosen.candidate.for_ if favours else chosen.candidate.against


def _reason(rule: Rule, advice: Advice, favours: bool) -> dict[str, Any]:
    return {
        "rule": rule.id,
        "for": favours,
        "because": rule.because,
        "trait": rule.trait,
        "measured": _finite(rule.value(advice.traits)),
        "holds": rule.ends(),
        "section": rule.section,
        "claims": list(rule.claims),
        "evidence": {name: stored_evidence()[name] for name in rule.evidence},
    }


def _tried(probe: Probe) -> dict[str, Any]:
    row: dict[str, Any] = {"strategy": probe.name, "capacity": probe.capacity, "votes": probe.candidate.votes}
    row |= {"score": probe.mean, "scores": [_finite(value) for value in probe.scores.tolist()]}
    if probe.beyond is not None and probe.beyond.n:
        ends = probe.beyond.interval()
        row |= {"beyond_full": probe.beyond.estimate, "interval": list(ends) if math.isfinite(ends[0]) else None}
        row |= {"n": probe.beyond.n, "p": probe.chance}
    return row


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _finite(value) for name, value in values.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
