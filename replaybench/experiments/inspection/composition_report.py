"""The composition of a stored buffer as text: counts, ages, quantiles; and the way from the file to text and figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from replaybench.data.errors import UserError
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import is_installed, make_plant
from replaybench.experiments.inspection.buffer_pieces import BufferPieces, Integers
from replaybench.experiments.inspection.composition import Composition, measure
from replaybench.experiments.inspection.coverage_report import LOOK, coverage, percent
from replaybench.experiments.inspection.state_visits import Axis, plant_axes
from replaybench.replay.files.buffer_schema import BufferFacts, BufferFile, open_buffer

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


def show_composition(
    console: Console, path: Path, member: int | None, plant_name: str | None, figure: Path | None
) -> None:
    """Print what a buffer file is composed of; draw it too if `figure` names a file.

    Args:
        member: place of the member to show; None for all, pooled.
        plant_name: the plant, in place of the one that the file names.

    Raises:
        UserError: there is no such member or plant, or the file is damaged or contradicts itself.
    """
    with open_buffer(path) as file:
        plant, axes = known_plant(file, plant_name)
        found, facts = measure(file, member, axes), file.facts
    console.print(whose(found, facts), style="bold", highlight=False, markup=False)
    console.print(_counts(found))
    if found.stored:
        states = coverage(found.visits, facts, plant) if found.visits is not None else ()
        for part in (*_ages(found), *_quantiles(found), *states):
            console.print(part, highlight=False)
    if figure is not None:
        from replaybench.experiments.inspection.composition_figure import draw_composition

        draw_composition(found, facts, plant, figure)
        print(f"figure   {figure}")


def check_choice(path: Path, member: int | None, plant_name: str | None) -> None:
    """Refuse a buffer file that is none, or a member or a plant that it does not have, before anything is shown.

    Raises:
        UserError: it is damaged or contradicts itself, or there is no such member or plant.
    """
    with open_buffer(path) as file:
        known_plant(file, plant_name)
        BufferPieces(file).choose(member)


def known_plant(file: BufferFile, plant_name: str | None) -> tuple[Plant | None, list[Axis] | None]:
    """Return the plant of a buffer and its states, if they are known.

    A file's word is not enough to run a Python file: a plant that lives in one is named by the user.

    Raises:
        UserError: the plant that the user names is not there or does not fit.
    """
    facts, states = file.facts, file.facts.fields.get("observation", 0)
    named = plant_name or facts.plant or ""
    if plant_name is None and not is_installed(named):
        return None, None
    try:
        plant = make_plant(named, **facts.parameters)
        axes = plant_axes(plant)
    except (UserError, ArithmeticError) as error:
        if plant_name is not None:
            raise UserError(f"{plant_name} does not fit {file.path}: {error}") from None
        return None, None
    if axes is None or len(axes) != states:
        if plant_name is not None:
            raise UserError(f"{file.path} holds {states} states, {plant_name} has {len(plant.state_names)}")
        return None, None
    return plant, axes


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
