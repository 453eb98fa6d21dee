"""Worker processes and clusters: interruptions of every kind leave the numbers unchanged."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr
from distributed import Client

from replaybench.data.record import read_header
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import make_plant
from replaybench.experiments import workers as worker_module
from replaybench.experiments.dataset import ORIGINS
from replaybench.experiments.interruption import stopping_raises
from replaybench.experiments.progress import Report, Round
from replaybench.experiments.results_file import read_results
from replaybench.experiments.workers import Job, check_cluster, run_locally
from replaybench.runtime.errors import UserError
from tests.helpers.cells import assert_equal_files, run_here
from tests.helpers.commands import Capsys, Patch, call, refused
from tests.helpers.tasks import die, die_once, leave, thread_settings, with_processes

LIMIT = 240


def described(episodes: int) -> tuple[object, ...]:
    """Return a study in words of the command line."""
    study = "--plant PendulumDCSC --strategy FIFO[Uniform] FULL[PER] Resv[Uniform] --set greedy_every=10 capacity=3000"
    return (*study.split(), "--seeds", 2, "--episodes", episodes)


LONGER = described(80)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "replaybench.cli.main", *map(str, words)]


def start(*words: object) -> subprocess.Popen[str]:
    """Start a sweep as the leader of a process group of its own."""
    # What a shell runs in the background ignores interrupts, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command("sweep", *words), **piped, start_new_session=True)


def finish(*words: object) -> None:
    """Run a sweep to its end."""
    done = subprocess.run(command("sweep", *words), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_same(one: Path, other: Path) -> None:
    """All but who computed it, when, how fast and in how much memory is bit-identical; so are buffers and policies."""
    apart = ["seconds", "memory", *ORIGINS]
    xr.testing.assert_identical(read_results(one).drop_vars(apart), read_results(other).drop_vars(apart))
    cells = sorted(one.glob("cells/*"))
    assert cells
    for cell in cells:
        assert_equal_files(cell, other / "cells" / cell.name)
        assert read_header(cell / "buffer.h5").facts == read_header(other / "cells" / cell.name / "buffer.h5").facts


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run that all others are compared with."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(*LONGER, "--output", folder, "--workers", 2)
    return folder


def children(pid: int) -> list[int]:
    """Process ids of the living children of a process."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in listed.split()]


