"""The journal of a sweep's progress: events, the file that stores them, and printed lines.

A sweep computes all cells of a study.
"""

import contextlib
import itertools
import json
import math
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from replaybench.data.documents import json_value
from replaybench.runtime.errors import UserError
from replaybench.runtime.quantities import duration


class Round(NamedTuple):
    """The state of a cell of a study after a training episode or iteration.

    A cell trains several members, which are runs with different seeds. An iteration is a fixed number of steps, which
    equals the largest possible length of an episode.

    Attributes:
        done: Number of finished episodes or iterations.
        reward: Mean score of the last training episodes, over members that have not failed; NaN if there are none.
        failed: Number of members with a reward that is not finite.
        steps: Number of environment steps so far, averaged over members.
        latest: Names and values of the latest greedy score and metrics, averaged over members that have not failed.
    """

    done: int
    reward: float = math.nan
    failed: int = 0
    steps: float = 0.0
    latest: tuple[tuple[str, float], ...] = ()


Report = Callable[[Round], bool]
"""A function that is called after every training episode or iteration. If it returns False, training stops."""


Event = dict[str, Any]

_LEAST_SECONDS: Final = 1.0
_SHARE: Final = 0.005
"""Smallest time between two events of a cell, as a fraction of the time since the cell's first event."""


class Journal:
    """A filter that selects the finished episodes to store in a sweep's journal file, so that the file stays small."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._rewards: dict[str, list[float]] = {}

    def round(self, key: str, state: Round, of: int) -> Event | None:
        """Return a progress event of a cell, or None if the last event of the cell is too recent.

        The event contains the mean reward since the last event.

        Args:
            key: Id of the cell.
            state: State of the cell after an episode or iteration.
            of: Number of episodes or iterations in the whole run.
        """
        now = time.monotonic()
        began = self._began.setdefault(key, now)
        rewards = self._rewards.setdefault(key, [])
        if math.isfinite(state.reward):
            rewards.append(state.reward)
        if key in self._last and now - self._last[key] < max(_LEAST_SECONDS, _SHARE * (now - began)):
            return None
        self._last[key] = now
        reward = sum(rewards) / len(rewards) if rewards else None
        self._rewards[key] = []
        return event("round", cell=key, done=state.done, of=of, reward=reward, failed=state.failed)


def begin(study: str, cells: int, todo: int) -> Event:
    """Return the event for the beginning of a sweep of `cells` combinations of settings, `todo` of them unfinished."""
    return event("begin", study=study, cells=cells, open=todo, host=socket.gethostname(), pid=os.getpid())


def event(name: str, **facts: Any) -> Event:
    """Return an event of a sweep as a dictionary with a name, the current time and the given entries."""
    return {"event": name, "at": round(time.time(), 3), **facts}


def line(new: Event) -> str:
    """Return an event as one line of JSON, with null in place of NaN and infinity."""
    return json.dumps({key: json_value(value) for key, value in new.items()}) + "\n"


class JournalFile:
    """The journal file of a sweep, opened for appending events."""

    def __init__(self, path: Path) -> None:
        # Symbolic links are not followed, because the folder may come from another user.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UserError(f"{path} is no regular file; remove it")
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        size = self._file.seek(0, os.SEEK_END)
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            self._file.write(b"\n")  # ends a line that a killed process left unfinished

    def write(self, new: Event) -> None:
        """Append an event to the journal file."""
        self._file.write(line(new).encode())

    def touch(self) -> None:
        """Set the journal file's modification time to now, and ignore errors of a file server."""
        with contextlib.suppress(OSError):
            os.utime(self._file.fileno())

    def close(self) -> None:
        """Close the journal file."""
        self._file.close()


class JournalReader:
    """A reader of a sweep's journal file, which may grow while it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self) -> Iterator[Event]:
        """Yield the events that were added to the journal file since the last call."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole, _, _ = content.rpartition(b"\n")
        self._offset += len(whole) + bool(whole)
        for text in whole.splitlines():
            try:
                new = json.loads(text)
            except (ValueError, RecursionError):  # an unfinished line
                continue
            if isinstance(new, dict) and isinstance(new.get("event"), str):
                yield new


def number(new: Mapping[str, Any], name: str, default: float = math.nan) -> float:
    """Return the entry `name` of an event from an untrusted file, or the default if it is not a finite number."""
    value = new.get(name)
    plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if plain and value is not None else default


LINE_SECONDS: Final = 30.0


@contextlib.contextmanager
def repeating(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Call a function at regular intervals in another thread, while the `with` block runs."""
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


def shows_bars(console: Console) -> bool:
    """Return whether a console can redraw a progress bar, as terminals and notebooks can."""
    return console.is_terminal or console.is_jupyter


def plain_lines(console: Console, words: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    """Print lines as `printed_lines` does, except on a quiet console or one that shows progress bars."""
    quiet = shows_bars(console) or console.quiet
    return contextlib.nullcontext() if quiet else printed_lines(console, words)


def printed_lines(console: Console, words: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    """Print the elapsed time and the result of `words` every 30 s, while the `with` block runs.

    A line that equals the previous line is not printed.
    """
    count, last = itertools.count(1), [""]

    def print_line() -> None:
        line = f"after {duration(next(count) * LINE_SECONDS)}: {words()}"
        if line != last[0]:
            print(line, file=console.file, flush=True)
        last[0] = line

    return repeating(LINE_SECONDS, print_line)
