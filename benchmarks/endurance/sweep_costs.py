"""What sweeps cost beyond acting and learning: coordination, files, recording, memory. Sections of `__main__.py`."""

import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.endurance.sweeping import LIMIT_SECONDS, MIXED, WORKERS, command, count, sweep
from benchmarks.speed.timings import Timing

CELLS = int(os.environ.get("ENDURANCE_CELLS", "2000"))
MINUTES = float(os.environ.get("ENDURANCE_MINUTES", "30"))

_together: Barrier

TINY = """
name = "tiny"
plants = ["PendulumDCSC"]
strategies = ["FIFO[Uniform]"]
seeds = {cells}
block = 1
episodes = {episodes}
greedy_every = 4
capacity = 500
buffers = "none"
[learner.DDPG]
actor_hidden = [8]
critic_hidden = [8, 8]
"""


def pace(*more: object) -> float:
    """Return the seconds between the ends of a sweep's tiny cells, times its workers."""
    with tempfile.TemporaryDirectory(prefix="tiny") as name:
        study = Path(name) / "tiny.toml"
        study.write_text(TINY.format(cells=CELLS, episodes=8), encoding="utf-8")
        sweep(study, Path(name) / "run", *more)
        events = [json.loads(line) for line in (Path(name) / "run/progress.jsonl").read_text().splitlines()]
        ended = [each["at"] for each in events if each["event"] == "complete"]
    begin = len(ended) // 10  # behind the first, which load and compile
    return WORKERS * float(ended[-1] - ended[begin]) / (len(ended) - 1 - begin)


