"""The journal of a run folder: what its sweeps told of themselves, a JSON object a line.

`--progress json` prints the same lines. Lines are appended and never changed; of each cell there is one a second at
most, and fewer the longer it runs, so that a study of days leaves some megabytes. A line that a killed sweep did not
finish is passed over by readers.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from replaybench.experiments.progress.round import Round

Event = dict[str, Any]

_LEAST_SECONDS: Final = 1.0
_SHARE: Final = 0.005
"""Between two lines of a cell lies at least this part of the time that it has run."""


class Journal:
    """Events of a sweep, thinned out."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._rewards: dict[str, list[float]] = {}

    def round(self, key: str, told: Round, of: int) -> Event | None:
        """Return the event of a cell's round; None if it is too early for another. Rewards in between are averaged."""
        now = time.monotonic()
        began = self._began.setdefault(key, now)
        rewards = self._rewards.setdefault(key, [])
        if math.isfinite(told.reward):
            rewards.append(told.reward)
        if key in self._last and now - self._last[key] < max(_LEAST_SECONDS, _SHARE * (now - began)):
            return None
        self._last[key] = now
        reward = sum(rewards) / len(rewards) if rewards else None
        self._rewards[key] = []
        return event("round", cell=key, done=told.done, of=of, reward=reward, failed=told.failed)


def begin(study: str, cells: int, todo: int) -> Event:
    """Return the event of a sweep's begin, which says who runs it."""
    return event("begin", study=study, cells=cells, open=todo, host=socket.gethostname(), pid=os.getpid())


def event(kind: str, **facts: Any) -> Event:
    """Return an event of this moment."""
    return {"event": kind, "at": round(time.time(), 3), **facts}


def line(told: Event) -> str:
    """Write an event as a line; numbers that JSON has not become null."""
    return json.dumps({key: None if _odd(value) else value for key, value in told.items()}) + "\n"


def _odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


class JournalFile:
    """The journal's file, to write."""

    def __init__(self, path: Path) -> None:
        # A link is not followed: the folder may come from a stranger.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        size = self._file.seek(0, os.SEEK_END)
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            self._file.write(b"\n")  # behind what a killed sweep did not finish

    def write(self, told: Event) -> None:
        """Append an event."""
        self._file.write(line(told).encode())

    def touch(self) -> None:
        """Make the file as new as if an event had been written."""
        os.utime(self._file.fileno())

    def close(self) -> None:
        """End writing."""
        self._file.close()


class JournalReader:
    """The journal's file, to read while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self) -> Iterator[Event]:
        """Yield the events since the last call."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole, _, _ = content.rpartition(b"\n")
        self._offset += len(whole) + bool(whole)
        for text in whole.splitlines():
            try:
                told = json.loads(text)
            except (ValueError, RecursionError):  # not finished, by a sweep that was killed
                continue
            if isinstance(told, dict) and isinstance(told.get("event"), str):
                yield told


def number(told: Mapping[str, Any], name: str, default: float = math.nan) -> float:
    """Return a finite number of an event that may come from a stranger; the default where there is none."""
    value = told.get(name)
    plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if plain and value is not None else default
