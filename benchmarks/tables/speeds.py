"""Timings compared with peers, from `results/speed`."""

import functools
import json
import math
from typing import Any

from benchmarks.tables.stored import RESULTS
from benchmarks.tables.text import between, captioned, listed, number, significant, table
from replaybench.experiments.effects import p_text

Row = dict[str, Any]
SHOWN = {
    "rltools": "RLtools", "mkl": "MKL", "jax": "JAX", "stable_baselines3": "Stable-Baselines3", "torch": "torch",
    "cpprb": "cpprb", "mujoco": "MuJoCo",
}  # fmt: skip
HEADINGS = ("measurement", "replaybench", "compared with", "ratio", "target")


def texts() -> dict[str, str]:
    return {
        "speed": measured("bench_core", compared(rows_of("bench_core"))),
        "speed-learners": measured("bench_learners", compared(_updates())),
        "speed-plants": measured("bench_mujoco", compared(_plants())),
        "speed-replay": measured("bench_replay", _replay()),
        "speed-growth": _growth(),
        "speed-files": measured("bench_files", compared(rows_of("bench_files"))),
        "speed-memory": _memory(),
        "speed-costs": _costs(),
        **_gpu(),
        **_gpu_curves(),
        **_bytes(),
        **_values(),
    }


def _gpu() -> dict[str, str]:
    """Return the rates on a GPU, of whole cells and of launches alone, and what else `device_check` has measured."""
    stored = json.loads((RESULTS / "device_check.json").read_text(encoding="utf-8"))
    rows = {(row["part"], row["what"], row.get("members")): row for row in stored["rows"]}

    def rate(part: str, what: str, members: int | None = None) -> float:
        return float(rows.get((part, what, members), {}).get("member_updates_per_second", math.nan)) / 1e6

    cells = dict.fromkeys((what, members) for part, what, members in rows if part in ("rates", "launches"))
    shown = [
        [what, number(members, 0), *(significant(rate(part, what, members)) for part in ("rates", "launches"))]
        for what, members in cells
    ]
    headings = ("cell", "members", "whole cell", "kernel only")
    together = rate("at once", "with the service") / rate("at once", "without the service")
    return {
        "speed-gpu": captioned(
            f"Measured {stored['at']} on {stored['device']}, {stored['cores']} cores. Rates are in million "
            "member-updates per second.",
            table(headings, shown),
        ),
        "gpu.rate": f"{significant(rate('rates', 'FIFO[Uniform]', 1024))} million",
        "gpu.per": significant(rate("rates", "FULL[PER]", 1024) / rate("rates", "FIFO[Uniform]", 1024)),
        "gpu.first": f"{significant(rows['compiling', 'first kernel', None]['seconds'])} s",
        "gpu.kernels": f"{significant(rows['compiling', 'kernels of Figure 12', None]['seconds'])} s",
        "gpu.figure12": f"{number(rows['figure12', 'Figure 12', None]['seconds'], 0)} s",
        "gpu.service": f"{significant(together)} times",
    }


def _gpu_curves() -> dict[str, str]:
    """Return mean scores of the GPU program's source, compiled for a CPU, and of the normal program."""
    stored = json.loads((RESULTS / "device_curves_host.json").read_text(encoding="utf-8"))
    rows, largest = [], 0.0
    for row in stored["rows"]:
        plant, strategy = row["what"].split()
        difference, wide = row["mean"] - row["cpu"], 1.645 * row["standard_error"]
        largest = max(largest, abs(difference))
        interval = between(difference, difference - wide, difference + wide, 3)
        means = number(row["cpu"], 3), number(row["mean"], 3)
        rows.append([plant, strategy, f"{row['seeds']}", *means, interval, p_text(row["p_equal"])])
    caption = (
        f"Measured on an {stored['device']}. The CPU build was compiled with more optimisation than in the tests. "
        "*Score* is the mean μ_r over all 100 episodes and all seeds. *Difference* is the score of the CPU build minus "
        "that of the normal program, with its 90 % interval. *p* is the larger one of two one-sided tests against "
        "differences of 0.02."
    )
    headings = ("plant", "strategy", "seeds", "score, normal program", "score, CPU build", "difference [90 %]", "p")
    equal = sum(row["p_equal"] < 0.05 for row in stored["rows"])
    return {
        "gpu-curves": captioned(caption, table(headings, rows)),
        "gpu.equal": f"{equal} of {len(rows)}",
        "gpu.largest": number(largest, 3),
    }