def uncoordinated(processes: int, share: int = 20) -> float:
    """Return the seconds of a tiny cell in processes that know nothing of each other, each with a share of all cells.

    Two cores that both work are slower than one beside an idle one: they share clock, caches and memory, which nobody
    who coordinates can help. So what a sweep with two workers is held against is two processes.
    """
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(processes)
    with context.Pool(processes, _meet, (together,)) as pool:
        return statistics.mean(pool.map(_plain_cells, [max(20, CELLS // share)] * processes, chunksize=1))


def _meet(together: Barrier) -> None:
    """Tell a new process how it learns that the others are ready, too."""
    global _together
    _together = together


def _plain_cells(count: int) -> float:
    from replaybench.experiments.cell import run_cell
    from replaybench.experiments.study import read_study

    with tempfile.TemporaryDirectory(prefix="plain") as name:
        study = Path(name) / "tiny.toml"
        study.write_text(TINY.format(cells=count, episodes=8), encoding="utf-8")
        first, *cells = read_study(study).cells()
        run_cell(first, Path(name) / first.id, "none")
        _together.wait(LIMIT_SECONDS)
        began = time.perf_counter()
        for cell in cells:
            run_cell(cell, Path(name) / cell.id, "none")
        return (time.perf_counter() - began) / len(cells)


def coordination() -> Iterator[Timing]:
    """Compare tiny cells of a local sweep with the same cells in as many processes that nobody coordinates."""
    before, sweeping, after = uncoordinated(WORKERS), pace(), uncoordinated(WORKERS)
    plain, single = (before + after) / 2, uncoordinated(1)
    milliseconds = {"in a sweep": sweeping, "in independent processes": plain, "in one process": single}
    more = {f"ms per cell {where}": 1e3 * seconds for where, seconds in milliseconds.items()}
    said = f"additional time per cell in a sweep, {WORKERS} local workers"
    yield Timing(said, 100 * (sweeping / plain - 1), "%", most=5, more={**more, "cells": CELLS})


PLANNED = {
    "DDPG": "debruin2018/table6",
    "NAF": "novati2019/fig3",
    "V-RACER": "novati2019/fig4",
    "SAC": "sun2020/small",
    "ACER": "wang2017/fig4",
}
"""Presets whose plans are held against what they take, by learner."""


def plans() -> Iterator[Timing]:
    """Compare what dry runs say that presets take, at scale quick, with what their cells then take."""
    from replaybench.evidence.preset import read_preset
    from replaybench.experiments.calibration import estimate

    for learner, name in PLANNED.items():
        cells = read_preset(name).study("quick").cells()
        with tempfile.TemporaryDirectory(prefix="plan") as room:
            words = ("reproduce", name, "--scale", "quick", "--output", f"{room}/run", "--workers", str(WORKERS))
            planned = estimate(cells, (), None, WORKERS, compiles=True).seconds
            subprocess.run([sys.executable, "-m", "replaybench", *words], check=True, capture_output=True)
            ran = json.loads(Path(room, "run/provenance.json").read_text(encoding="utf-8"))["cells"].values()
        took = sum(cell["seconds"] for cell in ran) / WORKERS
        more = {"s planned": planned, "s measured": took}
        yield Timing(f"error of the planned time, {learner}", 100 * abs(planned / took - 1), "%", most=30, more=more)


def index() -> Iterator[Timing]:
    """Open the results of 10⁴ cells: 100 points of a study of 100 blocks."""
    import numpy as np
    import xarray as xr

    from replaybench.experiments.dataset import add_scores, assemble
    from replaybench.experiments.results_file import read_results, write_results
    from replaybench.experiments.study import Study

    study = Study(
        name="many", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]", "FULL[PER]"), seeds=100, block=1,
        noise=tuple(i / 500 for i in range(10)), frequency=(10.0, 20.0, 25.0, 50.0, 100.0), episodes=50,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="index") as name:
        cells = study.cells()
        data: xr.Dataset = assemble(cells, {}, {cell.id: Path(name) / cell.id for cell in cells})
        data["reward"][:] = np.random.default_rng(0).random(data["reward"].shape)
        add_scores(data)
        write_results(Path(name) / "results.nc", data)
        began = time.perf_counter()
        opened = read_results(Path(name) / "results.nc")
        seconds = time.perf_counter() - began
        if not opened["cell"].identical(data["cell"]):
            raise RuntimeError("what was read is not what was written")
    yield Timing("open the results of a study", seconds, "s", most=1, at={"cells": len(cells)})


def growth() -> Iterator[Timing]:
    """Watch the memory of a sweep and its workers, which go from cell to cell, until time is up."""
    import psutil

    with tempfile.TemporaryDirectory(prefix="growth") as name:
        study, folder = Path(name) / "many.toml", Path(name) / "run"
        text = MIXED.read_text(encoding="utf-8")
        study.write_text(text.replace("seeds = 2\n", f"seeds = {CELLS}\nblock = 2\n"), encoding="utf-8")
        process = subprocess.Popen(command(study, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began, held = time.monotonic(), dict[int, list[int]]()
        try:
            while process.poll() is None and time.monotonic() - began < 60 * MINUTES:
                time.sleep(MINUTES / 3)  # 180 looks
                for each in (psutil.Process(process.pid), *psutil.Process(process.pid).children()):
                    held.setdefault(each.pid, []).append(each.memory_full_info().uss)
            cells = count(folder)
        finally:
            process.terminate()
            process.wait(LIMIT_SECONDS)
    grown = [_later(looks) for looks in held.values() if len(looks) > 90]
    more = {"processes": len(grown), "cells": cells, "largest memory [MB]": max(map(max, held.values())) / 1e6}
    what = f"memory growth of any process, from the middle to the last third of {MINUTES:g} minutes"
    yield Timing(what, max(grown) / 1e6, "MB", most=10, more=more)


def _later(looks: list[int]) -> float:
    """Return how much more is held in the last third than in the one before."""
    third = len(looks) // 3
    return statistics.median(looks[-third:]) - statistics.median(looks[-2 * third : -third])


def recording() -> Iterator[Timing]:
    """Tell what part of a study's time goes into anything but acting, learning and greedy episodes."""
    from replaybench.experiments.cell import CellRun, run_cell
    from replaybench.experiments.dataset import assemble
    from replaybench.experiments.results_file import write_results
    from replaybench.experiments.snapshots import Snapshots
    from replaybench.experiments.study import Study

    strategies = ("FIFO[Uniform]", "FULL[PER]")
    study = Study(name="recording", plants=("PendulumDCSC",), strategies=strategies, seeds=50, episodes=1000)
    with tempfile.TemporaryDirectory(prefix="recording") as name:
        for cell in replace(study, seeds=2, episodes=20).cells():
            run_cell(cell, Path(name) / cell.id, "final")  # compiles
        cells = study.cells()
        folders = {cell.id: Path(name) / cell.id for cell in cells}
        with clocked(CellRun, "advance") as rounds, clocked(Snapshots, "take") as looks:
            began = time.perf_counter()
            for cell in cells:
                run_cell(cell, folders[cell.id], "final")
            ended = time.perf_counter()
        write_results(Path(name) / "results.nc", assemble(cells, {}, folders))
        scored = time.perf_counter() - ended
    whole, learning = ended - began + scored, sum(rounds) - sum(looks)
    more = {"s in total": whole, "s for snapshots": sum(looks), "s for scores and results": scored}
    yield Timing("time for recording, checkpoints and statistics", 100 * (1 - learning / whole), "%", most=5, more=more)


@contextlib.contextmanager
def clocked(owner: type, name: str) -> Iterator[list[float]]:
    """Give the list to which the seconds of each call of a method are added."""
    method, seconds = getattr(owner, name), list[float]()

    def call(*arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            seconds.append(time.perf_counter() - began)

    setattr(owner, name, call)
    try:
        yield seconds
    finally:
        setattr(owner, name, method)
