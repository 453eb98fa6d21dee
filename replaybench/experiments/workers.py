"""Worker processes that compute the jobs of a sweep, on this machine or on a Dask cluster.

Local workers receive jobs, and send progress and results, through pipes. There are no shared queues or semaphores, so
killed processes leave nothing behind. A worker ends when its pipe closes. If a worker dies, its job is repeated. The
main process is called the coordinator.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future
from concurrent.futures import wait as wait_for_futures
from importlib.metadata import version
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replaybench.experiments.interruption import STOPPED_AT_ONCE, Interrupted, ignored, interruptions
from replaybench.experiments.progress import Round
from replaybench.runtime.errors import UserError

if TYPE_CHECKING:
    from distributed import Client

ATTEMPTS: Final = 3
_TICK: Final = 0.2
_PATIENCE: Final = 10.0
_STOP: Final = "stop"
_END: Final = "end"
_UNGUARDED: Final = 77
"""Exit status of a worker that would have started another sweep when it imported the main script."""
_GUARD: Final = 'if __name__ == "__main__":'
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


Watch = Callable[[str, Round], None]
"""A function that the main process calls after each training episode or iteration, with the job's key and state."""

Finish = Callable[[str, Any], None]
"""A function that the main process calls with the key of a finished job and the job's result."""


class Job(NamedTuple):
    """A function call that a worker process executes.

    Attributes:
        key: Name of the job, such as the id of a cell.
        function: Called with `arguments` and a `Report`, a function that sends the progress. The function, its
            arguments and its result must support pickling.
        stops: Whether the function returns soon after the `Report` returns False. If not, a stop kills the worker.
    """

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    stops: bool = False


def run_locally(count: int, tasks: Sequence[Job], watch: Watch, finish: Finish) -> None:
    """Execute jobs in `count` worker processes on this machine, with one thread per process.

    Raises:
        Interrupted: Ctrl-C or SIGTERM was received, and running cells have written their checkpoints.
        KeyboardInterrupt: A second signal was received, and all workers were killed.
        SystemExit: The main script starts a sweep when a worker imports it.
    """
    with interruptions() as seen, contextlib.closing(_WorkerPool(tasks, watch, finish)) as pool:
        fault = None
        try:
            while pool.unfinished and not seen:
                pool.hand_out(count)
                pool.listen()
        except Exception as error:
            fault = error
        if pool.unfinished or fault:
            if pool.stop() and not fault:
                print("stopping: running cells write a checkpoint first", file=sys.stderr, flush=True)
            expected = 0 if fault else 1  # one more interruption stops at once
            while pool.busy and len(seen) == expected:
                try:
                    pool.listen()
                except Exception as error:
                    fault = fault or error
            if len(seen) > expected:
                raise KeyboardInterrupt(STOPPED_AT_ONCE)
            raise fault or Interrupted(seen[0])
    if seen:
        raise Interrupted(seen[0])


