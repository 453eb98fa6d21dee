"""Hand cells to workers through `concurrent.futures.Executor`, here or on a cluster, and survive every interruption.

A local worker writes its cell's files itself; a worker on a cluster sends them back, and the coordinator writes them:
the same function does both. A worker that is lost loses at most its cell, which is run again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from replaybench.data.atomic import atomic_path
from replaybench.data.errors import UserError
from replaybench.experiments.training.study import Buffers, Cell

ATTEMPTS = 3

_progress: Any = None
_stop: Any = None


class Task(NamedTuple):
    """A function to call in a worker; `key` names it in progress reports."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user asked to stop; checkpoints are written."""


Watch = Callable[[str, int], None]
"""Called with a cell's id and the number of episodes it has done."""

Finish = Callable[[str, Any], None]
"""Called with a task's key and its result, in the coordinator, as soon as it is there."""


def run_cell_task(
    cell: Cell, folder: Path | None, buffers: Buffers, checkpoint_seconds: float
) -> dict[str, bytes] | bool:
    """Run a cell in a worker.

    Returns:
        Whether it is complete; or, without a `folder` to write to, the content of its files by name.
    """
    from replaybench.experiments.training.cell import run_cell

    def report(episode: int) -> bool:
        if _progress is not None:
            _progress.put((cell.id, episode))
        return _stop is None or not _stop.is_set()

    if folder is not None:
        return run_cell(cell, folder, buffers, checkpoint_seconds, report)
    with tempfile.TemporaryDirectory() as scratch:
        run_cell(cell, Path(scratch), buffers, checkpoint_seconds=float("inf"))
        return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def store_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write a cell's files as a worker on a cluster sent them; `scores.h5` last, because it marks completion."""
    for name in sorted(files, key=lambda name: name == "scores.h5"):
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(files[name])


def run_tasks(tasks: Sequence[Task], executors: Iterator[Any], watch: Watch, finish: Finish) -> None:
    """Run all tasks; a broken executor is replaced, and what it had not finished is run again.

    Args:
        executors: yields context managers, each giving an executor.

    Raises:
        Interrupted: on Ctrl-C, after local cells have written their checkpoints.
    """
    left = {task.key: task for task in tasks}

    def finished(key: str, result: Any) -> None:
        finish(key, result)
        del left[key]

    for attempt in range(1, ATTEMPTS + 1):
        try:
            with next(executors) as executor:
                _drain(executor, list(left.values()), watch, finished)
            return
        except BrokenProcessPool:
            if attempt == ATTEMPTS:
                raise UserError(
                    f"a worker process died {ATTEMPTS} times, probably for lack of memory; use fewer --workers"
                ) from None


def _drain(executor: Executor, tasks: Sequence[Task], watch: Watch, finish: Finish) -> None:
    futures: dict[Future[Any], str] = {}
    pending: set[Future[Any]] = set()
    try:
        for task in tasks:
            futures[executor.submit(task.function, *task.arguments)] = task.key
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            _relay(watch)
            for future in done:
                # Dropped at once: a cell from a cluster brings its whole buffer.
                finish(futures.pop(future), future.result())
    except BaseException as error:
        running = [future for future in futures if not future.cancel() and not future.done()]
        if _stop is not None:
            _stop.set()
            if isinstance(error, KeyboardInterrupt) and running:
                print("stopping: what is under way comes to its next checkpoint first", file=sys.stderr, flush=True)
            wait(running)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted from None
        if type(error).__module__.startswith("distributed"):
            raise UserError(
                f"the cluster gave up ({type(error).__name__}); see its workers' logs, then run again"
            ) from error
        raise


def _relay(watch: Watch) -> None:
    with contextlib.suppress(queue.Empty):
        while _progress is not None:
            key, episode = _progress.get_nowait()
            watch(key, episode)


def local_executors(workers: int) -> Iterator[Any]:
    """Yield process pools of `workers` processes, one thread each."""
    global _progress, _stop
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    context = multiprocessing.get_context("spawn")
    while True:
        _progress, _stop = context.Queue(), context.Event()
        yield ProcessPoolExecutor(workers, context, _start_worker, (_progress, _stop))


def cluster_executors(address: str) -> Iterator[Any]:
    """Yield executors of a Dask scheduler.

    Raises:
        UserError: the extra is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UserError("--cluster needs the extra: pip install 'replaybench[cluster]'") from None
    while True:
        try:
            client = Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(f"no Dask scheduler answers at {address}: {error}") from None
        yield _cluster_executor(client)


@contextlib.contextmanager
def _cluster_executor(client: Any) -> Iterator[Executor]:
    with client, client.get_executor(pure=False) as executor:
        yield executor


def _start_worker(progress: Any, stop: Any) -> None:
    """Prepare a worker: Ctrl-C is the coordinator's to handle, and a worker does not outlive it."""
    global _progress, _stop
    _progress, _stop = progress, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
