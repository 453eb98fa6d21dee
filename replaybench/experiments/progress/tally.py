"""Counts of a running sweep: finished work, failed runs, and remaining time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from replaybench.experiments.progress.remaining import seconds_left
from replaybench.experiments.progress.round import Round
from replaybench.experiments.training.study import Cell


@dataclass
class _Pace:
    """Times and finished rounds of a cell's first and last report."""

    first: float
    since: int
    last: float
    done: int


class Tally:
    """Counts of cells, references, rounds and failures; safe to read from another thread.

    Args:
        cells: all cells of the study.
        todo: those that are still to run.
        workers: how many run at once.
    """

    def __init__(self, cells: Sequence[Cell], todo: Sequence[Cell], workers: int) -> None:
        self._lock = threading.Lock()
        self._cells = {cell.id: cell for cell in todo}
        self._paces: dict[str, _Pace] = {}
        self._open = dict(self._cells)
        self._workers = workers
        self.total, self.complete = len(cells), len(cells) - len(todo)
        self.failed: dict[str, int] = {}
        self.references, self.points = 0, len({(cell.plant, cell.frequency, cell.noise) for cell in cells})
        firsts = {(cell.plant, cell.frequency): cell for cell in todo}
        self._lengths = {point: cell.steps_per_episode for point, cell in firsts.items()}
        self._before = sum(cell.members * cell.episodes for cell in cells if cell.id not in self._cells)

    def note(self, key: str, state: Round) -> None:
        """Count a cell's round."""
        now = time.monotonic()
        with self._lock:
            pace = self._paces.setdefault(key, _Pace(now, state.done, now, state.done))
            pace.last, pace.done = now, state.done
            if state.failed:
                self.failed[key] = state.failed

    def finish(self, key: str) -> None:
        """Count a complete cell."""
        with self._lock:
            self._open.pop(key, None)
            self.complete += 1

    def _done(self, key: str) -> int:
        return self._paces[key].done if key in self._paces else 0

    def work(self) -> tuple[int, int]:
        """Return the finished episodes of all members, earlier sweeps included, and the episodes of the study."""
        with self._lock:
            whole, done = self._before, self._before
            for key, cell in self._cells.items():
                whole += cell.members * cell.episodes
                done += cell.members * (self._done(key) if key in self._open else cell.episodes)
            return done, whole

    def begun(self) -> bool:
        """Return whether any cell has reported."""
        with self._lock:
            return bool(self._paces) or len(self._open) < len(self._cells)

    def seconds_left(self) -> float | None:
        """Estimate the remaining time [s]; None before anything is known."""
        with self._lock:
            paces = self._paces.items()
            seen = [(self._cells[key], pace.last - pace.first, pace.done - pace.since) for key, pace in paces]
            still = [(cell, self._done(key)) for key, cell in self._open.items()]
        return seconds_left(seen, still, self._workers, lambda cell: self._lengths[cell.plant, cell.frequency])
