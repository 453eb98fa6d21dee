"""Endurance of sweeps, as `benchmarks/endurance` measured it."""

from typing import Any

from benchmarks.tables.speeds import measured, rows_of, target
from benchmarks.tables.text import number, significant, table

_SINGLE = "in one process"


def texts() -> dict[str, str]:
    rows = [[_what(row), _value(row), target(row)] for row in rows_of("endurance")]
    (tiny,) = (row["more"] for row in rows_of("endurance") if row["what"].startswith("additional time"))
    sweep, plain, single = (
        tiny[f"ms per cell {where}"] for where in ("in a sweep", "in independent processes", _SINGLE)
    )
    return {
        "endurance": measured("endurance", table(("measurement", "result", "target"), rows)),
        "endurance.per-cell": f"{number(sweep - plain, 1)} ms",
        "endurance.both-cores": f"{number(plain - single, 1)} ms",
    }


def _what(row: dict[str, Any]) -> str:
    more = {**row.get("at", {}), **row.get("more", {})}
    details = ", ".join(f"{name}: {number(value, 0)}" for name, value in more.items())
    return f"{row['what']} ({details})" if details else row["what"]


def _value(row: dict[str, Any]) -> str:
    return f"{significant(row['ours'])} {row.get('unit', '')}".strip()
