"""Paths in the folder of one sweep (study, cells, results, figures), and a lock against a second sweep."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from replaybench.runtime.errors import UserError

_MOST_RUNS: Final = 4
"""Maximum number of run folders that an error lists."""


class RunFolder:
    """The paths of the files in the folder of one sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study = path / "study.toml"
        self.provenance = path / "provenance.json"
        self.results = path / "results.nc"
        self.progress = path / "progress.jsonl"
        self.figures = path / "figures"

    def cell(self, cell_id: str) -> Path:
        """Return the folder of one cell, which is one combination of settings in the sweep."""
        return self.path / "cells" / cell_id

    def finished(self, cell_id: str) -> bool:
        """Return whether a cell is finished. The file of its scores, which is written last, then exists."""
        return (self.cell(cell_id) / "scores.h5").is_file()

    def remove_partial_files(self) -> None:
        """Remove the temporary files that killed processes left in the folder.

        The caller must hold the lock of the folder.
        """
        for path in self.path.glob("**/.*.partial"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other sweeps in the `with` block.

        The operating system releases the lock if this process ends for any reason.

        Raises:
            UserError: If another sweep holds the lock, or the path cannot be used as a folder.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # A link is not followed, and nothing is truncated: the folder may come from an unknown source.
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            linked = (self.path / ".lock").is_symlink()
            reason = "its .lock is a link; remove that" if linked else error.strerror
            raise UserError(f"cannot use {self.path} as a run folder: {reason}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another sweep is working in {self.path}; wait for it or choose --output") from None
            yield
        finally:
            os.close(lock)


def runs_within(path: Path) -> str:
    """Return an error message with the run folders inside a folder, such as those that `replaybench advise` writes.

    The message is empty if the folder is itself a run folder or contains none.
    """
    runs = [] if (path / "study.toml").is_file() else sorted(each.parent for each in path.glob("*/study.toml"))
    shown = f"{', '.join(map(str, runs[:_MOST_RUNS]))}{' …' if len(runs) > _MOST_RUNS else ''}"
    return f"{path} holds runs and is none itself; name one of them: {shown}" if runs else ""
