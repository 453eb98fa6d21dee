"""Progress of a running sweep: the journal in the run folder always, other forms as the user asks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from replaybench.baselines.references import Reference
from replaybench.data.formats.run_folder import RunFolder
from replaybench.experiments.progress.history import History
from replaybench.experiments.progress.journal import Event, Journal, JournalFile, begin, event, line
from replaybench.experiments.progress.listeners import ProgressForm, TensorBoard
from replaybench.experiments.progress.plain_lines import LINE_SECONDS, printed_lines, repeating
from replaybench.experiments.progress.round import Round
from replaybench.experiments.training.study import Cell

PULSE_SECONDS: Final = 30.0
"""Interval of touches of the journal, a sign of life for other machines: cells on a cluster are silent for hours."""


class Display:
    """Shows the progress of a sweep.

    Args:
        study: the study's name.
        cells: all cells of the study.
        todo: those that are still to run.
        workers: how many run at once.
        form: how progress is shown; if None, a live line in a terminal and plain lines elsewhere.
        tensorboard: folder for TensorBoard event files; none if None.
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
        self._journal = Journal()
        self._board = TensorBoard(tensorboard, self._cells) if tensorboard is not None else None
        self._file = JournalFile(folder.progress)
        self._show: Callable[[Event], object] = lambda _: None
        with contextlib.ExitStack() as closing:
            closing.callback(self._file.close)
            closing.enter_context(repeating(PULSE_SECONDS, self._file.touch))
            if self._board is not None:
                closing.callback(self._board.close)
            self._start(console, form, closing)
            self._write(begin(study, len(cells), len(todo)))
            self._closing = closing.pop_all()

    def _start(self, console: Console, form: ProgressForm | None, closing: contextlib.ExitStack) -> None:
        shown = form or ("none" if console.quiet else "bar" if console.is_terminal else "lines")
        if shown == "bar":
            columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            bar = closing.enter_context(Progress(*columns, console=console))
            task = bar.add_task(self._history.in_words(), total=self._history.work()[1] or None)
            self._show = lambda _: bar.update(
                task, completed=self._history.work()[0], description=self._history.in_words()
            )
        elif shown == "lines":
            closing.enter_context(printed_lines(console, self._history.in_words, LINE_SECONDS))
        elif shown == "json":
            self._show = lambda new: print(line(new), end="", flush=True)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _write(self, new: Event) -> None:
        self._history.take(new)
        self._file.write(new)
        self._show(new)

    def advance(self, key: str, state: Round) -> None:
        """Report a cell's round."""
        if new := self._journal.round(key, state, self._cells[key].episodes):
            self._write(new)
            if self._board is not None:
                self._board.write(key, state, new["reward"])

    def reference(self, cell: Cell, found: Reference) -> None:
        """Report the references of a cell's plant, rate and noise."""
        point = {"plant": cell.plant, "frequency": cell.frequency, "noise": cell.noise}
        self._write(event("reference", **point, random=float(found.random), dp=float(found.dp), usable=found.usable))

    def complete(self, key: str) -> None:
        """Report that a cell is complete."""
        if self._board is not None:
            self._board.finish(key)
        self._write(event("complete", cell=key))

    def end(self, status: int) -> None:
        """Report the end of the sweep and its exit status."""
        self._write(event("end", status=status))
