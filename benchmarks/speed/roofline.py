"""What bounds an update of each learner: its arithmetic, the bytes it moves, or the calls from Python around it.

    python benchmarks/speed/roofline.py          # measures, stores, draws
    python benchmarks/speed/roofline.py --draw   # draws what is stored

Arithmetic is that of the products alone, bytes those of weights, moments, slow copies and batches, each read and
written as often as the algorithm names them, as if nothing but activations stayed near. Roofs are measured in the same
run: a large library product, and arrays read and written within the second-level cache and in memory. Calls are all
calls of Python and of compiled functions in a phase of updates, whatever M; a call costs what an empty kernel's does.
"""

# First: it fixes the number of threads.
from timings import FOLDER, Timing, interleaved, main, timed  # isort: skip

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
from bench_learners import LEARNERS, Learner, core_peak, our_run, our_updates
from bench_peers import pin

from replaybench.reports.figures.style import GREY, PALETTE, new_figure, save, style

DDPG = Learner(
    "DDPG",
    lambda hidden, batch: {"actor_hidden": hidden, "critic_hidden": (*hidden, 20), "batch_size": batch},
    "DDPG",
    {"actor": 4, "critic": 6},
    0,
)
SIZES = {"DDPG": ((50, 50), 16)}
"""Hidden units and batch; 64-64 and 64 elsewhere. DDPG's are those of the 2018 paper."""
POPULATIONS = (1, 32)
WRITTEN_LEFT = ("TD3", "NAF", "V-RACER")
"""Whose names stand left of their dots: the others would be in the way."""
ADAM, TRACK = 7, 3
"""How often a step reads or writes each parameter: itself, its gradient and both moments; itself and its slow copy."""


def counted(work: Any) -> int:
    """Return how many calls of Python functions, and from them of others, the work makes."""
    calls = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def moved(learner: Learner, hidden: tuple[int, ...], batch: int) -> float:
    """Return the bytes that one update reads and writes."""
    agent = our_run(learner, hidden, batch, 1).agent
    sizes = {name: network.shape.parameter_count for name, network in agent.networks.items()}
    floats = sum(sizes[name] * times for name, times in learner.passes.items())
    floats += sum(size * (ADAM + TRACK * (name in agent.networks.targets)) for name, size in sizes.items())
    row = 2 * agent.task.observation_size + agent.task.action_size + 3
    return 4 * (floats + batch * row)


