"""Tasks in processes of this machine, each at the other end of a pipe.

Orders go down the pipe, progress and results come up. There is nothing else between the processes, no queue and no
semaphore, so nothing is left of them in whatever way they end: a worker whose pipe closes ends too, and one that is
lost loses at most its task, which another does again.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from replaybench.data.errors import UserError
from replaybench.experiments.interruption import STOPPED_AT_ONCE, Interrupted, interruptions
from replaybench.experiments.progress.round import Round
from replaybench.experiments.training.tasks import Finish, Job, Watch

ATTEMPTS: Final = 3
_TICK: Final = 0.2
_PATIENCE: Final = 10.0
_STOP: Final = "stop"
_END: Final = "end"
_UNGUARDED: Final = 77
"""Exit status of a worker that would have begun a sweep, as it imported the script that begins one."""
_GUARD: Final = 'if __name__ == "__main__":'
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def run_locally(count: int, tasks: Sequence[Job], watch: Watch, finish: Finish) -> None:
    """Run tasks in `count` processes of one thread each.

    Raises:
        Interrupted: on Ctrl-C or SIGTERM, after cells under way have written their checkpoints; also where it comes
            while workers end, their tasks done.
        KeyboardInterrupt: on a second Ctrl-C, at once.
        UserError: a task's worker died time and again. As after any failure of a task, others write checkpoints first.
    """
    with interruptions() as seen:
        with contextlib.closing(_Crew(tasks, watch, finish)) as crew:
            _run(crew, count, seen)
        if seen:
            raise Interrupted(seen[0])


def _run(crew: _Crew, count: int, seen: list[KeyboardInterrupt]) -> None:
    """Run a crew's tasks to their end, or to checkpoints where an interruption is seen or a task fails."""
    fault = None
    try:
        while crew.unfinished and not seen:
            crew.hand_out(count)
            crew.listen()
    except Exception as error:
        fault = error
    if crew.unfinished or fault:
        if crew.stop() and not fault:
            print("stopping: what is under way comes to its next checkpoint first", file=sys.stderr, flush=True)
        asked = 0 if fault else 1  # a second one counts from the first on, also while the line above is printed
        while crew.busy and len(seen) == asked:
            try:
                crew.listen()
            except Exception as error:
                fault = fault or error
        if len(seen) > asked:
            raise KeyboardInterrupt(STOPPED_AT_ONCE)
        raise fault or Interrupted(seen[0])


def leave_if_imported() -> None:
    """End this process if it is a worker that is about to be, and that imports the script from which it was started.

    What calls this would else be done again by every worker; the process that started them says so.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(_UNGUARDED)


class _Crew:
    """Workers and what they have to do."""

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
        """Give tasks to idle workers, `count` in all."""
        idle = (worker for worker in list(self._workers) if not worker.task)
        new = (self._hire() for _ in range(count - len(self._workers)))
        for worker in itertools.chain(idle, new):
            if not self.waiting:
                return
            worker.begin(self.waiting.popleft())

    def _hire(self) -> _Worker:
        self._workers.append(_Worker())
        return self._workers[-1]

    def listen(self) -> None:
        """Take what workers have to say, if anything within a moment."""
        by_pipe = {worker.pipe: worker for worker in self._workers}
        for pipe in wait(list(by_pipe), _TICK):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                kind, content = worker.pipe.recv()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            if kind == "ready":
                worker.ready = True
                continue
            task = worker.task
            assert task is not None
            if kind == "progress":
                self._watch(task.key, content)
                continue
            worker.task = None
            if kind == "failed":
                raise content
            if content is not None:  # as a cell has it that was stopped
                self._finish(task.key, content)

    def _bury(self, worker: _Worker) -> None:
        """Let another worker do what a dead one was doing."""
        self._workers.remove(worker)
        died = worker.kill()
        if (task := worker.task) is None:
            return
        if not worker.ready and died == f"exit status {_UNGUARDED}":
            raise UserError(
                "the script calls replaybench.sweep as it is imported, and workers import it; "
                f"put the call under {_GUARD!r}"
            )
        self._lost[task.key] += 1
        if self._lost[task.key] == ATTEMPTS:
            raise UserError(_why_lost(worker.ready, died))
        self.waiting.appendleft(task)

    def stop(self) -> bool:
        """Ask for checkpoints; return whether there are any to wait for. What writes none is ended at once."""
        self.waiting.clear()
        for worker in self.busy:
            if worker.task and worker.task.stops:
                worker.tell(_STOP)
            else:
                self._workers.remove(worker)
                worker.kill()
        return bool(self.busy)

    def close(self) -> None:
        """End all workers: idle ones in peace."""
        for worker in self._workers:
            if worker.task:
                worker.kill()
            else:
                worker.tell(_END)
        for worker in self._workers:
            worker.leave()


def _why_lost(ready: bool, died: str) -> str:
    """Return what to say of a task whose workers die time and again, the last one as `died` says."""
    if not died.startswith("exit status"):
        return (
            f"a worker process died {ATTEMPTS} times at the same task ({died}), probably for lack of memory; "
            "use fewer --workers or a smaller block"
        )
    if ready:
        return f"a worker process ended {ATTEMPTS} times at the same task ({died}); what it said, if anything, is above"
    return (
        f"a worker process ended {ATTEMPTS} times before it began ({died}), and what it said is above; a script "
        f"that calls replaybench.sweep must be a file, which workers import, with all that it does under {_GUARD!r}"
    )


class _Worker:
    """A process, and the pipe to it.

    Attributes:
        task: what it is doing.
        ready: whether it has been heard of.
    """

    def __init__(self) -> None:
        for name in _THREADS:
            os.environ.setdefault(name, "1")
        context = multiprocessing.get_context("spawn")
        self.task: Job | None = None
        self.ready = False
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        with _signals_blocked():
            self._process.start()
        theirs.close()

    def begin(self, task: Job) -> None:
        self.task = task
        self.tell(task)

    def tell(self, order: Job | str) -> None:
        with contextlib.suppress(OSError):  # that it is dead is seen when it is listened to
            self.pipe.send(order)

    def kill(self) -> str:
        """End it, if it has not ended, and say how it did."""
        self.pipe.close()
        self._process.join(0.5)  # so that a death of its own is told as what it was
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def leave(self) -> None:
        """Wait for its end, not forever."""
        self.pipe.close()
        self._process.join(_PATIENCE)
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start a process within which neither Ctrl-C nor SIGTERM is ever seen, not even while it starts."""
    resource_tracker.ensure_running()  # which would else be started within, and unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection) -> None:
    """Do tasks until there are no more: the work of a worker process."""
    _send(pipe, "ready", None)
    tasks: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_heed, args=(pipe, tasks, stop), daemon=True).start()

    def report(told: Round) -> bool:
        _send(pipe, "progress", told)
        return not stop.is_set()

    while (task := tasks.get()) is not None:
        try:
            answer = "done", task.function(*task.arguments, report)
        except Exception as error:
            if not isinstance(error, UserError):
                error.add_note("".join(traceback.format_exception(error)))
            answer = "failed", error
        _send(pipe, *answer)


def _send(pipe: Connection, kind: str, content: Any) -> None:
    try:
        pipe.send((kind, content))
    except OSError:
        os._exit(1)  # nobody is listening


def _heed(pipe: Connection, tasks: queue.SimpleQueue[Job | None], stop: threading.Event) -> None:
    """Take orders; whoever gave them may die, and a worker does not outlive its coordinator."""
    while True:
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        if order == _STOP:
            stop.set()
        else:
            tasks.put(None if order == _END else order)
