"""What a sweep endures, counted: kills at random moments, disks that fill, a cluster that falls apart, long runs.

    ENDURANCE_KILLS=100 ENDURANCE_FORGED=5000 python -m benchmarks.endurance kills disk cluster forged logs folders

`endurance.toml` is a study of a little of everything. It is run once in peace; then it is killed, starved and robbed of
its workers, continued each time by the same command, and compared with the run in peace: rewards, scores, buffers and
policies must be the same bit for bit. Sections `forged` and `logs` read files as a stranger could send them, and
`folders` lets every command write into and read folders of every kind. Sections `coordination`, `index`, `growth` and
`recording` measure what sweeps cost besides acting and learning, and `plans` whether dry runs tell how long they take.
"""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.endurance.forged_logs import import_forged
from benchmarks.endurance.forging import read_forged
from benchmarks.endurance.sweep_costs import coordination, growth, index, plans, recording
from benchmarks.endurance.sweeping import LIMIT_SECONDS, MIXED, command, count, sweep
from benchmarks.speed.timings import Timing, main

KILLS = int(os.environ.get("ENDURANCE_KILLS", "100"))
FORGED = int(os.environ.get("ENDURANCE_FORGED", "5000"))
"""Files that each of the sections `forged` and `logs` reads."""
_LONGEST = 6.0
"""Seconds within which a kill comes, of the start or of the sweep's first word: enough to learn a while and write."""
_LIMITS = (1 << 9, 1 << 11, 1 << 13, 1 << 15)
"""Sizes of the largest file that a full disk has room for [B]."""


def differences(one: Path, other: Path) -> int:
    """Return how many files and variables of two runs differ in anything that is learned; all are compared."""
    from replaybench.data.policy_file import read_policy
    from replaybench.data.record import read_record
    from replaybench.experiments.dataset import ORIGINS
    from replaybench.experiments.results_file import read_results

    apart = ("seconds", "memory", *ORIGINS)
    data, others = (read_results(folder / "results.nc").drop_vars(apart) for folder in (one, other))
    found = sum(name not in others or not data[name].identical(others[name]) for name in data.variables)
    cells = sorted(path.parent.name for path in one.glob("cells/*/scores.h5"))
    for cell in cells:
        for name in ("scores.h5", "buffer.h5", "snapshots.h5"):
            arrays, again = (read_record(folder / "cells" / cell / name)[1] for folder in (one, other))
            found += any(array.tobytes() != again[key].tobytes() for key, array in arrays.items())
        weights, again = (read_policy(folder / "cells" / cell / "policy.safetensors")[1] for folder in (one, other))
        found += any(array.tobytes() != again[key].tobytes() for key, array in weights.items())
    return found + (not cells)


@contextlib.contextmanager
def in_peace() -> Iterator[tuple[Path, Path]]:
    """Give a folder for runs and the run that nothing happened to."""
    with tempfile.TemporaryDirectory(prefix="endurance") as name:
        whole = Path(name) / "whole"
        sweep(MIXED, whole)
        yield Path(name), whole


def wait_for_begin(process: subprocess.Popen[str], folder: Path) -> None:
    """Wait until a sweep has written its journal's next line, or has ended."""
    journal = folder / "progress.jsonl"
    size = journal.stat().st_size if journal.is_file() else 0
    while process.poll() is None and (not journal.is_file() or journal.stat().st_size <= size):
        time.sleep(0.01)


def kills() -> Iterator[Timing]:
    """Kill a sweep and all its workers at random moments, again and again, from several beginnings."""
    chance, done, ends, wrong, stranded, midway = random.Random(14), 0, 0, 0, 0, 0
    with in_peace() as (room, whole):
        while done < KILLS:
            folder = room / f"killed-{ends}"
            while done < KILLS:
                process = subprocess.Popen(
                    command(MIXED, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    start_new_session=True,
                )  # fmt: skip
                if chance.random() < 0.75:  # the others fall in the start itself, which takes seconds
                    wait_for_begin(process, folder)
                try:
                    _, told = process.communicate(timeout=chance.uniform(0.1, _LONGEST))
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
                    midway += any(folder.glob("cells/*/checkpoint.h5"))
                    done += 1
                    print(f"kill {done}", file=sys.stderr, flush=True)
                    continue
                stranded += process.returncode != 0
                print(told, file=sys.stderr)
                break
            sweep(MIXED, folder)
            ends, wrong = ends + 1, wrong + differences(whole, folder)
    more = {"completed sweeps": ends, "with a checkpoint on disk": midway}
    yield Timing("kills of a sweep with its workers", done, "kills", least=KILLS, more=more)
    yield Timing("files and variables that differ after kills", wrong, "", most=0)
    yield Timing("resumed sweeps that stopped with an error", stranded, "", most=0)


def disk() -> Iterator[Timing]:
    """Let no file grow beyond a size, as on a full disk, for sizes from journal to buffer; then make room."""
    tried, refused, loud, wrong = 0, 0, 0, 0
    with in_peace() as (room, whole):
        for limit in _LIMITS:
            folder = room / f"full-{limit}"

            def fill(limit: int = limit) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            done = subprocess.run(
                command(MIXED, folder), capture_output=True, text=True, timeout=LIMIT_SECONDS, preexec_fn=fill,
            )  # fmt: skip
            tried, refused = tried + 1, refused + (done.returncode != 0)
            if done.returncode and (done.returncode != 2 or "Traceback" in done.stderr):
                loud += 1
            print(f"{limit} B: {done.returncode} {done.stderr.strip()[-300:]}", file=sys.stderr, flush=True)
            sweep(MIXED, folder)
            wrong += differences(whole, folder)
    yield Timing(
        "full disks, with space for files of 512 B to 32 KiB",
        tried,
        "disks",
        more={"sweeps that stopped with an error": refused},
    )
    yield Timing("errors that were not one line with exit status 2", loud, "", most=0)
    yield Timing("files and variables that differ after space was freed", wrong, "", most=0)


class Cluster(NamedTuple):
    """A Dask scheduler's address and process, its workers, and what adds one."""

    address: str
    head: subprocess.Popen[bytes]
    crew: list[subprocess.Popen[bytes]]
    add: Callable[[], None]


@contextlib.contextmanager
def scheduler(room: Path, workers: int) -> Iterator[Cluster]:
    """Run a Dask scheduler and workers on loopback; give them until they are no longer needed."""
    from distributed import Client

    where = room / f"scheduler-{time.monotonic_ns()}.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": room}
    loop = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(where)]
    head = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", *loop], **quiet)
    crew: list[subprocess.Popen[bytes]] = []

    def add() -> None:
        words = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *loop]
        crew.append(subprocess.Popen(words, **quiet))

    try:
        while not where.exists() or not where.stat().st_size:
            time.sleep(0.1)
        for _ in range(workers):
            add()
        with Client(scheduler_file=str(where), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=90)
            address: str = client.scheduler.address
        yield Cluster(address, head, crew, add)
    finally:
        for process in (*crew, head):
            process.kill()
            process.wait()


