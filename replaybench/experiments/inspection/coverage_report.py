"""Coverage of the state space by stored experiences, as text: a table of the states, and a picture of a plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from replaybench.envs.interface.plant import Plant
from replaybench.experiments.inspection.buffer_pieces import Integers
from replaybench.experiments.inspection.fitted_table import plain_table
from replaybench.experiments.inspection.state_visits import BINS, FINE, Axis, Visits
from replaybench.replay.files.buffer_schema import BufferFacts

_SHADES: Final = "░▒▓█"


def coverage(visits: Visits, facts: BufferFacts, plant: Plant | None) -> Iterator[Table | Text]:
    """Yield the coverage of each state as a table, and for two states a picture of their plane."""
    numbers = ("from", "to", "visited", "outside")
    title = "states in which stored experiences begin, as observed"
    table = plain_table(("", "unit", *numbers, "never visited"), numbers, title)
    for each, outside in zip(visits.dimensions(), visits.outside, strict=True):
        extent = (f"{each.low:.4g}", f"{each.high:.4g}") if each.low <= each.high else ("–", "–")
        beyond = percent(outside / max(1, visits.total)) if outside else ""
        table.add_row(*map(Text, (each.name, each.unit, *extent, f"{each.visited:.0%}", beyond, each.gaps())))
    yield table
    notes = ["visited: share of 21 equal bins over the plant's range (that of its reference solution, if it has one)"]
    notes += ["outside: beyond that range"] * bool(visits.outside.any())
    both = visits.plane_coverage()
    if both is not None:
        notes.append(f"both states together: {both:.0%} of 21 × 21 bins visited")
    if plant is None:
        unknown = f"the plant {facts.plant} is not known here"
        notes.append(f"{unknown}; if you trust its file, pass --plant path/to/file.py:ClassName")
    yield Text("".join(f" {note}\n" for note in notes), style="dim")
    if len(visits.axes) == 2:
        yield _picture(visits.plane[0], *visits.axes)


def _picture(counts: Integers, across: Axis, up: Axis) -> Text:
    """Return the density over the plane in shades of a logarithmic scale."""
    rows = counts.reshape(BINS, BINS // FINE, FINE).sum(axis=2).T[::-1]
    most = max(1, int(rows.max()))
    limits = [int(np.ceil(most ** (level / len(_SHADES)))) for level in range(len(_SHADES))]
    shade: NDArray[Any] = np.array(list(" " + _SHADES))[np.searchsorted(limits, rows, side="right")]
    top, middle, bottom = (f"{value:.3g}" for value in (up.high, (up.low + up.high) / 2, up.low))
    labels = {0: top, len(rows) // 2: middle, len(rows) - 1: bottom}
    margin = max(map(len, labels.values())) + 2
    blank, line = " " * margin, "─" * BINS
    lines = [f"{blank}{up.label}, upwards; {across.label}, to the right", f"{blank}┌{line}┐"]
    lines += [f"{labels.get(i, ''):>{margin - 1}} │{''.join(row)}│" for i, row in enumerate(shade)]
    low, middle, high = (f"{value:.3g}" for value in (across.low, (across.low + across.high) / 2, across.high))
    lines += [f"{blank}└{line}┘", f"{blank} {low:<21}{middle:^21}{high:>21}"]
    key = "   ".join(f"{mark} {limit:,} or more" for mark, limit in zip(_SHADES, limits, strict=True))
    return Text("\n".join([*lines, f"{blank} experiences: {key}", ""]), no_wrap=True, overflow="crop")


def percent(share: float) -> str:
    """Write a share in per cent."""
    return f"{100 * share:.3g} %" if 0 < share < 0.001 else f"{100 * share:.1f} %"
