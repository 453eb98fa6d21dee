"""From what workers tell to those who listen: the journal in the run folder always, others as the user asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from replaybench.baselines.references import Reference
from replaybench.data.formats.run_folder import RunFolder
from replaybench.experiments.progress.journal import Event, Journal, JournalFile, begin, event
from replaybench.experiments.progress.listeners import Bar, JsonLines, Lines, Listener, ProgressForm, TensorBoard
from replaybench.experiments.progress.pulse import Pulse
from replaybench.experiments.progress.round import Round
from replaybench.experiments.progress.tally import Tally
from replaybench.experiments.training.study import Cell


class Display:
    """What a sweep tells of itself while it runs.

    Args:
        study: the study's name.
        cells: all cells of the study.
        todo: those that are still to run.
        workers: how many run at once.
        form: how progress is shown; a live line in a terminal and plain lines elsewhere if None.
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
        self._tally, self._journal = Tally(cells, todo, workers), Journal()
        self._listeners: list[Listener] = []
        if tensorboard is not None:
            self._listeners.append(TensorBoard(tensorboard, self._cells))
        self._file = JournalFile(folder.progress)
        shown = form or ("none" if console.quiet else "bar" if console.is_terminal else "lines")
        if shown == "bar":
            self._listeners.append(Bar(console, self._tally))
        elif shown == "lines":
            self._listeners.append(Lines(console, self._tally))
        elif shown == "json":
            self._listeners.append(JsonLines())
        self._tell(begin(study, len(cells), len(todo)))
        self._pulse = Pulse(self._file)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()
        self._pulse.close()
        self._file.close()

    def _tell(self, told: Event) -> None:
        self._file.write(told)
        for listener in self._listeners:
            listener.hear(told, self._tally)

    def advance(self, key: str, told: Round) -> None:
        """Pass a cell's round on."""
        self._tally.note(key, told)
        if heard := self._journal.round(key, told, self._cells[key].episodes):
            self._tell(heard)

    def reference(self, cell: Cell, found: Reference) -> None:
        """Pass on what the scores of cells like this one are measured against."""
        point = {"plant": cell.plant, "frequency": cell.frequency, "noise": cell.noise}
        self._tell(event("reference", **point, random=float(found.random), dp=float(found.dp), usable=found.usable))

    def complete(self, key: str) -> None:
        """Tell that a cell is complete, whether or not it ever told of itself."""
        if key in self._cells:  # and not one that shares another's runs
            self._tally.finish(key)
        self._tell(event("complete", cell=key))

    def end(self, status: int) -> None:
        """Tell that the sweep has ended, and how."""
        self._tell(event("end", status=status))
