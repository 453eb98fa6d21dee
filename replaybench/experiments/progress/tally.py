"""How far a sweep is, how many runs have failed, and how long the rest will take."""

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
    """When a cell first told of itself here and after how many rounds, and the same of the last time."""

    first: float
    since: int
    last: float
    done: int


class Tally:
    """Counts of cells, rounds and failures.

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
        self.began = time.monotonic()
        self._lengths: dict[tuple[str, float], int] = {}
        for cell in todo:
            if (cell.plant, cell.frequency) not in self._lengths:
                self._lengths[cell.plant, cell.frequency] = cell.steps_per_episode
        self._before = sum(cell.members * cell.episodes for cell in cells if cell.id not in self._cells)

    def note(self, key: str, told: Round) -> None:
        """Note a cell's round; those before its first were done earlier."""
        now = time.monotonic()
        with self._lock:
            pace = self._paces.setdefault(key, _Pace(now, told.done, now, told.done))
            pace.last, pace.done = now, told.done
            if told.failed:
                self.failed[key] = told.failed

    def refer(self) -> None:
        """Note that the references of a plant, rate and noise are there."""
        self.references += 1

    def finish(self, key: str) -> None:
        """Note that a cell is complete, whether or not it ever told of itself."""
        with self._lock:
            self._open.pop(key, None)
            self.complete += 1

    def work(self) -> tuple[int, int]:
        """Return the learner-episodes of the study, earlier stints included: those done, and all."""
        with self._lock:
            whole = {key: cell.members * cell.episodes for key, cell in self._cells.items()}
            done = sum(
                self._cells[key].members * (self._paces[key].done if key in self._paces else 0)
                if key in self._open
                else whole[key]
                for key in whole
            )
            return self._before + done, self._before + sum(whole.values())

    def begun(self) -> bool:
        """Tell whether any cell has told of itself here."""
        with self._lock:
            return bool(self._paces) or len(self._open) < len(self._cells)

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes [s]; None before anything is known."""
        with self._lock:
            paces = self._paces
            seen = [(self._cells[key], pace.last - pace.first, pace.done - pace.since) for key, pace in paces.items()]
            still = [(cell, paces[key].done if key in paces else 0) for key, cell in self._open.items()]
        return seconds_left(seen, still, self._workers, lambda cell: self._lengths[cell.plant, cell.frequency])
