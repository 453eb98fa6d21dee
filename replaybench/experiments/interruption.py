"""Ctrl-C and SIGTERM mean the same: bring what is under way to where it can be continued, and end."""

from __future__ import annotations

import _thread
import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

STOPPED_AT_ONCE = "stopped at once; finished cells and checkpoints are kept, run the same command again to continue"
_AGAIN: Final = 0.02
"""After how many seconds an interruption that was lost is raised again."""
_ONE: Final = 0.1
"""Seconds within which two Ctrl-C are one: `timeout --signal INT` sends it to its child and to their group."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which means what Ctrl-C means."""


class Interrupted(Exception):  # noqa: N818 - not an error
    """The user, or the system, asked to stop; checkpoints are written.

    Args:
        cause: what was caught.
    """

    def __init__(self, cause: KeyboardInterrupt) -> None:
        super().__init__()
        self.status = exit_status(cause)


def exit_status(cause: KeyboardInterrupt) -> int:
    """Return the exit status that tells a shell which signal ended a command: 130 or 143."""
    return 128 + (signal.SIGTERM if isinstance(cause, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def stopping_raises(to_the_end: bool = False) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise in the main thread; SIGTERM once, for what `timeout` sends twice is meant once.

    Where the block is all that the process does, `to_the_end`, both are ignored after it: what is left is to say how it
    ended.

    A library may make another error of what was raised within it, as Matplotlib does of an interruption while it draws:
    that error is raised as the interruption that it was. What is raised within a callback of a C library is lost, as it
    is while LLVM compiles: it is raised again a moment later.
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
        lost.clear()  # what is raised now stands for it
        seen.append(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        raise seen[-1]

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_value not in seen:
            before(unraisable)
            return
        lost.append(unraisable.exc_value)
        timers.append(threading.Timer(_AGAIN, repeat, (unraisable.exc_value,)))
        timers[-1].start()

    def repeat(error: KeyboardInterrupt) -> None:
        if error not in lost:
            return
        for known in (lost, seen):  # as if it had not come yet, whoever may be handling signals by now
            known.remove(error)
        repeated.forget()
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
    """Yield a list to which Ctrl-C and the first SIGTERM add what they would else raise, wherever that would hit."""
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
    """Tells whether a Ctrl-C is the one before once more."""

    def __init__(self) -> None:
        self._heard = -math.inf

    def __call__(self) -> bool:
        """Return True within a moment of the last one."""
        before, self._heard = self._heard, time.monotonic()
        return self._heard - before < _ONE

    def forget(self) -> None:
        """Let the next one count."""
        self._heard = -math.inf


@contextlib.contextmanager
def _handlers(
    wanted: dict[signal.Signals, Callable[[int, FrameType | None], None]], ignore_after: bool = False
) -> Iterator[None]:
    """Handle signals for a while; those that are ignored, as in a shell's background, stay so."""
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
