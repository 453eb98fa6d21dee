"""Composition of a stored buffer as text: counts, ages, quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from replaybench.envs.interface.plant import Plant
from replaybench.experiments.inspection.buffer_pieces import Integers
from replaybench.experiments.inspection.composition import Composition
from replaybench.experiments.inspection.coverage_report import coverage, percent
from replaybench.experiments.inspection.fitted_table import plain_table
from replaybench.replay.files.buffer_schema import BufferFacts

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_BAR: Final = 36
_ROWS: Final = 5
"""Bins of age in a line."""


@dataclass(frozen=True)
class Quantity:
    """Label of a quantity, its unit, and the meaning of an infinite value."""

    label: str
    unit: str
    whole: bool = False
    infinite: str = "infinite"


QUANTITIES: Final = {
    "age": Quantity("age", "experiences", whole=True),
    "td_error": Quantity("last |TD error|", "scaled reward", infinite="never used"),
    "priority": Quantity("proportional priority", ""),
    "replays": Quantity("replays", "", whole=True),
    "exploration": Quantity("exploration", "normalised action"),
    "reward": Quantity("reward per step", ""),
}


def composition_tables(found: Composition, facts: BufferFacts, plant: Plant | None) -> Iterator[RenderableType]:
    """Yield the composition of a buffer with a known or unknown plant, part by part, for a console."""
    yield Text(whose(found, facts), style="bold")
    yield _counts(found)
    if found.stored:
        yield from _ages(found)
        yield from _quantiles(found)
        if found.visits is not None:
            yield from coverage(found.visits, facts, plant)


def whose(found: Composition, facts: BufferFacts) -> str:
    """Return a title: strategy and members."""
    title = f"composition of {facts.strategy or 'a recording'}"
    if len(found.members) > 1:
        return f"{title}, {len(found.members)} members pooled"
    (member,) = found.members
    number = facts.members[member] if facts.members else member
    return f"{title}, member {member}{'' if number == member else f' (seed {number})'}"


def _counts(found: Composition) -> Table:
    table = Table(show_header=False, box=None)
    steps, share = found.unit_steps, found.stored / max(1, int(found.collected.sum()))
    offered = f" units of up to {steps} steps" if steps > 1 else ""
    units = f" in {found.slots.sum():,} units" if steps > 1 else ""
    table.add_row("collected", f"{found.collected.sum():,}{_each(found.collected)}")
    table.add_row("offered", f"{found.offers.sum():,}{offered}{_each(found.offers)}")
    table.add_row("stored", f"{found.stored:,}{units}{_each(found.slots)}: {percent(share)} of those collected")
    if found.synthetic is not None:
        table.add_row("synthetic", f"{found.synthetic:,}: {percent(found.synthetic / max(1, found.slots.sum()))}")
    return table


def _each(counts: Integers) -> str:
    ends = dict.fromkeys((f"{counts.min():,}", f"{counts.max():,}"))
    return f" ({' to '.join(ends)} each)" if len(counts) > 1 else ""


def _ages(found: Composition) -> Iterator[Table | Text]:
    title, headings = "age: experiences that the member has collected since", ("age", "share of stored", "", "retained")
    table = plain_table(headings, ("age", "", "retained"), title)
    table.columns[1].min_width = _BAR
    lines = -(-len(found.ages.stored) // _ROWS)
    stored, collected = (
        np.pad(bins, (0, lines * _ROWS - len(bins))).reshape(lines, _ROWS).sum(axis=1)
        for bins in (found.ages.stored, found.ages.collected)
    )
    wide = found.ages.width * _ROWS
    for row, (here, there) in enumerate(zip(stored, collected, strict=True)):
        ends = f"{row * wide:,} – {(row + 1) * wide - 1:,}"
        retained = percent(here / there) if there else ""
        table.add_row(ends, bar(here / stored.max(), _BAR), percent(here / found.stored), retained)
    yield table
    note = " retained: share of the experiences of that age that are still stored\n"
    if found.stored < found.collected.sum():
        note += f" a FIFO buffer of the same size would hold {percent(found.young / found.stored)} of them too\n"
    yield Text(note, style="dim")


def bar(share: float, width: int) -> str:
    """Return a bar of `share` of `width` characters, in eighths; at least one eighth for a positive share."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _quantiles(found: Composition) -> Iterator[Table | Text]:
    shares = [f"{share:.0%}" for share in SHARES]
    table = plain_table(("", "unit", *shares, "not counted"), shares, "quantiles")
    for name, counted in found.quantities.items():
        quantity = QUANTITIES[name]
        values = (number(value, quantity.whole) for value in counted.quantiles(SHARES))
        apart = [(counted.infinite, quantity.infinite), (counted.undefined, "NaN")]
        words = ", ".join(f"{count:,} {what}" for count, what in apart if count)
        table.add_row(quantity.label, quantity.unit, *values, words)
    yield table
    yield Text(" over all stored experiences, with a relative error of 1/2000\n", style="dim")


def number(value: float, whole: bool) -> str:
    """Write a quantile."""
    if not np.isfinite(value):
        return "–"
    return f"{value:,.0f}" if whole else f"{value:.3g}"
