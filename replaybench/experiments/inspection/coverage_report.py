"""Where in the state space stored experiences lie, as text: coverage of each state, and a picture of a plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from replaybench.envs.interface.plant import Plant
from replaybench.experiments.inspection.buffer_pieces import Integers
from replaybench.experiments.inspection.state_visits import BINS, FINE, Axis, Visits
from replaybench.replay.files.buffer_schema import BufferFacts

LOOK: Final[dict[str, Any]] = {"box": box.SIMPLE_HEAD, "title_justify": "left"}
"""How the tables of a composition look."""
_SHADES: Final = "░▒▓█"


def coverage(visits: Visits, facts: BufferFacts, plant: Plant | None) -> Iterator[Table | Text]:
    """Yield the coverage of each state as a table, and of two states a picture of their plane."""
    table = Table(title="states in which stored experiences begin, as observed", **LOOK)
    table.add_column("")
    table.add_column("unit")
    for heading in ("from", "to", "visited", "outside"):
        table.add_column(heading, justify="right")
    table.add_column("never visited")
    for each, outside in zip(visits.dimensions(), visits.outside, strict=True):
        extent = (f"{each.low:.4g}", f"{each.high:.4g}") if each.low <= each.high else ("–", "–")
        beyond = percent(outside / max(1, visits.total)) if outside else ""
        table.add_row(*map(Text, (each.name, each.unit, *extent, f"{each.visited:.0%}", beyond, each.gaps())))
    yield table
    notes = ["outside: beyond that range"] if visits.outside.any() else []
    notes.insert(
        0, "visited: share of 21 equal bins over the plant's range (that of its reference solution, if it has one)"
    )
    both = visits.plane_coverage()
    if both is not None:
        notes.append(f"both states together: {both:.0%} of 21 × 21 bins visited")
    if plant is None:
        named = f"the plant {facts.plant} is not known here"
        notes.append(f"{named}; if you trust its file, say --plant path/to/file.py:ClassName")
    yield Text("".join(f" {note}\n" for note in notes), style="dim")
    if len(visits.axes) == 2:
        yield _picture(visits.plane[0], *visits.axes)


def _picture(counts: Integers, across: Axis, up: Axis) -> Text:
    """Return the density over the plane as shades of equal ratios."""
    rows = counts.reshape(BINS, BINS // FINE, FINE).sum(axis=2).T[::-1]
    most = int(rows.max())
    limits = [int(np.ceil(max(1, most) ** (level / len(_SHADES)))) for level in range(len(_SHADES))]
    shade: NDArray[Any] = np.array(list(" " + _SHADES))[np.searchsorted(limits, rows, side="right")]
    ends = [f"{value:.3g}" for value in (up.high, (up.low + up.high) / 2, up.low)]
    margin = max(map(len, ends)) + 2
    labels = dict(zip((0, len(rows) // 2, len(rows) - 1), ends, strict=True))
    lines = [f"{'':{margin}}{up.label}, upwards; {across.label}, to the right", f"{'':{margin}}┌{'─' * BINS}┐"]
    lines += [f"{labels.get(i, ''):>{margin - 1}} │{''.join(row)}│" for i, row in enumerate(shade)]
    low, middle, high = (f"{value:.3g}" for value in (across.low, (across.low + across.high) / 2, across.high))
    lines += [f"{'':{margin}}└{'─' * BINS}┘", f"{'':{margin}} {low:<21}{middle:^21}{high:>21}"]
    key = "   ".join(f"{mark} {limit:,} or more" for mark, limit in zip(_SHADES, limits, strict=True))
    return Text("\n".join([*lines, f"{'':{margin}} experiences: {key}", ""]), no_wrap=True, overflow="crop")


def percent(share: float) -> str:
    """Return a share in per cent, small ones with their leading digits."""
    return f"{100 * share:.3g} %" if 0 < share < 0.001 else f"{100 * share:.1f} %"