@functools.cache
def _stored(script: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "speed" / f"{script}.json").read_text(encoding="utf-8"))
    return found


def rows_of(script: str, *sections: str) -> list[Row]:
    """Return the timings of some sections of a script, or of all."""
    stored = _stored(script)
    return [row for name in sections or stored for row in stored[name]["timings"]]


def measured(script: str, text: str) -> str:
    return captioned(made_when(script), text)


def made_when(script: str, *sections: str) -> str:
    """Return date, machine and peers of a script's timings, or of some sections."""
    stored = _stored(script)
    made = [stored[name]["made"] for name in sections or stored]
    dates = sorted({each["date"][:10] for each in made})
    loads = [each["load"] for each in made if each["load"] is not None]
    versions = made[-1]["versions"]
    peers = [f"{name} {versions[key]}" for key, name in SHOWN.items() if key in versions]
    notes = sorted({each["note"] for each in made if "note" in each})
    facts = [listed(list(dict.fromkeys(each["processor"] for each in made))), f"{made[-1]['cores']} cores"]
    facts += [f"load average {number(min(loads), 1)} to {number(max(loads), 1)}"] if loads else []
    text = f"Measured {listed(dates)} on {', '.join(facts)}. Versions: {listed(peers)}."
    return " ".join([text, *(f"*{note[0].upper()}{note[1:]}.*" for note in notes)])


def amount(value: float, unit: str) -> str:
    """Return a value with its unit, for people."""
    if unit.endswith("/s"):
        if value >= 1e6:
            return f"{number(value / 1e6, 1)} M{unit}" if unit == "/s" else f"{number(value, 0)} {unit}"
        return f"{number(value, 0)} {unit}"
    return f"{significant(value)} {unit}"


def target(row: Row) -> str:
    """Return what was aimed at, with ✗ where that is missed."""
    if "least_ratio" in row:
        aim, missed = f"{row['least_ratio']:g}×", row["ratio"] < row["least_ratio"]
    elif "most" in row:
        aim, missed = f"≤ {row['most']:g} {row.get('unit', '')}".strip(), row["ours"] > row["most"]
    elif "least" in row:
        aim, missed = f"≥ {number(row['least'], 0)} {row.get('unit', '')}".strip(), row["ours"] < row["least"]
    else:
        return ""
    return f"{aim} ✗" if missed else aim


def _place(row: Row) -> str:
    names = {"members": "M =", "batch": "batch", "capacity": "C =", "units": "units", "processes": "processes:"}
    return "".join(f", {names.get(name, name)} {number(value, 0)}" for name, value in row.get("at", {}).items())


def compared(rows: list[Row]) -> str:
    """Return the table of timings with their peers."""
    return table(
        HEADINGS,
        [
            [
                row["what"] + _place(row),
                amount(row["ours"], row["unit"]),
                f"{amount(row['peer'], row['unit'])} ({row['rival']})" if "peer" in row else "",
                f"{significant(row['ratio'])}×" if "ratio" in row else "",
                target(row),
            ]
            for row in rows
        ],
    )


def _updates() -> list[Row]:
    sections = [name for name in _stored("bench_learners") if not name.startswith("sweep")]
    return [
        {**row, "what": f"{row['what']} ({number(row['more']['% of peak'], 0)} % of peak)"}
        for row in rows_of("bench_learners", *sections)
    ]


