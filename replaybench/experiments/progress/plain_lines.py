"""A plain line every 30 s where there is no terminal to draw in, so that a long command is never silent.

No line is written twice in a row: from ten minutes on times are told in minutes, after a day in hours.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console

from replaybench.data.quantities import duration

LINE_SECONDS: Final = 30.0


class PlainLines:
    """Prints a line every `seconds` if it says anything new, from a thread of its own, also while nothing else happens.

    Args:
        console: where to; what a program reads on standard output must not have such lines in it.
        words: says how far the work is; called from that thread.
        seconds: between two lines.
    """

    def __init__(self, console: Console, words: Callable[[], str], seconds: float) -> None:
        self._console, self._words, self._seconds = console, words, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def _tell(self) -> None:
        passed, last = 0.0, ""
        while not self._ended.wait(self._seconds):
            passed += self._seconds
            if (line := f"after {duration(passed)}: {self._words()}") != last:
                print(line, file=self._console.file, flush=True)
            last = line

    def close(self) -> None:
        """Write no further line."""
        self._ended.set()
        self._thread.join()


@contextlib.contextmanager
def plain_lines(console: Console, words: Callable[[], str]) -> Iterator[None]:
    """Print lines during the block, unless the console is a terminal, which shows progress by itself, or quiet."""
    if console.is_terminal or console.quiet:
        yield
        return
    with contextlib.closing(PlainLines(console, words, LINE_SECONDS)):
        yield
