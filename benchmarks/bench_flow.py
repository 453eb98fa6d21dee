"""Time the drafting task: python benchmarks/bench_flow.py [SECTION …]

Actions per second of processor time through `PopulationEnv.step`, everything included (infos, fresh arrays), in one
thread: what other programs take from the core is not counted, what they take from its caches is. Members start anew
before every timed step, so that all of them are running. Medians, and the best beside them.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import statistics
import sys
import time

import numpy as np

from replaybench.envs.flow_table import fill_table, wake_table
from replaybench.envs.flow_task import Drafting
from replaybench.envs.population import PopulationEnv

Row = tuple[str, str, str, str]


def rates(env: PopulationEnv, repetitions: int) -> list[float]:
    """Return actions per second of as many single steps of all members, from their starts."""
    env.reset(seed=0)
    start = env.get_state()
    action = np.full((env.num_envs, 3), 0.1, np.float32)
    found = []
    env.step(action)
    for _ in range(repetitions):
        env.set_state(start)
        began = time.process_time()
        env.step(action)
        found.append(env.num_envs / (time.process_time() - began))
    return found


def fast_enough(what: str, found: list[float], bar: float) -> Row:
    middle, highest = statistics.median(found), max(found)
    verdict = "ok" if middle >= bar else "MISSED"
    return what, f"{middle:,.0f} actions/s", f"{highest:,.0f}", f"{verdict} ≥ {bar:,.0f}"


def wake() -> list[Row]:
    """The vortex-wake proxy."""
    rows = [
        fast_enough(f"vortex wake, M = {members}", rates(PopulationEnv("Drafting", members), repetitions), bar)
        for members, repetitions, bar in ((4096, 100, 3e5), (64, 3000, 1.5e5), (1, 3000, 0.0))
    ]
    table = wake_table().copy()
    seconds = []
    for _ in range(5):
        began = time.process_time()
        fill_table(table)
        seconds.append(time.process_time() - began)
    middle, verdict = statistics.median(seconds), "ok" if statistics.median(seconds) <= 1 else "MISSED"
    return [*rows, ("table of the wake", f"{middle:.2f} s", f"{min(seconds):.2f}", f"{verdict} ≤ 1 s")]


def navier_stokes() -> list[Row]:
    """The Navier–Stokes twin: an action lasts 1 D/U; a quarter of it is timed, in which no ellipse gets away."""
    rows = []
    for cells, bar in ((8, 0.0), (16, 0.05), (24, 0.0)):
        env = PopulationEnv(Drafting(fidelity="navier-stokes", cells=cells), 1, frequency=4.0)
        found = [4.0 / rate for rate in rates(env, 20)]
        middle = statistics.median(found)
        verdict = f"{'ok' if middle <= bar else 'MISSED'} ≤ {bar:g} s" if bar else ""
        rows.append((f"Navier–Stokes, {cells} cells/D", f"{middle:.4f} s per action", f"{min(found):.4f}", verdict))
    return rows


SECTIONS = {"wake": wake, "navier-stokes": navier_stokes}


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="the drafting task, one core")
    for heading in ("what", "median", "best", "asked for"):
        table.add_column(heading, no_wrap=True)
    for name in sys.argv[1:] or list(SECTIONS):
        for entry in SECTIONS[name]():
            table.add_row(*entry)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
