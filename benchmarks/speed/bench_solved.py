"""How long SAC takes to solve Pendulum-v1, beside RLtools: its settings, 10,000 steps, CPU seconds of one core.

Settings are those of RLtools' example: 64-64 units, batches of 100, an update after each step, γ = 0.99, τ = 0.005.
`one` lets both sides learn single seeds in turns, `32` and `100` set populations beside single seeds of RLtools, `cold`
counts compilation: a compiler's for RLtools, our kernels' with an empty cache, from the start of the process.
A seed counts as solved once five training episodes in a row, exploration included, have a mean return of at least −200.
"""

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench_peers import pin
from peers import rltools

SOLVED, IN_A_ROW, STEPS = -200.0, 5, 10_000
BATCH, UNITS = 100, 64
LEARN = Path(__file__).parent / "peers" / "learn.py"
SEEDS, ROOT = 20, 7  # of single seeds, and of a population


class Curve(NamedTuple):
    """What learning was like: by round of episodes the steps and CPU seconds until its end, returns `[M, rounds]`.

    `whole` are the CPU seconds of all 10,000 steps.
    """

    steps: list[int]
    seconds: list[float]
    returns: np.ndarray
    whole: float

    @property
    def solved(self) -> list[float]:
        """CPU seconds until each member had solved it; infinite if it never did. [M]"""
        means = np.lib.stride_tricks.sliding_window_view(self.returns, IN_A_ROW, axis=1).mean(axis=2)
        there = means >= SOLVED
        first = np.where(there.any(axis=1), there.argmax(axis=1), -1)
        return [self.seconds[f + IN_A_ROW - 1] if f >= 0 else float("inf") for f in first]


def ours(seed: int, members: int, environment: Mapping[str, str] | None = None) -> Curve:
    """Let a population of ours learn, in a process of its own."""
    words = [sys.executable, str(LEARN), str(seed), str(members)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [200 * (number + 1) for number in range(len(rounds))]
    seconds = [seconds for seconds, _ in rounds]
    return Curve(steps, seconds, np.array([returns for _, returns in rounds]).T, seconds[-1])


def theirs(seed: int) -> Curve:
    """Let RLtools learn one seed."""
    words = [str(rltools.built("SAC", BATCH, UNITS)), "learn", str(seed), str(STEPS)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    told = [tuple(map(float, line.split())) for line in lines[1:-1]]  # the warm-up is an episode of 100 steps
    # That an episode has ended is noticed at the next step.
    steps, seconds, returns = zip(*told, strict=True)
    return Curve([int(step) - 1 for step in steps], list(seconds), np.array([returns]), float(lines[-1].split()[1]))


def series(curves: Sequence[Curve]) -> dict[str, list[float]]:
    """Return mean and quartiles over all seeds by episode, and the steps after which it ended."""
    returns = np.concatenate([curve.returns for curve in curves])
    low, middle, high = np.percentile(returns, (25, 50, 75), axis=0)
    named = {"mean": returns.mean(axis=0), "25 %": low, "50 %": middle, "75 %": high}
    told = {name: [round(value, 1) for value in values.tolist()] for name, values in named.items()}
    return {"steps": [float(step) for step in curves[0].steps], **told}


def _solved(what: str, mine: Sequence[float], peer: Sequence[float], curve: Mapping[str, list[float]]) -> Timing:
    """Return the median times until solved, and how many did at all."""
    counts = {"of": len(mine), "of theirs": len(peer)}
    solved = {"solved": int(np.isfinite(mine).sum()), "theirs": int(np.isfinite(peer).sum())}
    return Timing(
        what, statistics.median(mine), "s", statistics.median(peer), "RLtools", more={**solved, **counts}, series=curve
    )


def one() -> list[Timing]:
    """One seed at a time, sides in turns; medians over seeds."""
    curves, peers = [], []
    for seed in range(SEEDS):
        curves.append(ours(seed, 1))
        peers.append(theirs(seed))
    mine, peer = (statistics.median(curve.whole for curve in side) for side in (curves, peers))
    return [
        Timing("one seed, 10,000 steps", mine, "s", peer, "RLtools", series=series(curves)),
        _solved("one seed, until solved", *([c.solved[0] for c in side] for side in (curves, peers)), series(peers)),
    ]


def population(members: int) -> list[Timing]:
    """A population beside seeds of RLtools one after the other, per seed."""
    curve, peers = ours(ROOT, members), [theirs(seed) for seed in range(SEEDS)]
    shares = [seconds / members for seconds in curve.solved]
    alone, what = statistics.fmean(peer.whole for peer in peers), f"{members} seeds as one population, per seed"
    return [
        Timing(f"{what}, 10,000 steps", curve.whole / members, "s", alone, "RLtools", series=series([curve])),
        _solved(f"{what}, until solved", shares, [peer.solved[0] for peer in peers], series(peers)),
    ]


def spent() -> float:
    """Return the CPU seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cold() -> list[Timing]:
    """One seed with all that has to be compiled first, once."""
    with tempfile.TemporaryDirectory() as empty:
        before = spent()
        ours(0, 1, {"REPLAYBENCH_CACHE": empty, "NUMBA_CACHE_DIR": empty})
        mine, before = spent() - before, spent()
        program = Path(empty) / "program"
        rltools.build(rltools.compiler_command("SAC", BATCH, UNITS, program))
        subprocess.run([str(program), "learn", "0", str(STEPS)], check=True, stdout=subprocess.DEVNULL)
        peer = spent() - before
    before = spent()
    ours(0, 1)
    warm = spent() - before
    return [
        Timing("one seed with compilation, from the start of the process", mine, "s", peer, "RLtools"),
        Timing("one seed compiled before, from the start of the process", warm, "s"),
    ]


SECTIONS = {"one": one, "cold": cold, **{str(m): functools.partial(population, m) for m in (32, 100)}}

if __name__ == "__main__":
    if lacking := rltools.missing():
        print(f"time until solved left out: {lacking}")
    else:
        pin()
        main("bench_solved.py", SECTIONS)
