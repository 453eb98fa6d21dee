"""Rates of updates and times until solved, with the fastest peers, and bounds of an update, from `results/speed`."""

from benchmarks.tables.speeds import compared, measured, rows_of
from benchmarks.tables.text import number, significant, table, wrapped


def texts() -> dict[str, str]:
    return {
        "peers": measured("bench_peers", compared(rows_of("bench_peers"))),
        "peers-avx512": measured("bench_peers_avx512", compared(rows_of("bench_peers_avx512"))),
        **_values(),
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
        ("SAC on Pendulum-v1", "replaybench", "RLtools", "speed-up", "seeds that solved it (replaybench, RLtools)"),
        rows,
    )


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
        "learner",
        "time per update",
        "MFLOP per update",
        "kB moved per update",
        "function calls for all members",
        "% of peak",
    )
    roofs = (
        f"A large matrix product in a numerical library reaches {number(peak, 0)} GFLOP/s. Arrays are read and written "
        f"at {number(near, 0)} GB/s in the second-level cache and at {number(far, 0)} GB/s in memory. A call of an "
        f"empty compiled function takes {significant(call)} µs."
    )
    return f"{wrapped(roofs)}\n\n{table(headings, rows)}"


def _values() -> dict[str, str]:
    """Return the ratios to Stable-Baselines3 at two sizes of SAC, and the ranges of those to RLtools."""
    rows = rows_of("bench_peers")
    sac = {
        (row["at"]["units"], row["at"]["batch"]): row["ratio"]
        for row in rows
        if row["rival"] == "Stable-Baselines3" and row["what"].startswith("SAC")
    }
    ranges = {
        name: [row["ratio"] for row in rows_of(script) if row["rival"] == "RLtools"]
        for name, script in (("rltools", "bench_peers"), ("rltools-avx512", "bench_peers_avx512"))
    }
    return {
        "peers.sb3-64": significant(sac[64, 64]),
        "peers.sb3-256": significant(sac[256, 256]),
        **{
            f"peers.{name}": f"{significant(min(found))} to {significant(max(found))}" for name, found in ranges.items()
        },
    }
