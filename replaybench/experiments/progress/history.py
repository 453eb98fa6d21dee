"""What a run folder tells of its sweep so far, from its journal and its cells' files, while it grows."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import socket
import time
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np

from replaybench.data.errors import UserError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import open_record
from replaybench.experiments.inspection.cells import cells_of
from replaybench.experiments.progress.journal import Event, JournalReader, number
from replaybench.experiments.progress.remaining import seconds_left
from replaybench.experiments.training.study import Cell

_SILENT_SECONDS: Final = 120.0
"""After so long without a sign of life, four times what is between two, a sweep on another machine has ended."""
_POINTS: Final = 200
"""Of the curve of a cell whose rounds the journal does not tell."""


@dataclass
class CellHistory:
    """What is known of a cell.

    Attributes:
        points: rounds done, and the mean reward of the rounds since the point before, in the order of `done`.
        failed: runs with a reward that is not finite.
        first: when the first line of the present sweep was written, and how many rounds were done then.
        last: when its last line was written.
    """

    cell: Cell
    points: list[tuple[int, float]] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    complete: bool = False
    first: tuple[float, int] | None = None
    last: float = 0.0


class History:
    """The state of a run.

    Attributes:
        cells: by id, in the study's order.
        references: by plant, rate and noise, the rewards where μ_r is 0 and 1, where both are known.
        state: "running", "finished", "interrupted", or "not begun".
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._reader = folder, JournalReader(folder.progress)
        self.cells = {cell.id: CellHistory(cell) for cell in cells_of(folder)}
        self.references: dict[tuple[str, float, float], tuple[float, float]] = {}
        self._begin: Event | None = None
        self._end: Event | None = None
        self._at_once = 0  # the most cells that the present sweep was seen to run beside each other
        for known in self.cells.values():
            if (folder.cell(known.cell.id) / "scores.h5").is_file():
                self._finish(known)
        self.update()
        for known in self.cells.values():
            if known.complete and not known.points:
                self._read_scores(known)

    def update(self) -> bool:
        """Take in what is new; return whether anything is."""
        heard = False
        for told in self._reader.news():
            heard = True
            self._take(told)
        return heard

    def _take(self, told: Event) -> None:
        kind = told["event"]
        if kind == "begin":
            self._begin, self._end = told, None
            for known in self.cells.values():
                known.first = None
            self._at_once = 0
        elif kind == "end":
            self._end = told
        elif kind == "reference":
            self._reference(told)
        known_cell = self.cells.get(str(told.get("cell")))
        if known_cell is None:
            return
        if kind == "complete":
            self._finish(known_cell)
        elif kind == "round":
            self._round(known_cell, told)

    def _round(self, known: CellHistory, told: Event) -> None:
        done, at = int(number(told, "done", 0)), number(told, "at", 0.0)
        known.first = known.first or (at, done)
        known.points = [point for point in known.points if point[0] < done]  # as a resumed cell does rounds again
        if math.isfinite(reward := number(told, "reward")):
            known.points.append((done, reward))
        known.done, known.failed, known.last = done, int(number(told, "failed", 0)), at
        under_way = sum(each.first is not None and not each.complete for each in self.cells.values())
        self._at_once = max(self._at_once, under_way)

    def _reference(self, told: Event) -> None:
        random, dp = number(told, "random"), number(told, "dp")
        if told.get("usable") is True and dp != random:
            point = str(told.get("plant")), number(told, "frequency"), number(told, "noise")
            self.references[point] = random, dp

    def _finish(self, known: CellHistory) -> None:
        known.complete, known.done = True, known.cell.episodes

    def _read_scores(self, known: CellHistory) -> None:
        """Take the curve of a complete cell from its own file."""
        with contextlib.suppress(UserError):  # damage is told of by `inspect`
            with open_record(self._folder.cell(known.cell.id) / "scores.h5", "scores") as record:
                rewards = record.read("reward")
            sound = np.isfinite(rewards).all(axis=1)
            known.failed = int((~sound).sum())
            if sound.any():
                curve = rewards[sound].mean(axis=0)
                ends = np.unique(np.linspace(0, len(curve), min(_POINTS, len(curve)) + 1).astype(int))
                parts = itertools.pairwise(ends)
                known.points = [(int(b), float(curve[a:b].mean())) for a, b in parts]

    @property
    def study(self) -> str:
        """The study's name."""
        return str((self._begin or {}).get("study", self._folder.path.name))

    @property
    def state(self) -> str:
        """What the sweep is doing."""
        if all(known.complete for known in self.cells.values()):
            return "finished" if self._end or not self._alive() else "running"
        if self._begin is None:
            return "interrupted" if any(known.done for known in self.cells.values()) else "not begun"
        return "running" if self._end is None and self._alive() else "interrupted"

    def _alive(self) -> bool:
        """Tell whether the process that runs the sweep is there, as far as can be seen from here."""
        if self._begin is None:
            return False
        if self._begin.get("host") != socket.gethostname():
            try:
                return time.time() - self._folder.progress.stat().st_mtime < _SILENT_SECONDS
            except OSError:
                return False
        pid: Any = self._begin.get("pid")
        if not isinstance(pid, int) or not 0 < pid < 2**31:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    @property
    def seconds(self) -> float:
        """How long the last sweep has run [s], or ran."""
        if self._begin is None:
            return 0.0
        latest = max((known.last for known in self.cells.values()), default=0.0)
        now = number(self._end, "at", latest) if self._end else time.time() if self.state == "running" else latest
        return max(0.0, now - number(self._begin, "at", now))

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes [s], at the pace of the cells that are most alike.

        Steps count as in proportion to the rate: a plant is not made, since its code may be a stranger's.
        """
        seen = [
            (known.cell, known.last - known.first[0], known.done - known.first[1])
            for known in self.cells.values()
            if known.first is not None and known.last > known.first[0]
        ]
        still = [(known.cell, known.done) for known in self.cells.values() if not known.complete]
        return seconds_left(seen, still, self._at_once, attrgetter("frequency"))
