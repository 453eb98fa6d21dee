"""A plain line every 30 s where there is no terminal, so that a long command is never silent.

No line is printed twice in a row: after ten minutes times are in minutes, after a day in hours.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console

from replaybench.data.quantities import duration

LINE_SECONDS: Final = 30.0


@contextlib.contextmanager
def repeating(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Call an action every so many seconds during the block, from another thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def plain_lines(console: Console, words: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    """Print lines during the block, except on a terminal, which shows progress by itself, or on a quiet console."""
    return (
        contextlib.nullcontext()
        if console.is_terminal or console.quiet
        else printed_lines(console, words, LINE_SECONDS)
    )


def printed_lines(
    console: Console, words: Callable[[], str], seconds: float
) -> contextlib.AbstractContextManager[None]:
    """Print `words()` every so many seconds during the block, if it has changed."""
    count, last = itertools.count(1), [""]

    def print_line() -> None:
        line = f"after {duration(next(count) * seconds)}: {words()}"
        if line != last[0]:
            print(line, file=console.file, flush=True)
        last[0] = line

    return repeating(seconds, print_line)
