"""Handling of Ctrl-C and SIGTERM in the main process, in workers and in forks; address-space check; safe output."""

import _thread
import contextlib
import io
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from replaybench.runtime.errors import UserError

_LEAST_BYTES: Final = 3 << 30
"""Address space in bytes that a process reserves for libraries and kernels. A tenth of these bytes is used."""


def check_address_space() -> None:
    """Check that the address-space limit of the process (`ulimit -v`) suffices for all libraries."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit not in (resource.RLIM_INFINITY, -1) and limit < _LEAST_BYTES:
        raise UserError(
            f"the address space of a process is limited to {limit / 2**30:.1f} GiB, but libraries and compiled kernels "
            f"map up to {_LEAST_BYTES >> 30} GiB; lift the limit (ulimit -v unlimited), and bound memory by other means"
        )


_STOPS: Final = (signal.SIGINT, signal.SIGTERM)
STOPPED_AT_ONCE = "stopped at once; finished cells and checkpoints are kept, run the same command again to continue"
_AGAIN: Final = 0.02
"""Seconds after which a discarded interruption is raised again."""
_ONE: Final = 0.1
"""Two Ctrl-C within these seconds count as one. `timeout --signal INT` signals a process and then its group."""


class Terminated(KeyboardInterrupt):
    """A SIGTERM signal, which is handled like Ctrl-C."""


class Interrupted(Exception):  # noqa: N818 - not an error
    """An exception with an exit status, raised when all checkpoints are written after Ctrl-C or SIGTERM."""

    def __init__(self, cause: KeyboardInterrupt) -> None:
        super().__init__()
        self.status = exit_status(cause)


def exit_status(cause: KeyboardInterrupt) -> int:
    """Return the exit status after an interruption, which is 130 for Ctrl-C and 143 for SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(cause, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def stopping_raises(to_the_end: bool = False) -> Iterator[None]:
    """Raise Ctrl-C and the first SIGTERM as exceptions in the main thread, while the `with` block runs.

    A library may replace the exception by its own error, as Matplotlib does while it draws. In this case, the exception
    is raised instead of the error. A callback of a C library may discard the exception, as callbacks of LLVM do. In
    this case, the exception is raised again a moment later.

    Args:
        to_the_end: Whether to ignore Ctrl-C and SIGTERM after the block.
    """
    seen: list[KeyboardInterrupt] = []
    lost: list[KeyboardInterrupt] = []
    timers: list[threading.Timer] = []
    repeated = _Repeated()

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and any(isinstance(each, Terminated) for each in seen):
            return
        if number == signal.SIGINT and repeated():
            return
        lost.clear()  # replaced by this one
        seen.append(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        raise seen[-1]

    def again(unraisable: "sys.UnraisableHookArgs") -> None:  # in quotes: only type checkers know the class
        if unraisable.exc_value not in seen:
            before(unraisable)
            return
        lost.append(unraisable.exc_value)
        timers.append(threading.Timer(_AGAIN, repeat, (unraisable.exc_value,)))
        timers[-1].start()

    def repeat(error: KeyboardInterrupt) -> None:
        if error not in lost:
            return
        for known in (lost, seen):  # raised again with the handlers that are installed now
            known.remove(error)
        repeated.last = -math.inf
        _thread.interrupt_main(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)

    before = sys.unraisablehook
    with _handlers({signal.SIGINT: stop, signal.SIGTERM: stop}, to_the_end):
        sys.unraisablehook = again
        try:
            yield
        except Exception as error:
            if not seen:
                raise
            raise seen[-1] from error
        finally:
            sys.unraisablehook = before
            for timer in timers:
                timer.cancel()
                timer.join()
            if lost:
                raise lost.pop()


@contextlib.contextmanager
def interruptions() -> Iterator[list[KeyboardInterrupt]]:
    """Collect each Ctrl-C and the first SIGTERM in a list, without exceptions, while the `with` block runs."""
    seen: list[KeyboardInterrupt] = []
    repeated = _Repeated()

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            if not seen:
                seen.append(Terminated())
        elif not repeated():
            seen.append(KeyboardInterrupt())

    with _handlers({signal.SIGINT: note, signal.SIGTERM: note}):
        yield seen


class _Repeated:
    """A callable that returns whether less than `_ONE` seconds have passed since the previous Ctrl-C."""

    last = -math.inf

    def __call__(self) -> bool:
        before, self.last = self.last, time.monotonic()
        return self.last - before < _ONE


@contextlib.contextmanager
def _handlers(
    wanted: dict[signal.Signals, Callable[[int, FrameType | None], None]], ignore_after: bool = False
) -> Iterator[None]:
    """Install signal handlers while the `with` block runs, except for signals that this process ignores."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in wanted}
        before = {number: known for number, known in before.items() if known not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, wanted[number])
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, signal.SIG_IGN if ignore_after else known)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM in a worker while the `with` block runs, but not in processes that the worker starts.

    A blocked or ignored signal would also be blocked or ignored in these processes, and a task that ends its simulator
    by SIGTERM would wait for ever.
    """

    def ignore(number: int, frame: FrameType | None) -> None:
        pass

    with _handlers({signal.SIGINT: ignore, signal.SIGTERM: ignore}):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        yield


class _ForkMask(threading.local):
    """The signals that a thread blocks, as they were before it forks."""

    before: set[signal.Signals | int]

    def block(self) -> None:
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)

    def restore(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def restore_in_child(self) -> None:
        """Let SIGTERM end a forked process, as `multiprocessing.Pool` expects, and ignore Ctrl-C there.

        A handler in Python cannot end it: a process that waits for a lock runs the handler only after it has the lock.
        """
        for number, action in ((signal.SIGINT, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_DFL)):
            if getattr(signal.getsignal(number), "__module__", "") == __name__:  # a handler of this module
                signal.signal(number, action)
        self.restore()


_FORK_MASK: Final = _ForkMask()
# Signals are blocked meanwhile, because a handler that runs before its removal would lose a signal.
os.register_at_fork(
    before=_FORK_MASK.block, after_in_parent=_FORK_MASK.restore, after_in_child=_FORK_MASK.restore_in_child
)


def printable(text: str, keep: str = "") -> str:
    """Replace unprintable characters of a string by escape sequences, except the characters in `keep`."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def prepare_streams() -> None:
    """Let standard output and error print escape sequences for characters outside their encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
