"""Displays of a sweep's progress: a progress bar, a line every 30 s, or JSON for programs.

A sweep runs all cells of a study. The unit of progress is a round, which is a training episode, or an iteration if
updates follow a number of steps.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from replaybench.baselines.references import Reference
from replaybench.data.record import open_record
from replaybench.data.run_folder import RunFolder
from replaybench.experiments import progress
from replaybench.experiments.cell_lookup import cells_of
from replaybench.experiments.progress import Event, Round, event, number
from replaybench.experiments.study import Cell
from replaybench.runtime.atomic import check_place
from replaybench.runtime.errors import UserError, need
from replaybench.runtime.quantities import duration

_SILENT_SECONDS: Final = 120.0
"""Seconds without a change of the journal file after which a sweep on another machine counts as ended."""
_POINTS: Final = 200
"""Number of points in the learning curve of a cell whose curve is read from its score file."""


@dataclass
class CellHistory:
    """The progress of one cell of a study.

    Attributes:
        points: Learning curve, as pairs of a number of finished episodes and the mean reward since the previous pair.
        done: Number of finished episodes or iterations.
        failed: Number of failed runs, with a reward that is not finite.
        first: Time of the cell's first event in the current sweep, and the number of episodes finished at this time.
        last: Time of the cell's last event, in seconds since the epoch.
    """

    cell: Cell
    points: list[tuple[int, float]] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    complete: bool = False
    first: tuple[float, int] | None = None
    last: float = 0.0

    def finish(self) -> None:
        """Mark the cell as complete."""
        self.complete, self.done = True, self.cell.episodes


class History:
    """The progress of all cells of a sweep, updated by the sweep's events.

    Attributes:
        cells: Progress of each cell by its id, in the study's order.
        references: Scores of random control and dynamic programming, by plant, control rate and noise. None if the
            normalised score μ_r is not defined.
    """

    def __init__(self, cells: Iterable[Cell], workers: int | None, length: Callable[[Cell], float]) -> None:
        self.cells = {cell.id: CellHistory(cell) for cell in cells}
        self.references: dict[tuple[str, float, float], tuple[float, float] | None] = {}
        self._begin: Event | None = None
        self._end: Event | None = None
        self._workers, self._length, self._at_once, self._begun = workers, length, 0, False

    def take(self, new: Event) -> None:
        """Update the progress from an event of the sweep."""
        if new["event"] == "begin":
            self._begin, self._end, self._at_once = new, None, 0
            for known in self.cells.values():
                known.first = None
        elif new["event"] == "end":
            self._end = new
        elif new["event"] == "reference":
            random, dp = number(new, "random"), number(new, "dp")
            point = str(new.get("plant")), number(new, "frequency"), number(new, "noise")
            self.references[point] = (random, dp) if new.get("usable") is True and dp != random else None
        elif known_cell := self.cells.get(str(new.get("cell"))):
            self._begun = True
            if new["event"] == "complete":
                known_cell.finish()
                known_cell.last = number(new, "at", known_cell.last)
            elif new["event"] == "round":
                done, at = int(number(new, "done", 0)), number(new, "at", 0.0)
                known_cell.first = known_cell.first or (at, done)
                points = [point for point in known_cell.points if point[0] < done]  # a resumed cell repeats rounds
                reward = number(new, "reward")
                known_cell.points = [*points, (done, reward)] if math.isfinite(reward) else points
                known_cell.done, known_cell.failed, known_cell.last = done, int(number(new, "failed", 0)), at
                running = sum(each.first is not None and not each.complete for each in self.cells.values())
                self._at_once = max(self._at_once, running)

    @property
    def complete(self) -> int:
        """The number of complete cells."""
        return sum(known.complete for known in self.cells.values())

    @property
    def failed(self) -> int:
        """The number of failed runs in the whole sweep."""
        return sum(known.failed for known in self.cells.values())

    def work(self) -> tuple[int, int]:
        """Return the number of finished episodes and the number of all episodes, summed over all runs of the study."""
        known = self.cells.values()
        done = sum(each.cell.members * each.done for each in known)
        return done, sum(each.cell.members * each.cell.episodes for each in known)

    def seconds_left(self) -> float | None:
        """Estimate the remaining time in seconds, or return None before the first episodes are finished."""
        observed = [
            (known.cell, known.last - known.first[0], known.done - known.first[1])
            for known in self.cells.values()
            if known.first is not None and known.last > known.first[0]
        ]
        incomplete = [(known.cell, known.done) for known in self.cells.values() if not known.complete]
        processes = self._at_once if self._workers is None else self._workers
        return seconds_left(observed, incomplete, processes, self._length)

    def in_words(self) -> str:
        """Return the progress of a running sweep as one line of text."""
        (done, whole), left, failed = self.work(), self.seconds_left(), self.failed
        points = len({(known.cell.plant, known.cell.frequency, known.cell.noise) for known in self.cells.values()})
        parts = [f"{self.complete}/{len(self.cells)} cells", f"{done / max(1, whole):.0%} of the episodes"]
        parts += [f"{failed} failed runs"] if failed else []
        parts += [] if self._begun or done == whole else ["compiling, or in the first episode or iteration"]
        parts += [f"references {len(self.references)}/{points}"] if len(self.references) < points else []
        parts += [f"{duration(left)} left"] if left is not None else []
        return ", ".join(parts)


class RunHistory(History):
    """The progress of a sweep that writes to a run folder, possibly in another process."""

    def __init__(self, folder: RunFolder) -> None:
        # The rate stands for an episode's length: no plant is built, because its code may be from another user's file.
        super().__init__(cells_of(folder), None, attrgetter("frequency"))
        self._folder, self._reader = folder, progress.JournalReader(folder.progress)
        for known in self.cells.values():
            if folder.finished(known.cell.id):
                known.finish()
        self.update()
        for known in self.cells.values():
            if not known.complete or known.points:
                continue
            with contextlib.suppress(UserError):  # `inspect` reports damage
                with open_record(folder.cell(known.cell.id) / "scores.h5", "scores") as record:
                    rewards = record.read("reward")
                sound = np.isfinite(rewards).all(axis=1)
                known.failed = int((~sound).sum())
                curve = rewards[sound].mean(axis=0) if sound.any() else np.empty(0)
                ends = np.unique(np.linspace(0, len(curve), min(_POINTS, len(curve)) + 1).astype(int))
                known.points = [(int(b), float(curve[a:b].mean())) for a, b in itertools.pairwise(ends)]

    def update(self) -> None:
        """Read the events that were added to the journal file since the last call."""
        for new in self._reader.news():
            self.take(new)

    @property
    def study(self) -> str:
        """The name of the study."""
        return str((self._begin or {}).get("study", self._folder.path.name))

    @property
    def state(self) -> str:
        """The state of the sweep, which is `running`, `finished`, `interrupted` or `not begun`."""
        if self.complete == len(self.cells):
            return "finished" if self._end or not self._alive() else "running"
        if self._begin is None:
            return "interrupted" if any(known.done for known in self.cells.values()) else "not begun"
        return "running" if self._end is None and self._alive() else "interrupted"

    def _alive(self) -> bool:
        """Return whether the sweep's process exists or, on another machine, whether its journal changed recently."""
        if self._begin is None:
            return False
        if self._begin.get("host") != socket.gethostname():
            with contextlib.suppress(OSError):
                return time.time() - self._folder.progress.stat().st_mtime < _SILENT_SECONDS
            return False
        pid: Any = self._begin.get("pid")
        if not isinstance(pid, int) or not 0 < pid < 2**31:
            return False
        try:
            os.kill(pid, 0)
        except OSError as error:
            return isinstance(error, PermissionError)
        return True

    @property
    def seconds(self) -> float:
        """The duration of the last sweep so far, in seconds."""
        if self._begin is None:
            return 0.0
        latest = max((known.last for known in self.cells.values()), default=0.0)
        now = number(self._end, "at", latest) if self._end else time.time() if self.state == "running" else latest
        return max(0.0, now - number(self._begin, "at", now))