def cluster() -> Iterator[Timing]:
    """Take a worker in the middle of its cell, add one, take the scheduler; continue on another cluster."""
    from distributed import Client

    with in_peace() as (room, whole):
        folder = room / "cluster"
        with scheduler(room, 2) as (address, head, crew, add):
            process = subprocess.Popen(
                command(MIXED, folder, "--cluster", address),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            with Client(address, set_as_default=False) as client:
                victim = None
                while victim is None and process.poll() is None:
                    pids = client.run(os.getpid)
                    busy = {n for n, keys in client.processing().items() if any("run_cell" in str(k) for k in keys)}
                    victim = next((worker for worker in crew if worker.pid in {pids[n] for n in busy}), None)
                    time.sleep(0.02)
            if victim is None:
                raise RuntimeError(f"no worker was busy: {process.communicate()[1]}")
            victim.kill()
            print("a worker killed, one added", file=sys.stderr, flush=True)
            add()
            before = count(folder)
            while process.poll() is None and count(folder) < before + 2:
                time.sleep(0.02)
            head.kill()
            print(f"the scheduler killed at {count(folder)} cells", file=sys.stderr, flush=True)
            told = process.communicate(timeout=LIMIT_SECONDS)[1]
            kept, lost = count(folder), process.returncode
        with scheduler(room, 3) as (address, *_):
            sweep(MIXED, folder, "--cluster", address)
        wrong = differences(whole, folder)
    print(told, file=sys.stderr)
    yield Timing(
        "complete cells when the scheduler of a cluster was killed", kept, "cells", least=2, more={"exit status": lost}
    )
    yield Timing("files and variables that differ after kills in a cluster", wrong, "", most=0)


def forged() -> Iterator[Timing]:
    """Read files of every kind that a run holds, damaged, or forged with their checksums in order."""
    with in_peace() as (room, whole):
        found = read_forged(whole, room, FORGED)
    more = {"read": found["read"], "refused": found["refused"]}
    yield Timing("damaged and forged files", found["loud"] + sum(more.values()), "files", least=FORGED, more=more)
    yield Timing("forged files that ended a process or caused a traceback", found["loud"], "", most=0)
    yield Timing("forged files that caused a Python file to run", found["ran"], "", most=0)


def logs() -> Iterator[Timing]:
    """Import logs whose units, episodes, missing values, times and bytes mislead."""
    with tempfile.TemporaryDirectory(prefix="endurance") as name:
        found = sum(import_forged(Path(name), FORGED).values(), Counter())
    more = {end: found[end] for end in ("read", "refused")}
    yield Timing("misleading, damaged and forged logs", found.total(), "files", least=FORGED, more=more)
    yield Timing("logs that were imported with other steps than recorded", found["misread"], "", most=0)
    yield Timing("logs that ended a process or caused a traceback", found["loud"] + found["crashed"], "", most=0)


def folders() -> Iterator[Timing]:
    """Let every command write into, and read, folders of every kind."""
    with in_peace() as (room, whole):
        words = [sys.executable, "-m", "benchmarks.endurance.folders", str(whole), str(room / "tried")]
        told = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=5 * LIMIT_SECONDS).stdout
    found = json.loads(told.splitlines()[-1])
    more = {end: found[end] for end in ("read", "refused")}
    yield Timing("commands in folders of every kind", found["loud"] + sum(more.values()), "commands", more=more)
    yield Timing("commands that did not end, or ended in a traceback", found["loud"], "", most=0)
    yield Timing("files of a user that a command changed or removed", found["lost"], "", most=0)


if __name__ == "__main__":
    sections = (kills, disk, forged, logs, folders, cluster, coordination, index, growth, recording, plans)
    main("endurance.py", {section.__name__: section for section in sections}, "python -m benchmarks.endurance")
