"""Advice on strategies as text, with its reasons and a table of the strategies."""

import math
from collections.abc import Iterator
from typing import Final

from rich import box
from rich.table import Column, Table
from rich.text import Text

from replaybench.evidence.advice import proposal, rules
from replaybench.evidence.card import BASELINE, above_baseline
from replaybench.experiments.effects import p_text

_FIRST: Final = 6
"""Number of strategies to print if none was tried."""


def advice_parts(advice: proposal.Advice) -> Iterator[Text | Table]:
    """Yield the proposed strategy, its reasons, the table of tried strategies, and cautions."""
    chosen, capacity = advice.chosen, advice.capacity
    noise = "noise not known" if advice.noise is None else f"noise {advice.noise:g}"
    where = f"{advice.plant}, {advice.frequency:g} Hz, {noise}, {advice.learner}"
    if chosen is None:
        yield Text(f"{where}: {advice.headline}, so no strategy is proposed", "bold")
        yield Text("likely causes, in order", "bold")
        for place, cause in enumerate(advice.causes, 1):
            yield Text(f"  {place}. {cause}")
    else:
        yield Text(f"{where}: use {chosen.name}", "bold")
        kept = f"{chosen.capacity} experiences"
        if chosen.candidate.retention == "FULL":
            kept = "all experiences"
            if capacity is not None:
                kept += f" ({capacity.stored} here); {proposal.rounded(capacity.steps)} by the 90 % rule"
        yield Text(f"capacity: {kept}")
    if capacity is not None:
        yield Text(
            f"the 90 % rule (section 9.1): the learning curve is at nine tenths of {capacity.start:.4g} … "
            f"{capacity.final:.4g} after {capacity.steps} of {capacity.stored} experiences; {capacity.state}"
        )
    if chosen is not None:
        yield Text("reasons", "bold")
        for favours, rule in chosen.candidate.rules():
            yield Text(f"  {'for' if favours else 'against'} it: {rule.because}")
            value = rule.value(advice.traits)
            measured = "without limit" if value is not None and math.isinf(value) else f"{value:.3g}"
            yield Text(
                f"      {rule.trait} = {measured} ({rule.ends()}); section {rule.section}; rule {rule.id}", "dim"
            )
            yield Text(f"      claims: {', '.join(rule.claims)}", "dim")
            for stored in map(rules.stored_evidence().__getitem__, rule.evidence):
                low, high = stored["interval"]
                effect = f"{stored['contrast']} = {stored['effect']:+.3f} [{low:+.3f}, {high:+.3f}]"
                after = f"n = {stored['n']} after {stored['episodes']} episodes"
                yield Text(f"      stored: {effect}, {after}, {stored['stored']}", "dim")
        if not chosen.candidate.rules():
            yield Text(f"  no rule speaks for or against it{': it did best' if advice.probes else ''}")
    yield _table(advice)
    if advice.volume is not None:
        yield Text("stored results by replay volume", "bold")
        yield from map(Text, _by_volume(advice.volume, advice.learner))
    if advice.changes:
        yield Text("what would change it", "bold")
    for change in advice.changes:
        yield Text(f"  {change}")
    for caution in advice.cautions:
        yield Text(f"caution: {caution}", "yellow")


def _by_volume(volume: float, learner: str) -> Iterator[str]:
    stored_learner, nearest, above = above_baseline(volume, learner)
    own = learner.partition(":")[0]
    source = stored_learner if own == stored_learner else f"{stored_learner}, because there are none with {own}"
    stored = f"the nearest stored volume is {nearest:g} (with {source}; docs/results/strategies.md)"
    yield f"  {volume:g} replays for each experience; {stored}"
    for name, (effect, p) in above.items():
        low, high = effect.interval()
        difference = f"{effect.estimate:+.3f} [{low:+.3f}, {high:+.3f}]"
        yield f"  {name} − {BASELINE} = {difference}, p: {p_text(p)}, n = {effect.n}"
    if not above:
        yield f"  no stored strategy ends significantly higher than {BASELINE} there"


def _table(advice: proposal.Advice) -> Table:
    if not advice.probes:
        table = Table("strategy", Column("votes", justify="right"), title="by rules alone", box=box.SIMPLE_HEAD)
        for each in advice.ranked[:_FIRST]:
            table.add_row(Text(each.name), f"{each.candidate.votes:+d}")
        return table
    headings = ("votes", "score", "failed", "− FULL[Uniform] [95 %]", "p")
    columns = [Column("strategy", no_wrap=True), *(Column(heading, justify="right") for heading in headings)]
    title = f"tried with {advice.seeds} seeds × {advice.episodes} episodes"
    table = Table(*columns, title=title, box=box.SIMPLE_HEAD, caption_justify="left")
    table.caption = (
        f"score: {advice.unit}; differences are of paired seeds with BCa intervals; p by sign-flip tests, Holm's"
    )
    for probe in advice.probes:
        difference = "", ""
        if probe.beyond is not None and probe.beyond.n:
            low, high = probe.beyond.interval()
            ends = f" [{low:+z.3f}, {high:+z.3f}]" if math.isfinite(low) else ""
            difference = f"{probe.beyond.estimate:+z.3f}{ends}", p_text(probe.chance)
        counts = f"{probe.candidate.votes:+d}", f"{probe.mean:z.3f}", f"{probe.failed}"
        table.add_row(Text(probe.name), *counts, *difference)
    table.add_section()
    for label, score in advice.known.items():
        table.add_row(label, "", f"{score:z.3f}", "", "", "")
    return table