def leave_if_imported() -> None:
    """End a worker process that imports the main script, because the script would start another sweep in the worker."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(_UNGUARDED)


class _WorkerPool:
    def __init__(self, tasks: Sequence[Job], watch: Watch, finish: Finish) -> None:
        self.waiting = deque(tasks)
        self._workers: list[_Worker] = []
        self._watch, self._finish = watch, finish
        self._lost: Counter[str] = Counter()

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting or self.busy)

    @property
    def busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.task]

    def hand_out(self, count: int) -> None:
        while self.waiting:
            worker = next((each for each in self._workers if not each.task), None)
            if worker is None:
                if len(self._workers) >= count:
                    return
                worker = _Worker()
                self._workers.append(worker)
            worker.task = self.waiting.popleft()
            worker.send(worker.task)

    def listen(self) -> None:
        by_pipe = {worker.pipe: worker for worker in self._workers}
        for pipe in wait(list(by_pipe), _TICK):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                message, content = worker.pipe.recv()
            except (EOFError, OSError):
                self._reap(worker)
                continue
            if message == "ready":
                worker.ready = True
                continue
            task = worker.task
            assert task is not None
            if message == "progress":
                self._watch(task.key, content)
                continue
            worker.task = None
            if message == "failed":
                raise content
            if content is not None:  # None: the cell was stopped
                self._finish(task.key, content)

    def _reap(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        died = worker.kill()
        if (task := worker.task) is None:
            return
        if not worker.ready and died == f"exit status {_UNGUARDED}":
            # Not a `UserError`, which would print a traceback of the script, as no command catches it.
            sys.exit(
                "replaybench: the script calls replaybench.sweep when it is imported, and each worker imports it; "
                f"put the call under {_GUARD!r}"
            )
        self._lost[task.key] += 1
        self.waiting.appendleft(task)
        if self._lost[task.key] < ATTEMPTS:
            return
        if not died.startswith("exit status"):
            raise UserError(
                f"a worker process died {ATTEMPTS} times at the same task ({died}), probably for lack of memory; "
                "use fewer --workers or a smaller block"
            )
        if worker.ready:
            raise UserError(
                f"a worker process ended {ATTEMPTS} times at the same task ({died}); its output, if any, is above"
            )
        raise UserError(
            f"a worker process ended {ATTEMPTS} times before it began ({died}); its output is above; a script "
            f"that calls replaybench.sweep must be a file, which workers import, with all that it does under {_GUARD!r}"
        )

    def stop(self) -> bool:
        """Let running cells write a checkpoint, kill other workers, and return whether any worker is still busy."""
        self.waiting.clear()
        for worker in self.busy:
            if worker.task and worker.task.stops:
                worker.send(_STOP)
            else:
                self._workers.remove(worker)
                worker.kill()
        return bool(self.busy)

    def close(self) -> None:
        for worker in self._workers:
            if worker.task:
                worker.kill()
            else:
                worker.send(_END)
        for worker in self._workers:
            worker.end(_PATIENCE)


class _Worker:
    """A worker process with its pipe and current job. `ready` is True after the first message of the process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.task: Job | None = None
        self.ready = False
        self.pipe, worker_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(worker_end,))
        with _signals_blocked(), _worker_environment():
            self._process.start()
        worker_end.close()

    def send(self, order: Job | str) -> None:
        with contextlib.suppress(OSError):  # `listen` notices that the worker has ended
            self.pipe.send(order)

    def kill(self) -> str:
        """End the process, and return its exit status, or the name of the signal that killed the process."""
        self.end(0.5)  # a process that is already ending keeps its exit status
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def end(self, patience: float) -> None:
        """Close the pipe, wait at most `patience` seconds for the process to end, then kill the process."""
        self.pipe.close()
        self._process.join(patience)
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM in processes that start in the `with` block, until they handle the signals.

    A terminal sends these signals to all of its processes, but only the coordinator stops.
    """
    with _worker_environment():
        resource_tracker.ensure_running()  # if the tracker started in the block, it would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _worker_environment() -> Iterator[None]:
    """Set environment variables of processes that start in the `with` block, unless the user has set them.

    The processes compute with one thread. Their import path lacks the working folder, in which a file
    `multiprocessing.py` would otherwise take the place of the standard library.
    """
    ours = [name for name in (*_THREADS, "PYTHONSAFEPATH") if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _serve(pipe: Connection) -> None:
    os.dup2(2, 1)  # a task that prints would otherwise write into the output of `--progress json`
    # A task that uses `multiprocessing` gets Python's default, and not the method by which this worker was started.
    multiprocessing.set_start_method(None, force=True)
    _send(pipe, "ready", None)
    tasks: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_receive, args=(pipe, tasks, stop), daemon=True).start()

    def report(state: Round) -> bool:
        _send(pipe, "progress", state)
        return not stop.is_set()

    with ignored():
        while (task := tasks.get()) is not None:
            try:
                answer = "done", task.function(*task.arguments, report)
            except Exception as error:
                if not isinstance(error, UserError):
                    error.add_note("".join(traceback.format_exception(error)))
                answer = "failed", error
            _send(pipe, *answer)


def _send(pipe: Connection, message: str, content: Any) -> None:
    try:
        pipe.send((message, content))
    except OSError:
        os._exit(1)  # the coordinator has ended


def _receive(pipe: Connection, tasks: queue.SimpleQueue[Job | None], stop: threading.Event) -> None:
    """Receive jobs and orders from the coordinator (main process), and exit when the coordinator has ended."""
    while True:
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        if order == _STOP:
            stop.set()
        else:
            tasks.put(None if order == _END else order)


_CLUSTER_TICK = 0.2


def run_on_cluster(address: str, tasks: Sequence[Job], watch: Watch, finish: Finish) -> None:
    """Execute jobs on the workers of the Dask scheduler at an address, and report finished jobs only."""
    futures: dict[Future[Any], str] = {}
    with _executor(address) as executor:
        try:
            for task in tasks:
                job = executor.submit(_with_equal_versions, _versions(), task.function, *task.arguments, _unwatched)
                futures[job] = task.key
            pending = set(futures)
            while pending:
                done, pending = wait_for_futures(pending, timeout=_CLUSTER_TICK, return_when=FIRST_COMPLETED)
                faults = []
                for future in done:
                    try:
                        # Drop the future at once, because its result holds a cell's whole buffer.
                        finish(futures.pop(future), _result(future))
                    except Exception as error:  # results of other tasks are stored first
                        faults.append(error)
                if faults:
                    raise faults[0]
        except BaseException as error:
            for future in futures:
                future.cancel()
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(error) from None
            raise


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except UserError as error:
        raise UserError(f"on a worker of the cluster: {error}") from error


def _unwatched(_: Round) -> bool:
    return True


def check_cluster(address: str) -> None:
    """Check that a Dask scheduler answers at an address, and that its workers have the versions of this process.

    Raises:
        UserError: No scheduler answers, or a worker has another version of NumPy or of this package.
    """
    with _client(address) as client:
        found = client.get_versions(packages=list(_versions()))
    here: Any = found["client"]["packages"]
    workers: Any = found["workers"]
    for worker, content in workers.items():
        _compare_versions({name: content["packages"].get(name) for name in _versions()}, here, f"the worker {worker}")


def _versions() -> dict[str, str]:
    """Return the versions that results depend on, by the names of the distributions."""
    return {name: version(name) for name in ("numpy", "replaybench")}


def _compare_versions(there: Mapping[str, str | None], here: Mapping[str, str | None], worker: str) -> None:
    for name, other in there.items():
        if other != here[name]:
            raise UserError(
                f"{worker} has {name} {other or 'not installed'}, but this process has {name} {here[name]}; results "
                "would mix: install the same versions everywhere"
            )


def _with_equal_versions(versions: Mapping[str, str], task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task on a worker of a cluster, which may have joined after the sweep began."""
    _compare_versions(_versions(), versions, "it")
    return task(*arguments)


@contextlib.contextmanager
def _executor(address: str) -> Iterator[Executor]:
    try:
        with _client(address) as client, client.get_executor(pure=False) as executor:
            yield executor
    except Exception as error:
        if isinstance(error, CancelledError) or type(error).__module__.startswith("distributed"):
            raise UserError(
                f"the cluster gave up ({type(error).__name__}); finished cells are kept, see its scheduler's and "
                "workers' logs, then run again"
            ) from error
        raise


def _client(address: str) -> Client:
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
        from distributed.security import Security
    except ImportError:
        raise UserError("--cluster needs the extra: pip install 'replaybench[cluster]'") from None
    try:
        # The address is checked first, because a client that fails on it prints a traceback at exit.
        scheme, place = parse_address(address)
        get_backend(scheme)
        if scheme in ("tcp", "tls"):
            parse_host_port(place)
        if scheme in ("tls", "wss") and Security().get_connection_args("client").get("ssl_context") is None:
            raise ValueError("Dask's configuration names no certificates under distributed.comm.tls")
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(f"no Dask scheduler answers at {address!r}: {error}; give tcp://HOST:PORT") from None
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost connection is reported by `_executor`
    return client
