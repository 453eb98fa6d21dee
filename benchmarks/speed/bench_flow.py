"""Time the drafting task: python benchmarks/speed/bench_flow.py [SECTION …]

Actions per second of processor time through `PopulationEnv.step`, everything included (infos, fresh arrays), in one
thread: what other programs take from the core is not counted, what they take from its caches is. Members start anew
before every timed step, so that all of them are running. Medians, and the best beside them.
"""

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import statistics
import time
from collections.abc import Iterator

import numpy as np

from replaybench.envs.flow.plant import Drafting
from replaybench.envs.flow.wake import fill_table, wake_table
from replaybench.envs.population import PopulationEnv


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


def wake() -> Iterator[Timing]:
    """The vortex-wake proxy."""
    for members, repetitions, bar in ((4096, 100, 3e5), (64, 3000, 1.5e5), (1, 3000, None)):
        found = rates(PopulationEnv("Drafting", members), repetitions)
        where, best = {"members": members}, {"best": max(found)}
        yield Timing(
            "Drafting with the wake model", statistics.median(found), "actions/s", least=bar, at=where, more=best
        )
    table = wake_table().copy()
    seconds = []
    for _ in range(5):
        began = time.process_time()
        fill_table(table)
        seconds.append(time.process_time() - began)
    yield Timing("computation of the wake table", statistics.median(seconds), "s", most=1, more={"best": min(seconds)})


def navier_stokes() -> Iterator[Timing]:
    """The Navier–Stokes twin: an action lasts 1 D/U; a quarter of it is timed, in which no ellipse gets away."""
    for cells, bar in ((8, None), (16, 0.05), (24, None)):
        env = PopulationEnv(Drafting(fidelity="navier-stokes", cells=cells), 1, frequency=4.0)
        found = [4.0 / rate for rate in rates(env, 20)]
        where, best = {"cells per D": cells}, {"best": min(found)}
        yield Timing(
            "Drafting with the flow solver", statistics.median(found), "s per action", most=bar, at=where, more=best
        )


SECTIONS = {"wake": wake, "navier-stokes": navier_stokes}

if __name__ == "__main__":
    main("bench_flow.py", SECTIONS)