def seconds_left(
    seen: Iterable[tuple[Cell, float, int]],
    still: Iterable[tuple[Cell, int]],
    processes: int,
    length: Callable[[Cell], float],
) -> float | None:
    """Estimate the remaining time of a sweep in seconds, or return None if no cell was observed.

    The duration of a step in an incomplete cell is estimated from the most similar cells.

    Args:
        seen: Observed cells, each with a time in seconds and the number of episodes finished in this time.
        still: Incomplete cells, each with its number of finished episodes.
        processes: Number of cells that run at once.
        length: Returns the number of steps in an episode of a cell, or a proportional number.
    """

    def keys(cell: Cell) -> list[tuple[str | float, ...]]:
        # Similar cells have equal keys. The first key holds all properties, and each further key holds fewer.
        key = cell.learner, cell.plant, cell.frequency, cell.strategy, cell.noise
        return [key[:count] for count in range(len(key), -1, -1)]

    spent: dict[tuple[str | float, ...], tuple[float, float]] = {}
    for cell, seconds, rounds in seen:
        steps = rounds * cell.members * length(cell)
        if seconds > 0 and steps > 0:
            for key in keys(cell):
                before, done = spent.get(key, (0.0, 0.0))
                spent[key] = before + seconds, done + steps
    if not spent or not processes:
        return None
    rest = []
    for cell, finished in still:
        seconds, steps = next(spent[key] for key in keys(cell) if key in spent)
        rest.append(seconds / steps * cell.members * length(cell) * (cell.episodes - finished))
    return max(sum(rest) / processes, max(rest, default=0.0))


