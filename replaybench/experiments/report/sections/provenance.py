"""Provenance of results: code, machine, references and study file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replaybench.data.quantities import decimals
from replaybench.experiments.figures.style import plant_name
from replaybench.experiments.report.look import Row, Section, Table, number
from replaybench.experiments.report.material import Material
from replaybench.experiments.training.learning_task import horizon


def provenance_section(material: Material) -> Section:
    """List the origin of a run from its files."""
    origin, data = material.origin, material.data
    facts = [("results made by", f"replaybench {data.attrs.get('version', '?')}")]
    facts.append(("numerics", f"version {data.attrs.get('numerics_version', '?')}"))
    for name, what in (("commit", "code"), ("processor", "processor"), ("target", "kernels compiled for")):
        if name in data.coords:
            values = [text for text in dict.fromkeys(map(str, data[name].values.ravel())) if text]
            facts.append((what, "; ".join(values[:6]) + (f"; {len(values) - 6} more" if len(values) > 6 else "")))
    facts += _discounts(material)
    if "max_substep" in data and np.isfinite(data["max_substep"]).any():
        steps = zip(map(plant_name, material.plants), data["max_substep"].values, strict=True)
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
    tables = [Table("Origin", ("what", "value in the files"), rows, 2, open=True), _references(material)]
    return Section("provenance", "Provenance", [], tables=tables, study=material.study)


def _discounts(material: Material) -> list[tuple[str, str]]:
    """Return the horizon of each learner's discount, on each plant and at each rate."""
    if "discount" not in material.data:
        return []
    found: dict[str, list[str]] = {}
    data = material.data["discount"].transpose("plant", "learner", "frequency")
    for plant, learner, rate in np.argwhere(np.isfinite(data.values)):
        frequency = float(data["frequency"].values[rate])
        words = horizon(float(data.values[plant, learner, rate]), frequency)
        who = str(data["learner"].values[learner])
        found.setdefault(f"{words} at {frequency:g} Hz", []).append(f"{plant_name(material.plants[plant])} {who}")
    return [("discount", f"{words}: {', '.join(whose)}") for words, whose in found.items()]


def _text(value: Any) -> str:
    """Write a value of a file from elsewhere, cut to a sane length."""
    if isinstance(value, list):
        return " ".join(map(str, value))[:400]
    return "" if value is None else str(value)[:400]


def _references(material: Material) -> Table:
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
            *material.numbers(point),
            *(number(float(here[name]), digits) for name in ends),
            f"{100 * change:.2f} %" if np.isfinite(change) else "–",
        ]
        rows.append(Row(cells, point._asdict()))
    heads = ("plant", "grid of dynamic programming", "noise", "Hz", "random", "dynamic programming", "last refinement")
    return Table("References of scores: μᵣ is 0 at random control, 1 at dynamic programming", heads, rows, 2)
