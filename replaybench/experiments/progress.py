"""What a sweep shows while it runs: one live line, silent off a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from replaybench.experiments.training.study import Cell


class Display:
    """Cells done, learner-episodes per second, time left.

    Args:
        cells: all cells of the study.
        todo: those that are still to run.
    """

    def __init__(self, console: Console, cells: Sequence[Cell], todo: Sequence[Cell]) -> None:
        self._cells = {cell.id: cell for cell in todo}
        self._episodes = dict.fromkeys(self._cells, 0)
        self._resumed_at: dict[str, int] = {}
        self._complete, self._total = len(cells) - len(todo), len(cells)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Display:
        self._began = time.monotonic()
        self._progress.start()
        total = sum(cell.members * cell.episodes for cell in self._cells.values())
        self._task = self._progress.add_task(self._label(), total=total or None, rate="references")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _label(self) -> str:
        return f"{self._complete}/{self._total} cells"

    def advance(self, key: str, episode: int) -> None:
        """Note that a cell has done so many episodes; those before its first report were done earlier."""
        if not self._resumed_at:
            self._began = time.monotonic()
        self._resumed_at.setdefault(key, episode - 1)
        self._note(key, episode)

    def complete(self, key: str) -> None:
        """Note that a cell is complete, whether or not it ever reported."""
        self._resumed_at.setdefault(key, 0)
        self._complete += 1
        self._note(key, self._cells[key].episodes)

    def _note(self, key: str, episode: int) -> None:
        self._episodes[key] = episode
        done = sum(self._cells[k].members * count for k, count in self._episodes.items())
        fresh = sum(self._cells[k].members * (self._episodes[k] - at) for k, at in self._resumed_at.items())
        rate = fresh / max(1e-9, time.monotonic() - self._began)
        self._progress.update(
            self._task, completed=done, description=self._label(), rate=f"{rate:.0f} learner-episodes/s"
        )
