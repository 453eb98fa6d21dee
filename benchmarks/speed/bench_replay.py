"""Experiences replayed per second by every strategy, beside cpprb and beside each other, and growth with capacity.

Both sides run in this process, interleaved, with one thread; medians of ratios. The peer has equal work: one buffer of
equal capacity per member, served in turn. An item is one experience sampled (gathered with its fields), and where the
strategy learns from TD errors also re-prioritised. Sections: `peer`, `house`, `costs`, `growth`, `victims`, `memory`.
"""

# First: it fixes the number of threads.
from timings import Timing, main  # isort: skip

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.orders.priority_sums import AgeLog
from replaybench.replay.strategies.interface import Context
from replaybench.replay.strategies.notation import SAMPLINGS, parse

MEMBERS = 32
REPETITIONS = 9
ITEMS = 60_000  # per timing
EPISODE = 200
FIELDS = {**step_fields(2, 1), "exploration": 1}

Work = Callable[[], None]


def filled(strategy: str, members: int, capacity: int, batch: int) -> Replay:
    """Return full buffers with random metrics, filled without the cost of adding experiences one by one."""
    rng = np.random.Generator(np.random.PCG64(0))
    replay = Replay(parse(strategy), FIELDS, capacity, 0, range(members), batch)
    state = replay.state_dict()
    shape = (members, capacity)
    piece = rng.random((1000, replay.columns.width), np.float32)  # again and again: to draw all takes most of the time
    for first in range(0, capacity, 1000):
        replay.columns.rows[:, first : first + 1000] = piece[: capacity - first]
    named = {name: replay.columns.column(name) for name in FIELDS}
    numbers = np.tile(np.arange(1, capacity + 1, dtype=np.uint32), (members, 1))
    state |= {**named, "serial": numbers, "episode_starts": numbers[:, ::EPISODE]}
    state |= {name: np.full(members, capacity) for name in ("collected", "offers", "count")}
    random = rng.random(shape, np.float32) + np.float32(1e-3)
    state |= {name: random for name in ("td_error", "priority") if name in state}
    if "replays" in state:
        state["replays"] = np.zeros(shape, np.uint16)
    if "cover_place" in state:
        state["cover_place"] = np.zeros(shape, np.uint32)
    if isinstance(getattr(replay.sampling, "ages", None), AgeLog):
        state |= {"age_place": numbers.astype(np.int32) - 1, "age_end": np.full(members, capacity)}
    replay.load_state_dict(state)
    return replay


def work(replay: Replay, batches: int) -> Work:
    """Return a piece of work: sample, and answer with TD errors where they are of use."""
    rng = np.random.Generator(np.random.PCG64(1))
    members, batch = len(replay.count), replay.batch_size
    errors = {"td_error": rng.random((members, batch), np.float32)}
    state = rng.random((members, 2), np.float32)
    learns = "td_error" in replay.orders or hasattr(replay.sampling, "sums")

    def run() -> None:
        for update in range(batches):
            drawn = replay.sample(Context(update, batches, 0.0, state))
            if learns:
                replay.annotate(drawn, errors)

    return run


def peer(prioritised: bool, members: int, capacity: int, batch: int, batches: int) -> Work:
    """Return the same amount of work for cpprb."""
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    rng = np.random.Generator(np.random.PCG64(2))
    sizes = {"obs": {"shape": 2}, "act": {"shape": 1}, "rew": {}, "next_obs": {"shape": 2}, "done": {}}
    data = {"obs": 2, "act": 1, "rew": 1, "next_obs": 2, "done": 1}
    experiences = {name: np.zeros((capacity, width), np.float32) for name, width in data.items()}
    buffers = []
    for _ in range(members):
        buffer = PrioritizedReplayBuffer(capacity, sizes, alpha=0.6) if prioritised else ReplayBuffer(capacity, sizes)
        buffer.add(**experiences)
        if prioritised:
            buffer.update_priorities(np.arange(capacity), rng.random(capacity) + 1e-3)
        buffers.append(buffer)
    errors = rng.random((members, batch)) + 1e-3

    def run() -> None:
        for _ in range(batches):
            for buffer, error in zip(buffers, errors, strict=True):
                if prioritised:
                    drawn = buffer.sample(batch, 0.4)
                    buffer.update_priorities(drawn["indexes"], error)
                else:
                    buffer.sample(batch)

    return run


