"""Endurance of sweeps, as `benchmarks/endurance` measured it."""

from typing import Any

from benchmarks.tables.speeds import measured, rows_of, target
from benchmarks.tables.text import number, significant, table

_SINGLE = "beside an idle core"


def texts() -> dict[str, str]:
    rows = [[_what(row), _value(row), target(row)] for row in rows_of("endurance")]
    (tiny,) = (row["more"] for row in rows_of("endurance") if row["what"].startswith("coordination"))
    sweep, plain, single = (tiny[f"ms of a cell {where}"] for where in ("in a sweep", "uncoordinated", _SINGLE))
    return {
        "endurance": measured("endurance", table(("measurement", "result", "target"), rows)),
        "endurance.per-cell": f"{number(sweep - plain, 1)} ms",
        "endurance.both-cores": f"{number(plain - single, 1)} ms",
    }


def _what(row: dict[str, Any]) -> str:
    beside = {**row.get("at", {}), **row.get("more", {})}
    told = ", ".join(f"{name} {number(value, 0)}" for name, value in beside.items())
    return f"{row['what']} ({told})" if told else row["what"]


def _value(row: dict[str, Any]) -> str:
    return f"{significant(row['ours'])} {row.get('unit', '')}".strip()
