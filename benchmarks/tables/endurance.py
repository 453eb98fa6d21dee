"""What sweeps endured, as `benchmarks/endurance.py` counted it."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.speeds import measured, rows_of
from benchmarks.tables.text import number, significant, table


def texts() -> dict[str, str]:
    rows = [[_what(row), _value(row), _asked(row)] for row in rows_of("endurance")]
    (tiny,) = (row["more"] for row in rows_of("endurance") if row["what"].startswith("coordination"))
    more = tiny["ms of a cell in a sweep"] - tiny["ms alone"]
    return {
        "endurance": measured("endurance", table(("what", "found", "asked for"), rows)),
        "endurance.per-cell": f"{number(more, 0)} ms",
        "endurance.enough": f"{number(more / 0.05 / 1000, 1)} s",
    }


def _what(row: dict[str, Any]) -> str:
    beside = {**row.get("at", {}), **row.get("more", {})}
    told = ", ".join(f"{name} {number(value, 0)}" for name, value in beside.items())
    return f"{row['what']} ({told})" if told else row["what"]


def _value(row: dict[str, Any]) -> str:
    return f"{significant(row['ours'])} {row.get('unit', '')}".strip()


def _asked(row: dict[str, Any]) -> str:
    unit = row.get("unit", "")
    if "most" in row:
        return f"≤ {row['most']:g} {unit}".strip()
    return f"≥ {row['least']:g} {unit}".strip() if "least" in row else ""