def interleaved(*sides: tuple[Work, float], clock: Callable[[], float] = time.perf_counter) -> list[list[float]]:
    """Return the rates [items/s] of each side, (work, items), taken in turn."""
    rates: list[list[float]] = [[] for _ in sides]
    for turn in range(REPETITIONS + 1):
        for (run, items), found in zip(sides, rates, strict=True):
            began = clock()
            run()
            if turn:
                found.append(items / (clock() - began))
    return rates


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median over turns of ours / theirs."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def batches_of(batch: int, members: int = MEMBERS) -> int:
    return max(3, ITEMS // (members * batch))


def report(
    what: str, ours: list[float], theirs: list[float], asked: float, rival: str, capacity: int, batch: int
) -> Timing:
    where = {"members": MEMBERS, "capacity": capacity, "batch": batch}
    mine, their = statistics.median(ours), statistics.median(theirs)
    return Timing(what, mine, "/s", their, rival, ratio(ours, theirs), least_ratio=asked or None, at=where)


def against_peer() -> Iterator[Timing]:
    """Uniform and proportional sampling beside cpprb."""
    targets = {
        ("FIFO[Uniform]", 16): 5,
        ("FIFO[Uniform]", 256): 1,
        ("FIFO[PERprop]", 16): 3,
        ("FIFO[PERprop]", 256): 1.5,
    }
    for capacity in (100_000, 1_000_000):
        for (strategy, batch), asked in targets.items():
            count = batches_of(batch)
            items = count * MEMBERS * batch
            theirs = peer("PER" in strategy, MEMBERS, capacity, batch, count), items
            ours = work(filled(strategy, MEMBERS, capacity, batch), count), items
            rival = "cpprb PrioritizedReplayBuffer" if "PER" in strategy else "cpprb ReplayBuffer"
            yield report(strategy, *interleaved(ours, theirs), asked, rival, capacity, batch)
            del ours, theirs
            gc.collect()


def within_the_house() -> Iterator[Timing]:
    """Rank beside proportional priorities; AER and ERE beside as many uniform draws."""
    pairs = [("FULL[PER]", "FULL[PERprop]", 1.0, 1 / 2), ("FIFO[AER]", "FIFO[Uniform]", 2.5, 1 / 1.3)]
    pairs += [("FIFO[ERE]", "FIFO[Uniform]", 1.0, 1 / 1.3), ("FULL[ERE]", "FULL[Uniform]", 1.0, 1 / 1.3)]
    pairs += [(f"{kept}[ERE]", f"{kept}[Uniform]", 1.0, 0.0) for kept in ("Resv", "TDE")]
    pairs += [("FULL[ERE+PER]", "FULL[PERprop]", 1.0, 0.0), ("Resv[ERE+PER]", "Resv[PERprop]", 1.0, 0.0)]
    for capacity in (100_000, 1_000_000):
        for batch in (16, 256):
            for ours, theirs, wider, asked in pairs:
                count = batches_of(batch)
                mine = work(filled(ours, MEMBERS, capacity, batch), count), float(count * MEMBERS * batch)
                drawn = int(np.ceil(wider * batch))
                other = work(filled(theirs, MEMBERS, capacity, drawn), count), float(count * MEMBERS * batch)
                name = theirs if wider == 1 else f"{theirs} × {wider}"
                yield report(ours, *interleaved(mine, other), asked, name, capacity, batch)
                del mine, other
                gc.collect()


def costs() -> Iterator[Timing]:
    """CPU time of one experience, sampled and answered for, as a multiple of that of proportional priorities."""
    members, capacity, batch, count = 8, 100_000, 64, 40
    bounds = {"LAP": 1.3, "LA3P": 2.0, "ReaPER": 2.0}
    strategies = [f"FIFO[{name}]" for name in SAMPLINGS] + ["Resv[TruncGeo]", "Resv[ReaPER]", "FIFO[PERprop+IS]"]
    other = work(filled("FIFO[PERprop]", members, capacity, batch), count), float(count * members * batch)
    for strategy in strategies:
        mine = work(filled(strategy, members, capacity, batch), count), float(count * members * batch)
        theirs, ours = interleaved(other, mine, clock=time.process_time)  # rates, so that the ratio is one of times
        where = {"members": members, "capacity": capacity, "batch": batch}
        bound = bounds.get(strategy.partition("[")[2].rstrip("]"))
        yield Timing(strategy, ratio(theirs, ours), "× the time of PERprop", most=bound, at=where)
        del mine
        gc.collect()


def growth() -> Iterator[Timing]:
    """Nanoseconds per item over capacities; above 10⁶ one member."""
    strategies = ("FIFO[Uniform]", "FULL[PER]", "FULL[PERprop]", "FIFO[AER]", "FIFO[ERE]", "Resv[ERE]", "Resv[ERE+PER]")
    sizes = [(MEMBERS, 10**k) for k in range(3, 7)] + [(1, 10**k) for k in range(3, 8)]
    for members, capacity in sizes:
        for strategy in strategies:
            count = batches_of(16, members)
            run = work(filled(strategy, members, capacity, 16), count)
            rates = interleaved((run, count * members * 16))[0]
            where = {"members": members, "capacity": capacity, "batch": 16}
            yield Timing(strategy, 1e9 / statistics.median(rates), "ns per item", at=where)
            del run
            gc.collect()


def victims() -> Iterator[Timing]:
    """CPU time in microseconds for one experience into a full buffer: victim drawn, row written, order renewed."""
    rng = np.random.Generator(np.random.PCG64(3))
    adds, everyone = 300, np.ones(MEMBERS, np.bool_)
    experiences = [
        {name: rng.random((MEMBERS, width), np.float32) for name, width in FIELDS.items()} for _ in range(adds)
    ]
    retentions = ("FIFO", "Resv", "Cover", "TDE", "TDE(segments=none)", "Expl")
    for strategy in (f"{name}[Uniform]" for name in retentions):
        for capacity in (100_000, 1_000_000):
            replay = filled(strategy, MEMBERS, capacity, 16)
            slots = np.full(MEMBERS, -2)

            def add(replay: Replay = replay) -> None:
                for experience in experiences:
                    replay.add(experience, everyone)

            def draw(replay: Replay = replay, slots: Any = slots) -> None:
                for _ in range(adds):
                    slots[:] = -2
                    replay.retention.slots(replay.offers, replay.slots, slots)

            rates = interleaved((add, adds * MEMBERS), (draw, adds * MEMBERS), clock=time.process_time)
            whole, victim = (1e6 / statistics.median(rate) for rate in rates)
            ranked = strategy.startswith(("TDE", "Expl"))
            asked, where = 2.0 if ranked else None, {"members": MEMBERS, "capacity": capacity}
            yield Timing(strategy, victim, "µs per victim", most=asked, at=where, more={"whole add": whole})
            del replay, add, draw
            gc.collect()


_TOUCH = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[3])
from bench_replay import FIELDS
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse
strategy, members, capacity = sys.argv[1], 2, int(float(sys.argv[2]))
def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
def run(capacity):
    replay = Replay(parse(strategy), FIELDS, capacity, 0, range(members), 256)
    rng = np.random.Generator(np.random.PCG64(0))
    everyone = np.ones(members, bool)
    data = rng.random((64, members, 8), np.float32)
    edges = np.cumsum([0, *FIELDS.values()])
    parts = [{n: row[:, a:b] for n, a, b in zip(FIELDS, edges, edges[1:])} for row in data]
    for i in range(capacity + capacity // 2 * replay.strategy.retention.bounded):
        replay.add(parts[i % 64], everyone, np.full(members, i % 200 == 199))
        if i % 64 == 63:
            batch = replay.sample()
            replay.annotate(batch, {"td_error": rng.random(batch.weight.shape, np.float32)})
    return replay
run(2000)
before = resident()
replay = run(capacity)
print((resident() - before) / (members * capacity) - 4 * 8 - 4)
"""


STRATEGIES = ("FIFO[Uniform]", "FIFO[ERE]", "FULL[PER]", "FULL[PERprop]", "TDE[Uniform]", "TDE[PER]",
              "Expl[Uniform]", "Resv[ERE]", "Resv[ERE+PER]", "FULL[PER+FIS]")  # fmt: skip
LATER = ("FULL[LAP]", "FULL[LA3P]", "FULL[ReaPER]", "Resv[TruncGeo]", "Cover[Uniform]")


def memory(strategies: Sequence[str] = STRATEGIES) -> Iterator[Timing]:
    """Resident bytes per stored experience beyond columns and serial number, after random updates."""
    here = os.path.dirname(os.path.abspath(__file__))

    def bytes_of(strategy: str) -> float:
        words = [sys.executable, "-c", _TOUCH, strategy, "3e5", here]
        return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    with ThreadPoolExecutor(2) as two_at_a_time:
        found = list(two_at_a_time.map(bytes_of, strategies))
    for strategy, used in zip(strategies, found, strict=True):
        by_age = 10 if strategy.startswith(("TDE", "Expl")) else 0  # positions in order of age
        most = {"FULL[ReaPER]": 40, "Cover[Uniform]": 80}.get(strategy, 24 + by_age)
        yield Timing(strategy, used, "bytes per experience", most=most)


SECTIONS = {
    "peer": against_peer, "house": within_the_house, "costs": costs, "growth": growth, "victims": victims,
    "memory": memory, "memory:later": lambda: memory(LATER),
}  # fmt: skip

if __name__ == "__main__":
    main("bench_replay.py", SECTIONS)