def streamed(size: int) -> float:
    """Return bytes read and written per second where arrays of so many bytes are doubled into another.

    Not copied: some processors' copy instruction is slower than loops of vectors.
    """
    source, target = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    times = max(1, (1 << 27) // size)

    def double() -> None:
        for _ in range(times):
            np.add(source, source, out=target)

    return statistics.median(timed(double, 2 * size * times, time.process_time) for _ in range(7))


def call_cost() -> float:
    """Return seconds of one call from Python into a compiled kernel that does nothing."""
    from replaybench.runtime.kernel import kernel

    @kernel
    def nothing(x: Any) -> None:
        pass

    x = np.zeros((1, 1), np.float32)
    nothing(x)

    def calls() -> None:
        for _ in range(20_000):
            nothing(x)

    return 1 / statistics.median(timed(calls, 20_000, time.process_time) for _ in range(7))


def roofs() -> list[Timing]:
    """What this core can do."""
    return [
        Timing("large product", core_peak() / 1e9, "GFLOP/s"),
        Timing("arrays of 128 KiB", streamed(1 << 17) / 1e9, "GB/s"),
        Timing("arrays of 128 MiB", streamed(1 << 27) / 1e9, "GB/s"),
        Timing("a call", 1e6 * call_cost(), "µs"),
    ]


def learners() -> list[Timing]:
    """Every learner, one member and a population, in turns."""
    rows = []
    for learner in (DDPG, *LEARNERS):
        hidden, batch = SIZES.get(learner.name, ((64, 64), 64))
        works, counts, bytes_moved = [], [], moved(learner, hidden, batch)
        for members in POPULATIONS:
            counts.append(max(3, 600 // members))
            work, operations = our_updates(learner, hidden, batch, members, counts[-1])
            works.append(work)
        rates = interleaved(*(
            lambda work=work, amount=m * c: timed(work, amount, time.process_time)
            for work, m, c in zip(works, POPULATIONS, counts, strict=True)
        ))  # fmt: skip
        for members, rate, work, count in zip(POPULATIONS, rates, works, counts, strict=True):
            more = {"MFLOP": operations / 1e6, "kB": bytes_moved / 1e3, "calls": counted(work) / count}
            where = {"units": hidden[0], "batch": batch, "members": members}
            rows.append(Timing(f"{learner.name} updates", 1e6 / rate, "µs", at=where, more=more))
    return rows


def draw() -> None:
    """Draw stored measurements: rates beneath their roofs, and times beside what bounds them."""
    stored = json.loads((FOLDER / "roofline.json").read_text(encoding="utf-8"))
    peak, near, far, call = (row["ours"] for row in stored["roofs"]["timings"])
    rows = stored["learners"]["timings"]
    made = stored["learners"]["made"]
    caption = (
        f"{made['processor']}, {made['date'][:10]}, commit {made['commit'][:7]}. Batches of 64, DDPG of 16. Left: "
        "products' operations per second, triangles one member, dots a population of 32, beneath this core's roofs. "
        "Right: time of an update of a member, and what it would be were it bound by one thing only."
    )
    with style():
        figure = new_figure(11, 5, "What bounds an update", caption)
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.1))
        _draw_roofs(left, rows, peak, near, far)
        _draw_times(right, rows, peak, near, call)
        save(figure, FOLDER, "roofline")


def _draw_roofs(axes: Any, rows: list[dict[str, Any]], peak: float, near: float, far: float) -> None:
    """Draw rates of arithmetic over operations per byte."""
    intensity = np.geomspace(0.8, 60, 200)
    for speed, name in ((near, "second-level cache"), (far, "memory")):
        axes.plot(intensity, np.minimum(peak, speed * intensity), color=GREY, linewidth=1)
        axes.annotate(f"{name}, {speed:.0f} GB/s", (0.95, 0.78 * speed), fontsize=8, color=GREY, va="top")
    axes.annotate(f"large product, {peak:.0f} GFLOP/s", (60, 1.05 * peak), fontsize=8, color=GREY, ha="right")
    names = list(dict.fromkeys(row["what"].removesuffix(" updates") for row in rows))
    for row in rows:
        name, several = row["what"].removesuffix(" updates"), row["at"]["members"] > 1
        x, y = row["more"]["MFLOP"] / row["more"]["kB"] * 1e3, row["more"]["MFLOP"] / row["ours"] * 1e3
        axes.plot(x, y, "o" if several else "^", color=PALETTE[names.index(name) % len(PALETTE)], markersize=6)
        if several:
            side = -1 if name in WRITTEN_LEFT else 1
            where = {"xytext": (7 * side, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(name, (x, y), fontsize=8, ha="left" if side > 0 else "right", **where)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte moved", ylabel="products' arithmetic [GFLOP/s]")
    for axis, ticks in ((axes.xaxis, (1, 2, 5, 10, 20, 50)), (axes.yaxis, (5, 10, 20, 50, 100))):
        axis.set_ticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()


def _draw_times(axes: Any, rows: list[dict[str, Any]], peak: float, near: float, call: float) -> None:
    """Draw times of updates, and of each of their parts alone."""
    place = np.arange(len(rows))
    bounds = {
        "products alone": [row["more"]["MFLOP"] / peak * 1e3 for row in rows],
        "bytes alone, from the cache": [row["more"]["kB"] / near for row in rows],
        "calls alone, each an empty kernel's": [row["more"]["calls"] * call / row["at"]["members"] for row in rows],
    }
    axes.barh(place, [row["ours"] for row in rows], color="0.85", height=0.85, label="measured")
    for number, (label, values) in enumerate(bounds.items()):
        axes.barh(place + 0.25 * (number - 1), values, height=0.2, label=label, color=PALETTE[number])
    axes.set_yticks(place, [f"{row['what'].removesuffix(' updates')}, M = {row['at']['members']}" for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="one update of one member [µs]")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


SECTIONS = {"roofs": roofs, "learners": learners}

if __name__ == "__main__":
    if sys.argv[1:] != ["--draw"]:
        pin()
        main("roofline.py", SECTIONS)
    if "--dry" not in sys.argv:
        draw()