ProgressForm = Literal["bar", "lines", "json", "none"]
"""Form in which the progress of a sweep is displayed."""


class TensorBoard:
    """A writer of TensorBoard event files, with one folder for each cell of a study."""

    def __init__(self, folder: Path, cells: dict[str, Cell]) -> None:
        need("tensorboardX", "--tensorboard needs the extra: pip install 'replaybench[tensorboard]'")
        from tensorboardX import SummaryWriter

        self._make: Any = SummaryWriter
        self._folder, self._cells = folder, cells
        self._writers: dict[str, Any] = {}
        check_place(folder / "events")

    def write(self, key: str, state: Round, reward: float | None) -> None:
        """Write the state of a cell over environment steps, with the mean `reward` since the last call."""
        if key not in self._writers:
            label = "".join(c if c.isalnum() or c in "-.[]()+" else "_" for c in self._cells[key].label)
            place = self._folder / f"{label}-{key[:6]}"
            check_place(place / "events")
            self._writers[key] = self._make(f"{place}")
        values = {"reward": reward, "failed": state.failed, "episode": state.done, **dict(state.latest)}
        for name, value in values.items():
            if value is not None:
                self._writers[key].add_scalar(name, value, round(state.steps))

    def finish(self, key: str) -> None:
        """Close the event file of the cell with the id `key`."""
        if key in self._writers:
            self._writers.pop(key).close()

    def close(self) -> None:
        """Close all event files."""
        for key in list(self._writers):
            self.finish(key)


PULSE_SECONDS: Final = 30.0
"""Seconds after which the journal's time stamp is set again. It shows other machines that the sweep is running."""


class Display:
    """A context manager that displays the progress of a sweep and writes the sweep's journal of events.

    Args:
        cells: All cells of the sweep, including complete cells.
        todo: Cells that are still to be computed.
        form: Form of the progress; by default a progress bar in terminals and notebooks, and plain lines elsewhere.
        tensorboard: Folder for TensorBoard event files; None for no such files.
    """

    def __init__(
        self,
        folder: RunFolder,
        study: str,
        cells: Sequence[Cell],
        todo: Sequence[Cell],
        workers: int,
        console: Console,
        form: ProgressForm | None,
        tensorboard: Path | None,
    ) -> None:
        self._cells = {cell.id: cell for cell in todo}
        firsts = {(cell.plant, cell.frequency): cell for cell in todo}
        lengths = {point: cell.steps_per_episode for point, cell in firsts.items()}
        self._history = History(cells, workers, lambda cell: lengths[cell.plant, cell.frequency])
        for key in self._history.cells.keys() - self._cells.keys():
            self._history.cells[key].finish()
        self._journal = progress.Journal()
        self._board = TensorBoard(tensorboard, self._cells) if tensorboard is not None else None
        self._file = progress.JournalFile(folder.progress)
        self._show: Callable[[Event], object] = lambda _: None
        with contextlib.ExitStack() as closing:
            closing.callback(self._file.close)
            closing.enter_context(progress.repeating(PULSE_SECONDS, self._file.touch))
            if self._board is not None:
                closing.callback(self._board.close)
            shown = form or ("none" if console.quiet else "bar" if progress.shows_bars(console) else "lines")
            history = self._history
            if shown == "bar":
                columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
                bar = closing.enter_context(Progress(*columns, console=console))
                task = bar.add_task(history.in_words(), total=history.work()[1] or None)
                self._show = lambda _: bar.update(task, completed=history.work()[0], description=history.in_words())
            elif shown == "lines":
                closing.enter_context(progress.printed_lines(console, history.in_words))
            elif shown == "json":
                self._show = lambda new: print(progress.line(new), end="", flush=True, file=console.file)
            self._write(progress.begin(study, len(cells), len(todo)))
            self._closing = closing.pop_all()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _write(self, new: Event) -> None:
        self._history.take(new)
        self._file.write(new)
        self._show(new)

    def advance(self, key: str, state: Round) -> None:
        """Report a finished training episode or iteration of the cell with the id `key`."""
        if new := self._journal.round(key, state, self._cells[key].episodes):
            self._write(new)
            if self._board is not None:
                self._board.write(key, state, new["reward"])

    def reference(self, cell: Cell, ends: Reference) -> None:
        """Report the scores of reference controllers under a cell's conditions."""
        point = {"plant": cell.plant, "frequency": cell.frequency, "noise": cell.noise}
        self._write(event("reference", **point, random=float(ends.random), dp=float(ends.dp), usable=ends.usable))

    def complete(self, key: str) -> None:
        """Report that the cell with the id `key` is complete."""
        if self._board is not None:
            self._board.finish(key)
        self._write(event("complete", cell=key))

    def end(self, status: int) -> None:
        """Report the end of the sweep with its exit status."""
        self._write(event("end", status=status))
