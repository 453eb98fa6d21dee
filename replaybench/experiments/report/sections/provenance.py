"""Where results come from: who computed them, with what, against which references, from which study file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.style import plant_name
from replaybench.experiments.report.look import Listing, Row, Section, Table, number
from replaybench.experiments.report.material import Material


def provenance_section(material: Material) -> Section:
    """List what the files of a run say of their origin."""
    origin, data = material.origin, material.data
    facts = [("results made by", f"replaybench {data.attrs.get('version', '?')}")]
    facts.append(("numerics", f"version {data.attrs.get('numerics_version', '?')}"))
    for name, what in (("commit", "code"), ("processor", "processor"), ("target", "kernels compiled for")):
        if name in data.coords:
            values = [text for text in dict.fromkeys(map(str, data[name].values.ravel())) if text]
            facts.append((what, "; ".join(values[:6]) + (f"; {len(values) - 6} more" if len(values) > 6 else "")))
    written = origin.get("written")
    if isinstance(written, Mapping):
        facts += [("results written", _told(written.get("at"))), ("command", _told(written.get("argv")))]
        facts.append(("system", _told(written.get("system"))))
        if isinstance(versions := written.get("versions"), Mapping):
            facts.append(("libraries", ", ".join(f"{name} {_told(value)}" for name, value in versions.items())))
    if "complete" in origin:
        complete = "yes" if origin["complete"] is True else "no: it was interrupted, or is still running"
        facts.append(("study complete", complete))
    rows = [Row(fact, {}) for fact in facts if fact[1]]
    tables = [Table("Origin", ("what", "as the files say"), rows, 2, open=True), _references(material)]
    listings = [Listing("Study file, with every setting", material.study)] if material.study else []
    return Section("provenance", "Provenance", [], tables=tables, listings=listings)


def _told(value: Any) -> str:
    """Write a value of a file that may come from a stranger."""
    if isinstance(value, list):
        return " ".join(map(str, value))[:400]
    return "" if value is None else str(value)[:400]


def _references(material: Material) -> Table:
    """List what scores are measured against at each condition."""
    data, rows = material.data, []
    ends = [f"reference_{name}" for name in ("random", "dp")]
    digits = decimals((value for name in ends for value in data[name].values.ravel()), least=3)
    for point in material.points():
        here = data.isel(point._asdict())
        grid = str(here["reference_grid"].item()) if "reference_grid" in data else ""
        change = float(here["reference_change"]) if "reference_change" in data else np.nan
        cells = [
            plant_name(material.plants[point.plant]),
            grid or "–",
            f"{data['noise'].values[point.noise]:g}",
            f"{data['frequency'].values[point.frequency]:g}",
            *(number(float(here[name]), digits) for name in ends),
            f"{100 * change:.2f} %" if np.isfinite(change) else "–",
        ]
        rows.append(Row(cells, point._asdict()))
    heads = ("plant", "grid of dynamic programming", "noise", "Hz", "random", "dynamic programming", "last refinement")
    return Table(
        "What scores are measured against: μᵣ is 0 at random control, 1 at dynamic programming", heads, rows, 2
    )
