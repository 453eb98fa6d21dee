"""Who is told of a sweep's progress: a live line in a terminal, a line every 30 s elsewhere, JSON for programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from replaybench.data.errors import UserError
from replaybench.data.quantities import duration
from replaybench.experiments.progress.journal import Event, line
from replaybench.experiments.progress.plain_lines import LINE_SECONDS, PlainLines
from replaybench.experiments.progress.round import Round
from replaybench.experiments.progress.tally import Tally
from replaybench.experiments.training.study import Cell

ProgressForm = Literal["bar", "lines", "json", "none"]
"""How progress is shown."""


class Listener(Protocol):
    """Is told of what happens, and of the tally after it."""

    def hear(self, told: Event, tally: Tally) -> None:
        """Take an event."""

    def close(self) -> None:
        """End, whatever the reason."""


def in_words(tally: Tally) -> str:
    """Say how far a sweep is."""
    done, whole = tally.work()
    left = tally.seconds_left()
    told = [f"{tally.complete}/{tally.total} cells", f"{done / max(1, whole):.0%} of the episodes"]
    told += [f"{sum(tally.failed.values())} failed runs"] if tally.failed else []
    told += ["compiling, or in the first round"] if not tally.begun() else []
    told += [f"references {tally.references}/{tally.points}"] if tally.references < tally.points else []
    told += [f"{duration(left)} left"] if left is not None else []
    return ", ".join(part for part in told if part)


class Bar:
    """A live line in a terminal."""

    def __init__(self, console: Console, tally: Tally) -> None:
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._progress.start()
        self._task = self._progress.add_task(in_words(tally), total=tally.work()[1] or None)

    def hear(self, told: Event, tally: Tally) -> None:
        """Draw the line anew."""
        self._progress.update(self._task, completed=tally.work()[0], description=in_words(tally))

    def close(self) -> None:
        """Leave the line as it is."""
        self._progress.stop()


class Lines:
    """A plain line every 30 s, also while nothing is heard, as when references are solved for minutes."""

    def __init__(self, console: Console, tally: Tally, seconds: float = LINE_SECONDS) -> None:
        self._lines = PlainLines(console, lambda: in_words(tally), seconds)

    def hear(self, told: Event, tally: Tally) -> None:
        """Wait for the time of the next line."""

    def close(self) -> None:
        """Write no further line."""
        self._lines.close()


class JsonLines:
    """Every event as a line on standard output."""

    def hear(self, told: Event, tally: Tally) -> None:
        """Print an event."""
        sys.stdout.write(line(told))
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: all is printed."""


class TensorBoard:
    """TensorBoard event files, a folder for each cell: rewards, greedy rewards, metrics, failed runs over steps.

    Steps are environment steps of a member.

    Raises:
        UserError: the extra is not installed.
    """

    def __init__(self, folder: Path, cells: dict[str, Cell]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs the extra: pip install 'replaybench[tensorboard]'") from None
        self._make: Any = SummaryWriter
        self._folder, self._cells = folder, cells
        self._writers: dict[str, Any] = {}

    def write(self, key: str, told: Round, reward: float | None) -> None:
        """Write a cell's round, with the mean `reward` since the last one that was written."""
        if key not in self._writers:
            label = "".join(c if c.isalnum() or c in "-.[]()+" else "_" for c in self._cells[key].label)
            self._writers[key] = self._make(f"{self._folder / f'{label}-{key[:6]}'}")
        values = {"reward": reward, "failed": told.failed, "episode": told.done, **dict(told.latest)}
        for name, value in values.items():
            if value is not None:
                self._writers[key].add_scalar(name, value, round(told.steps))

    def finish(self, key: str) -> None:
        """Close a cell that is complete."""
        if key in self._writers:
            self._writers.pop(key).close()

    def close(self) -> None:
        """Write what is still held."""
        for key in list(self._writers):
            self.finish(key)
