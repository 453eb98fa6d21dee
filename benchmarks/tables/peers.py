"""Beside the hardest peers: rates of updates, times until solved, and what bounds an update, from `results/speed`."""

from __future__ import annotations

from benchmarks.tables.speeds import beside, made_when, measured, rows_of
from benchmarks.tables.text import listed, number, significant, table, wrapped

LEAD = "SAC:64"
"""The section that the first page quotes."""


def texts() -> dict[str, str]:
    return {
        "peers": measured("bench_peers", beside(rows_of("bench_peers"))),
        "peers.lead": _lead(),
        "peers.whole": _whole(),
        "peers-solved": measured("bench_solved", _solved()),
        "roofline": measured("roofline", _roofline()),
    }


def _solved() -> str:
    """Return the table of seconds until 10,000 steps are done, and until the task is solved."""
    rows = []
    for row in rows_of("bench_solved"):
        more = row.get("more", {})
        there = "peer" in row
        rows.append([
            row["what"],
            f"{significant(row['ours'])} s",
            f"{significant(row['peer'])} s" if there else "",
            f"{significant(row['peer'] / row['ours'])}×" if there else "",
            f"{more['solved']:g} of {more['of']:g}, {more['theirs']:g} of {more['of theirs']:g}" if more else "",
        ])  # fmt: skip
    return table(
        ("SAC on Pendulum-v1", "replaybench", "RLtools", "as fast", "seeds that solved it (ours, RLtools')"), rows
    )


def _whole() -> str:
    """Return one sentence on whole runs, of which updates are a part, beside RLtools."""
    solved = [row for row in rows_of("bench_solved") if "until solved" in row["what"]]
    told = []
    for row in solved:
        ours, theirs = (f"{significant(row[side])} s" for side in ("ours", "peer"))
        told.append(f"{ours} ({row['what'].removesuffix(', until solved')}; RLtools {theirs})")
    return f"Until Pendulum-v1 is solved, plant and all, it takes {listed(told)}"


def _roofline() -> str:
    """Return the table behind the figure."""
    peak, near, far, call = (row["ours"] for row in rows_of("roofline", "roofs"))
    rows = [
        [
            f"{row['what'].removesuffix(' updates')}, M = {row['at']['members']:g}",
            f"{significant(row['ours'])} µs",
            significant(row["more"]["MFLOP"]),
            significant(row["more"]["kB"]),
            number(row["more"]["calls"], 0),
            number(100 * row["more"]["MFLOP"] / row["ours"] / peak * 1e3, 0),
        ]
        for row in rows_of("roofline", "learners")
    ]
    headings = (
        "updates of a member",
        "one takes",
        "MFLOP",
        "kB moved",
        "calls for all members",
        "% of the product's rate",
    )
    roofs = (
        f"A large product reaches {number(peak, 0)} GFLOP/s; arrays are read and written at {number(near, 0)} GB/s in "
        f"the second-level cache, {number(far, 0)} GB/s in memory; an empty kernel's call takes {significant(call)} µs."
    )
    return f"{wrapped(roofs)}\n\n{table(headings, rows)}"


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
