"""The composition of a stored buffer as text: counts, ages, quantiles."""

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
from replaybench.experiments.inspection.coverage_report import LOOK, coverage, percent
from replaybench.replay.files.buffer_schema import BufferFacts

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_BAR: Final = 36
_ROWS: Final = 5
"""Bins of age that make a line."""


@dataclass(frozen=True)
class Quantity:
    """How a quantity is called, its unit, and what it means if it is infinite."""

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
    """Yield what a buffer is composed of, part by part, to be printed.

    Args:
        facts: those of the buffer file.
        plant: the plant, whose states are named; None where it is not known.
    """
    yield Text(whose(found, facts), style="bold")
    yield _counts(found)
    if found.stored:
        yield from _ages(found)
        yield from _quantiles(found)
        if found.visits is not None:
            yield from coverage(found.visits, facts, plant)


def whose(found: Composition, facts: BufferFacts) -> str:
    """Say whose composition it is."""
    if len(found.members) > 1:
        return f"composition of {facts.strategy or 'a recording'}, {len(found.members)} members pooled"
    number = facts.members[found.members[0]] if facts.members else found.members[0]
    seed = "" if number == found.members[0] else f" (seed {number})"
    return f"composition of {facts.strategy or 'a recording'}, member {found.members[0]}{seed}"


def _counts(found: Composition) -> Table:
    table = Table(show_header=False, box=None)
    steps = found.unit_steps
    offered = f" units of up to {steps} steps" if steps > 1 else ""
    table.add_row("collected", f"{found.collected.sum():,}{_each(found.collected)}")
    table.add_row("offered", f"{found.offers.sum():,}{offered}{_each(found.offers)}")
    units = f" in {found.slots.sum():,} units{_each(found.slots)}" if steps > 1 else _each(found.slots)
    share = found.stored / max(1, int(found.collected.sum()))
    table.add_row("stored", f"{found.stored:,}{units}: {percent(share)} of those collected")
    if found.synthetic is not None:
        table.add_row("synthetic", f"{found.synthetic:,}: {percent(found.synthetic / max(1, found.slots.sum()))}")
    return table


def _each(counts: Integers) -> str:
    if len(counts) < 2:
        return ""
    low, high = counts.min(), counts.max()
    return f" ({low:,} each)" if low == high else f" ({low:,} to {high:,} each)"


def _ages(found: Composition) -> Iterator[Table | Text]:
    """Yield the histogram of ages; `kept` is the share of the experiences of that age that are still stored."""
    table = Table(title="age: experiences that the member has collected since", **LOOK)
    table.add_column("age", justify="right")
    table.add_column("share of what is stored", min_width=_BAR)
    table.add_column("", justify="right")
    table.add_column("kept", justify="right")
    stored, collected = (_grouped(part) for part in (found.ages.stored, found.ages.collected))
    wide = found.ages.width * _ROWS
    for row, (here, there) in enumerate(zip(stored, collected, strict=True)):
        ends = f"{row * wide:,} – {(row + 1) * wide - 1:,}"
        kept = percent(here / there) if there else ""
        table.add_row(ends, bar(here / stored.max(), _BAR), percent(here / found.stored), kept)
    yield table
    note = "kept: share of the experiences of that age that are still stored"
    if found.stored < found.collected.sum():
        note += f"\n {percent(found.young / found.stored)} of what is stored would be in a FIFO of the same size too"
    yield Text(f" {note}\n", style="dim")


def _grouped(bins: Integers) -> Integers:
    lines = -(-len(bins) // _ROWS)
    grouped: Integers = np.pad(bins, (0, lines * _ROWS - len(bins))).reshape(lines, _ROWS).sum(axis=1)
    return grouped


def bar(share: float, width: int) -> str:
    """Return a bar of `share` of `width` characters, to an eighth of one; never nothing for something."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _quantiles(found: Composition) -> Iterator[Table | Text]:
    table = Table(title="quantiles", **LOOK)
    table.add_column("")
    table.add_column("unit")
    for share in SHARES:
        table.add_column(f"{share:.0%}", justify="right")
    table.add_column("apart")
    for name, counted in found.quantities.items():
        quantity = QUANTITIES[name]
        values = (number(value, quantity.whole) for value in counted.quantiles(SHARES))
        apart = [(counted.infinite, quantity.infinite), (counted.undefined, "NaN")]
        words = ", ".join(f"{count:,} {what}" for count, what in apart if count)
        table.add_row(quantity.label, quantity.unit, *values, words)
    yield table
    yield Text(" over all that is stored, exact to 1 part in 2000; what stands apart is in no quantile\n", style="dim")


def number(value: float, whole: bool) -> str:
    """Return a quantile as text."""
    if not np.isfinite(value):
        return "–"
    return f"{value:,.0f}" if whole else f"{value:.3g}"
