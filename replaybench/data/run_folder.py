"""Folders that this package writes into: paths in the folder of one sweep, and the marks that keep users' files safe.

Every command that writes several files calls `claim` before it computes. A folder is claimed only if it is new, empty,
or the package's own, which its mark shows.
"""

import fcntl
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from replaybench.data.documents import read_json
from replaybench.runtime.atomic import MARK, Held, holding, remove_partial_files
from replaybench.runtime.errors import UserError

_MOST_RUNS: Final = 4
"""Maximum number of run folders that an error lists."""
_IDENTITY: Final = b"replaybench made this folder. It replaces files here only if it wrote them itself.\n"
_PROVENANCE: Final = {"study", "complete", "written", "cells"}
"""Keys of `provenance.json`. A copied run folder without its hidden files is recognised by them."""
AUTHOR: Final = "written by replaybench"
"""Text that each figure and each report contains."""


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
        """Remove the temporary files that killed processes left where a sweep writes.

        The caller must hold the lock of the folder.
        """
        cells = self.path / "cells"
        inside = [] if cells.is_symlink() or not cells.is_dir() else list(cells.iterdir())
        for folder in (self.path, self.path / "solved", self.figures, self.figures / "paper", *inside):
            remove_partial_files(folder)

    @contextmanager
    def locked(self) -> Iterator[Held]:
        """Claim the folder, and lock it against other sweeps in the `with` block.

        The operating system releases the lock if this process ends for any reason. In the block, nothing is written if
        the folder was removed or renamed.

        Raises:
            UserError: If `claim` refuses the folder, or another sweep holds the lock.
        """
        claim(self.path)
        # A link is not followed: the folder may come from an unknown source.
        lock = os.open(self.path / MARK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another sweep is working in {self.path}; wait for it or choose --output") from None
            mark = os.fstat(lock)
            held = Held(self.path.absolute(), mark.st_dev, mark.st_ino)
            with holding(held):
                yield held
        finally:
            os.close(lock)


def claim(path: Path) -> Path:
    """Create a folder for output with its mark, or accept an empty or own one, and return its absolute path.

    The absolute path stays right if code of the user changes the working folder.

    Raises:
        UserError: If the folder holds files and is not the package's own, or cannot be written.
    """
    folder = path.absolute()
    made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        if folder.is_dir() and not is_own(folder) and any(folder.iterdir()):
            raise UserError(
                f"{path} holds files and was not made by replaybench; choose another --output, such as {_free(path)}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(folder / MARK):
            _MARKED.append((folder, made))
        # A link is not followed, and nothing is truncated: the folder may come from an unknown source.
        mark = os.open(folder / MARK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            if os.fstat(mark).st_size < len(_IDENTITY):
                os.write(mark, _IDENTITY)
        finally:
            os.close(mark)
    except OSError as error:
        raise UserError(f"cannot write into {path}: {error.strerror}; choose another --output") from error
    return folder


_MARKED: Final[list[tuple[Path, list[Path]]]] = []
"""Folders that `claim` marked in this process, each with the new folders among it and its parents."""


@contextmanager
def unused_removed() -> Iterator[None]:
    """After an error in the `with` block, remove marks from folders that hold nothing else, and new folders."""
    begin = len(_MARKED)
    try:
        yield
    except BaseException:
        for folder, made in reversed(_MARKED[begin:]):
            with suppress(OSError):
                if [path.name for path in folder.iterdir()] == [MARK]:
                    (folder / MARK).unlink()
                for each in made:
                    each.rmdir()
        raise


def is_own(folder: Path) -> bool:
    """Return whether this package made a folder, which the mark or, without a mark, `provenance.json` shows."""
    mark = folder / MARK
    if os.path.lexists(mark):  # a killed process may have left the mark unfinished
        return stat.S_ISREG(mark.lstat().st_mode) and _IDENTITY.startswith(mark.read_bytes())
    with suppress(UserError):
        return read_json(folder / "provenance.json").keys() >= _PROVENANCE
    return False


def refuse_foreign(path: Path) -> None:
    """Raise `UserError` if something exists at `path` that is no figure or report of this package."""
    if os.path.lexists(path) and not (stat.S_ISREG(path.lstat().st_mode) and AUTHOR.encode() in path.read_bytes()):
        raise UserError(f"{path} was not written by replaybench; move it away")


def _free(path: Path) -> Path:
    """Return the path of a folder that does not exist: next to `path`, or inside if `path` is the working folder."""
    start = path / "run" if path.resolve() == Path.cwd() else path
    numbered = (start.with_name(f"{start.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([start], numbered) if not os.path.lexists(each))


def runs_within(path: Path) -> str:
    """Return an error message with the run folders inside a folder, such as those that `replaybench advise` writes.

    The message is empty if the folder is itself a run folder or contains none.
    """
    runs = [] if (path / "study.toml").is_file() else sorted(each.parent for each in path.glob("*/study.toml"))
    shown = f"{', '.join(map(str, runs[:_MOST_RUNS]))}{' …' if len(runs) > _MOST_RUNS else ''}"
    return f"{path} holds runs and is none itself; name one of them: {shown}" if runs else ""