def living(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def wait_for_end(pids: Iterable[int]) -> None:
    wait_until(lambda: not living(pids))


def workers_of(pid: int) -> list[int]:
    """Process ids of a sweep's workers."""
    return [child for child in children(pid) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_for_checkpoint(process: subprocess.Popen[str], folder: Path, known: set[tuple[Path, int]]) -> None:
    """Wait until a checkpoint is written that was not there before, or the process has ended."""
    wait_until(lambda: process.poll() is not None or checkpoints(folder) - known)


def checkpoints(folder: Path) -> set[tuple[Path, int]]:
    found = set()
    for path in folder.glob("cells/*/checkpoint.h5"):
        with contextlib.suppress(OSError):  # it may be gone again
            found.add((path, path.stat().st_mtime_ns))
    return found


@pytest.mark.slow
def test_killed_at_random_moments(whole: Path, tmp_path: Path) -> None:
    """SIGKILL up to five times, each a random moment after a new checkpoint; workers follow, the last run completes."""
    rng = np.random.Generator(np.random.PCG64(0))
    folder = tmp_path / "run"
    killed = 0
    for _ in range(5):
        before = checkpoints(folder)
        process = start(*LONGER, "--output", folder, "--workers", 2, "--checkpoint-seconds", 0.02)
        wait_for_checkpoint(process, folder, before)
        time.sleep(rng.uniform(0.0, 0.15))
        orphans = children(process.pid)
        process.kill()
        _, said = process.communicate(timeout=LIMIT)
        wait_for_end(orphans)
        if process.returncode == 0:  # it was faster, on a machine that is busy with other things
            break
        assert process.returncode == -signal.SIGKILL, said
        killed += 1
    assert killed
    finish(*LONGER, "--output", folder, "--workers", 2)
    assert not list(folder.glob("cells/*/.*partial"))
    assert_same(whole, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_writes_checkpoints(sent: signal.Signals, status: int, whole: Path, tmp_path: Path) -> None:
    """Ctrl-C, which terminals send to the whole process group, and SIGTERM; `timeout` sends either of them twice."""
    folder = tmp_path / "run"
    options = ("--workers", 2, "--checkpoint-seconds", 0.02, "--progress", "json")
    process = start(*LONGER, "--output", folder, *options)
    wait_for_checkpoint(process, folder, set())
    os.killpg(process.pid, sent)
    os.kill(process.pid, sent)
    events, told = process.communicate(timeout=LIMIT)
    heard = [json.loads(line) for line in events.splitlines()]
    assert heard[0]["event"] == "begin"
    assert (heard[-1]["event"], heard[-1]["status"]) == ("end", status)
    assert {each["event"] for each in heard} <= {"begin", "reference", "round", "complete", "end"}
    assert process.returncode == status, told
    assert "run the same command again to continue" in told
    assert "Traceback" not in told
    assert checkpoints(folder)
    finish(*LONGER, "--output", folder, "--workers", 1)
    assert_same(whole, folder)


PRINTING = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box

print("imported")

class Printing(gymnasium.Env):
    observation_space = action_space = Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        print("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        print("step")
        return np.zeros(1, np.float32), 0.0, False, False, {}

gymnasium.register("Printing-v0", Printing, max_episode_steps=8)
"""


@pytest.mark.slow
def test_what_a_task_prints_is_not_among_the_events(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PRINTING)
    process = start(
        "--plant", f"gymnasium:{tmp_path / 'own.py'}:Printing-v0", "--strategy", "FIFO[Uniform]",
        "--seeds", 1, "--episodes", 20, "--output", tmp_path / "run", "--progress", "json",
    )  # fmt: skip
    events, told = process.communicate(timeout=120)
    assert [json.loads(line)["event"] for line in events.splitlines()][-1] == "end"
    assert "step" in told


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    """Workers that do not answer are no reason to wait."""
    process = start(*LONGER, "--output", tmp_path / "run", "--workers", 2, "--checkpoint-seconds", 0.02)
    wait_for_checkpoint(process, tmp_path / "run", set())
    workers = workers_of(process.pid)
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in (process.pid, *children(process.pid))]
    assert len(maps) > 2
    assert not any("/dev/shm" in text for text in maps), "named semaphores would outlive SIGKILL"
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any(line.startswith("stopping:") for line in process.stderr), "after the study's warnings"
    time.sleep(0.2)  # two at once are one
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert told.startswith("replaybench: stopped at once; finished cells and checkpoints are kept")
    assert told.count("\n") == 1
    assert not living(workers)


def test_a_second_sweep_in_the_same_folder_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        assert "another sweep is working in" in refused(capsys, "sweep", *LONGER, "--output", folder.path)


def test_a_finished_sweep_runs_nothing_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """Here a short one, without figures."""
    monkeypatch.setattr("replaybench.experiments.sweep.run_locally", run_here)
    monkeypatch.setattr("replaybench.reports.figures.all_figures.draw_figures", lambda *_: [])
    stamps: list[dict[Path, int]] = []
    for _ in range(2):
        words = ("sweep", *described(10), "--output", tmp_path / "run", "--workers", 2)
        assert call(*words) == 0
        stamps.append({path: path.stat().st_mtime_ns for path in tmp_path.glob("run/cells/*/*")})
    assert len(stamps[0]) >= 2 * 4, "two of the strategies never fill their buffers: they are one cell"
    assert stamps[0] == stamps[1]


Process = subprocess.Popen[bytes]
Cluster = tuple[str, Process, list[Process]]
"""Address, scheduler and workers."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A real Dask scheduler and two single-threaded worker processes on loopback."""
    address = tmp_path / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    common = ["--scheduler-file", str(address), "--host", "127.0.0.1", "--no-dashboard"]
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", *common, "--port", "0"]
    scheduler = subprocess.Popen(dask, **quiet)
    wait_until(address.exists)
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", *common, "--nthreads", "1", "--no-nanny"]
    workers = [subprocess.Popen(worker, **quiet) for _ in range(2)]
    with Client(scheduler_file=str(address), set_as_default=False) as client:
        client.wait_for_workers(2, timeout=LIMIT)
        found = client.scheduler.address
    yield found, scheduler, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_same_results(whole: Path, tmp_path: Path, cluster: Cluster) -> None:
    """The killed worker's cell is run again; only the coordinator writes into the folder."""
    address, _, workers = cluster
    process = start(*LONGER, "--output", tmp_path / "run", "--cluster", address)
    with Client(address, set_as_default=False) as client:
        # A stopped process cannot finish its cell, so the kill hits it in the middle of one.
        pids, busy = client.run(os.getpid), set[int]()

        def begun() -> bool:
            busy.update(pids[worker] for worker, keys in client.processing().items() if keys)
            return bool(busy) or process.poll() is not None

        wait_until(begun)
        assert process.poll() is None, process.communicate()[1]
        victim = next(worker for worker in workers if worker.pid in busy)
        os.kill(victim.pid, signal.SIGSTOP)
        time.sleep(0.5)
        assert process.poll() is None
        victim.kill()
    _, told = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, told
    assert_same(whole, tmp_path / "run")


@pytest.mark.slow
def test_a_cluster_that_loses_its_scheduler_is_one_line(tmp_path: Path, cluster: Cluster) -> None:
    """What was finished is kept."""
    address, scheduler, _ = cluster
    process = start(*LONGER, "--output", tmp_path / "run", "--cluster", address)
    wait_until(lambda: process.poll() is not None or list(tmp_path.glob("run/cells/*/scores.h5")))
    assert process.poll() is None, process.communicate()[1]
    scheduler.kill()
    _, told = process.communicate(timeout=LIMIT)
    assert process.returncode == 2, told
    told = told[told.index("replaybench: ") :]  # after the study's warnings
    assert told.startswith("replaybench: the cluster gave up (CancelledError); finished cells are kept")
    assert told.count("\n") == 1, told
    assert list(tmp_path.glob("run/cells/*/scores.h5"))


def test_workers_import_nothing_from_the_working_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    for name in ("multiprocessing", "pickle", "signal"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    done: dict[str, Any] = {}
    run_locally(1, [Job("x", working_folder, ())], print, done.__setitem__)
    assert done == {"x": (str(tmp_path), False)}
    assert not (tmp_path / "ran").exists()
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_worker_with_other_versions_is_refused(monkeypatch: Patch) -> None:
    """At the beginning, and also a worker that joins later."""
    here = {"numpy": "2.4.6", "replaybench": "0.1.0"}
    others = [{**here, "numpy": "2.0.0"}, {**here, "replaybench": None}]
    for other in (here, *others):
        found = {"client": {"packages": here}, "workers": {"tcp://a:1": {"packages": other}}}
        client = contextlib.nullcontext(Mock(get_versions=Mock(return_value=found)))
        monkeypatch.setattr(worker_module, "_client", Mock(return_value=client))
        told = r"the worker tcp://a:1 has (numpy 2\.0\.0, .* numpy 2\.4\.6|replaybench not installed, .* 0\.1\.0)"
        with contextlib.nullcontext() if other is here else pytest.raises(UserError, match=told):
            check_cluster("tcp://b:1")
    monkeypatch.setattr(worker_module, "_versions", lambda: others[0])
    with pytest.raises(UserError, match=r"numpy 2\.0\.0, .* numpy 2\.4\.6"):
        worker_module._with_equal_versions(here, print)


def test_tasks_may_start_and_end_processes() -> None:
    done: dict[str, Any] = {}
    run_locally(1, [Job("x", with_processes, ())], print, done.__setitem__)
    assert done == {"x": [[1, 2], -signal.SIGTERM, multiprocessing.get_start_method()]}


def test_sigterm_ends_forks_and_ctrl_c_does_not() -> None:
    """Also at once after the start, before a handler in Python could run."""
    started = multiprocessing.get_context("fork").Process
    with stopping_raises():
        forks = [started(target=time.sleep, args=(LIMIT,)) for _ in range(9)]
        for fork in forks:
            fork.start()
            assert fork.pid
            os.kill(fork.pid, signal.SIGINT)
            fork.terminate()
        for fork in forks:
            fork.join()
        assert {fork.exitcode for fork in forks} == {-signal.SIGTERM}


def test_a_lost_task_is_done_again(tmp_path: Path) -> None:
    done: dict[str, int] = {}
    reported: dict[str, Round] = {}
    tasks = [Job(str(number), die_once, (number, tmp_path / "mark")) for number in range(4)]
    run_locally(2, tasks, reported.__setitem__, done.__setitem__)
    assert done == {str(number): number for number in range(4)}
    assert reported == {str(number): Round(number, reward=0.0) for number in range(4)}
    assert (tmp_path / "mark").exists()


def test_workers_use_one_thread_and_the_caller_keeps_its_settings(monkeypatch: Patch) -> None:
    for name in worker_module._THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    before, found = dict(os.environ), dict[str, Any]()
    run_locally(1, [Job("x", thread_settings, ())], print, found.__setitem__)
    assert found["x"] == {**dict.fromkeys(worker_module._THREADS, "1"), "MKL_NUM_THREADS": "3"}
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (die, r"died 3 times at the same task \(SIGKILL\), probably for lack of memory"),
        pytest.param(leave, r"ended 3 times at the same task \(exit status 5\); its output", marks=pytest.mark.slow),
    ],
)
def test_a_task_that_ends_its_worker_every_time_is_one_line(end: Callable[[Report], None], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_locally(1, [Job("x", end, ())], print, print)


SWEEP = """
import replaybench
replaybench.sweep(
    replaybench.Study(name="x", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), seeds=1, episodes=1), "run"
)
"""
TASK = """
from replaybench.experiments.workers import Job, check_cluster, run_locally
if __name__ != "__main__":
    raise LookupError("what it said")
run_locally(1, [Job("x", print, ())], print, print)
"""


@pytest.mark.parametrize(
    ("script", "said", "told"),
    [
        pytest.param(SWEEP, 0, "the script calls replaybench.sweep when it is imported", marks=pytest.mark.slow),
        (TASK, 3, "a worker process ended 3 times before it began (exit status 1); its output is above; a script"),
    ],
)
def test_a_script_that_begins_again_in_its_workers_is_told(tmp_path: Path, script: str, said: int, told: str) -> None:
    (tmp_path / "script.py").write_text(script)
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=here)
    assert (ended.returncode, ended.stderr.count("LookupError: what it said")) == (1, said)
    last = ended.stderr.splitlines()[-1]
    assert told in last
    if not said:
        assert "Traceback" not in ended.stderr
    assert last.endswith("""under 'if __name__ == "__main__":'""")


def working_folder(report: Report) -> tuple[str, bool]:
    return os.getcwd(), any(Path(entry or ".").resolve() == Path.cwd() for entry in sys.path)


def plant_of_a_file(name: str, report: Report) -> None:
    make_plant(name)


def number(found: int, report: Report) -> int:
    if found == 0:
        raise UserError("zero")
    return found


@contextlib.contextmanager
def threads(address: str) -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_finished_tasks_are_stored_though_another_failed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(worker_module, "_executor", threads)
    monkeypatch.setattr(worker_module, "wait_for_futures", lambda futures, **_: (wait(futures).done, set()))
    stored: dict[str, int] = {}
    with pytest.raises(UserError, match="zero"):
        worker_module.run_on_cluster("", [Job(f"{n}", number, (n,)) for n in range(20)], print, stored.__setitem__)
    assert stored == {f"{n}": n for n in range(1, 20)}


def test_a_file_that_workers_do_not_have_is_told_as_missing_there(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_module, "_executor", threads)
    told = f"^on a worker of the cluster: no plant file 'own.py' in {tmp_path}, where this runs; give the path"
    with pytest.raises(UserError, match=told):
        worker_module.run_on_cluster("", [Job("x", plant_of_a_file, ("own.py:Mine",))], print, print)
