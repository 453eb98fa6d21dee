"""A sign of life beside the journal, for those who look on from another machine.

Cells on a cluster tell nothing of themselves until they are complete, which takes hours, and the process that runs the
sweep cannot be seen from elsewhere. So that process touches the journal, at the cost of a system call each time.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from replaybench.experiments.progress.journal import JournalFile

PULSE_SECONDS: Final = 30.0


class Pulse:
    """Touches a journal every `PULSE_SECONDS`, from a thread of its own."""

    def __init__(self, journal: JournalFile) -> None:
        self._journal = journal
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(PULSE_SECONDS):
            with contextlib.suppress(OSError):  # a file server that is away for a moment ends no sweep
                self._journal.touch()

    def close(self) -> None:
        """Touch it no more."""
        self._ended.set()
        self._thread.join()
