"""Beside the hardest peers: rates of updates, from `results/speed/bench_peers.json`."""

from __future__ import annotations

from benchmarks.tables.speeds import beside, made_when, measured, rows_of
from benchmarks.tables.text import number, significant

LEAD = "SAC:64"
"""The section that the first page quotes."""


def texts() -> dict[str, str]:
    return {"peers": measured("bench_peers", beside(rows_of("bench_peers"))), "peers.lead": _lead()}


def _lead() -> str:
    """Return one sentence on the hardest peers, the hardest first."""
    rows = [row for row in rows_of("bench_peers", LEAD) if row["at"]["members"] > 1]
    rows.sort(key=lambda row: row["ratio"])
    where = rows[0]["at"]
    rivals = {"RLtools": "RLtools with MKL, one seed in C++", "JAX": "a plain JAX population"}
    told = [f"{significant(row['ratio'])} × {rivals.get(row['rival'], row['rival'])}" for row in rows]
    machine = made_when("bench_peers", LEAD).split(" on ", 1)[1].split(",", 1)[0]
    return (
        f"On one core ({machine}) SAC with {where['units']:g}-{where['units']:g} units and batches of "
        f"{where['batch']:g} does {number(rows[0]['ours'], 0)} updates/s with {where['members']:g} seeds, which is "
        f"{', '.join(told)}"
    )