def _plants() -> list[Row]:
    scripts = ("bench_mujoco", "bench_bullet", "bench_flow")
    return [row for name in scripts if (RESULTS / "speed" / f"{name}.json").is_file() for row in rows_of(name)]


def _power(value: float) -> str:
    return f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[len(str(int(value))) - 1]}"


def _replay() -> str:
    """Return the table of batches replayed: a line for each pair and capacity, columns by batch."""
    found: dict[tuple[str, str, float], dict[float, Row]] = {}
    for row in rows_of("bench_replay", "peer", "house"):
        found.setdefault((row["what"], row["rival"], row["at"]["capacity"]), {})[row["at"]["batch"]] = row
    lines, before = [], ("", "")
    for (what, rival, capacity), row in sorted(found.items(), key=lambda item: ("cpprb" not in item[0][1],)):
        aimed = [each for each in row.values() if "least_ratio" in each]
        bounds = {f"{each['least_ratio']:.2g}×" for each in aimed}
        missed = " ✗" if any(each["ratio"] < each["least_ratio"] for each in aimed) else ""
        lines.append([
            "" if (what, rival) == before else f"{what} ({rival})",
            _power(capacity),
            *(word for batch in (16, 256) for word in _millions(row[batch])),
            ", ".join(sorted(bounds, reverse=True)) + missed or "–",
        ])  # fmt: skip
        before = what, rival
    return table(
        ("strategy (compared with)", "capacity C", "batch 16", "ratio", "batch 256", "ratio", "least ratio (target)"),
        lines,
    )


def _millions(row: Row) -> tuple[str, str]:
    ours, peer = (significant(row[side] / 1e6) for side in ("ours", "peer"))
    return f"{ours} ({peer})", f"{significant(row['ratio'])}×"


def _growth() -> str:
    rows = rows_of("bench_replay", "growth")
    names = list(dict.fromkeys(row["what"] for row in rows))
    places: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        places.setdefault((row["at"]["members"], row["at"]["capacity"]), []).append(number(row["ours"], 0))
    return table(("M", "C", *names), [[str(m), _power(c), *cells] for (m, c), cells in places.items()])


def _memory() -> str:
    rows = [[row["what"], number(row["ours"], 1)] for row in rows_of("bench_replay", "memory", "memory:later")]
    return table(("strategy", "bytes per experience"), rows)


def _costs() -> str:
    rows = [[row["what"], number(row["ours"], 2)] for row in rows_of("bench_replay", "costs")]
    return table(("strategy", "CPU time, relative to `FIFO[PERprop]`"), rows)


def _bytes() -> dict[str, str]:
    """Return what an experience costs under each strategy, rounded up."""
    used = {row["what"]: row["ours"] for row in rows_of("bench_replay", "memory", "memory:later")}
    names = {
        "TDE": "TDE[Uniform]", "Expl": "Expl[Uniform]", "PER": "FULL[PER]", "PERprop": "FULL[PERprop]",
        "ERE": "Resv[ERE]", "ERE-PER": "Resv[ERE+PER]", "LAP": "FULL[LAP]", "LA3P": "FULL[LA3P]",
        "ReaPER": "FULL[ReaPER]", "TruncGeo": "Resv[TruncGeo]", "Cover": "Cover[Uniform]",
    }  # fmt: skip
    return {f"bytes.{short}": f"{math.ceil(used[name])} B" for short, name in names.items()}


def _values() -> dict[str, str]:
    victims = rows_of("bench_replay", "victims")
    draws = [row["ours"] for row in victims if row["what"] in ("TDE[Uniform]", "Expl[Uniform]")]
    adds = {row["what"]: row["more"]["whole add"] for row in victims}  # the larger capacity comes last
    return {
        "victims": f"{significant(min(draws))} to {significant(max(draws))} µs",
        "adds.Cover": significant(adds["Cover[Uniform]"] / adds["FIFO[Uniform]"]),
    }
