"""Functions that write files atomically.

A file appears complete under its name or not at all, even if the writing process is killed. Temporary files have random
names, so that links planted in a folder are not followed. No file is written through a link inside a marked folder, or
into a folder that was removed or renamed while `holding` it.
"""

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple

from replaybench.runtime.errors import UserError

MARK: Final = ".replaybench"
"""Name of the file that marks a folder as made by this package. A sweep locks this file."""
_PARTIAL: Final = ".replaybench-partial"
_OWN_PARTIAL: Final = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(_PARTIAL)}")
"""Names of temporary files of this package, which no other program uses."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY}


class Held(NamedTuple):
    """A folder into which a process writes, with device and inode of its mark when the process began."""

    folder: Path
    device: int
    inode: int


_HELD: Final[ContextVar[Held | None]] = ContextVar("folder that must stay where it is", default=None)


@contextmanager
def holding(held: Held | None) -> Iterator[None]:
    """Refuse all writing in the `with` block if the folder was removed, renamed or replaced. None refuses nothing."""
    token = _HELD.set(held)
    try:
        yield
    finally:
        _HELD.reset(token)


def check_place(path: Path) -> None:
    """Check that a file may be written to `path`. `atomic_path` does this by itself.

    Raises:
        UserError: If `path` is a link, a link inside a marked folder leads to it, or the held folder is gone.
    """
    if held := _HELD.get():
        try:
            mark = os.lstat(held.folder / MARK)
        except OSError:
            mark = None
        if mark is None or (mark.st_dev, mark.st_ino) != held[1:]:
            raise UserError(
                f"{held.folder} was removed, renamed or replaced while a sweep wrote into it; the sweep has ended. If "
                "the folder was renamed, repeat the command with its new name as --output"
            )
    link = path if path.is_symlink() else None
    for above in path.absolute().parents:
        if link is not None and (link is path or (above / MARK).is_file()):
            raise UserError(f"{link} is a link, and nothing is written through links; remove it or choose another path")
        if above.is_symlink():
            link = above


def remove_partial_files(folder: Path) -> None:
    """Remove temporary files that killed processes of this user left directly in a folder, but follow no link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if _OWN_PARTIAL.fullmatch(path.name):
            with contextlib.suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
                    path.unlink()


@contextmanager
def atomic_path(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file or folder, which is renamed to `path` at the end of the `with` block.

    The data are flushed to disk before the renaming. If the block raises an exception, the temporary file and new
    parent folders are removed, and an existing file at `path` is unchanged. With `folder`, nothing may exist at `path`.

    Raises:
        UserError: If the disk is full, the parent folder cannot be written, `path` is an existing folder, or
            `check_place` refuses it.
    """
    check_place(path)
    temporary = None
    missing = [above for above in path.parents if not above.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            temporary = Path(tempfile.mkdtemp(_PARTIAL, f".{path.name}.", path.parent))
        else:
            descriptor, name = tempfile.mkstemp(_PARTIAL, f".{path.name}.", path.parent)
            temporary = Path(name)
            os.close(descriptor)
        yield temporary
        mask = os.umask(0o077)
        os.umask(mask)
        temporary.chmod((0o777 if folder else 0o666) & ~mask)
        for inner in (*(temporary.rglob("*") if folder else ()), temporary):
            _sync(inner)
        (os.rename if folder else os.replace)(temporary, path)
        missing.clear()
        _sync(path.parent)
    except Exception as error:
        code = _system_error(error)
        if code in _NO_ROOM:
            raise UserError(f"no room to write {path}: free some disk space and run again; nothing was lost") from error
        if code in _DENIED:
            raise UserError(f"cannot write {path}: {os.strerror(code)}; choose another folder") from error
        raise
    finally:
        if temporary is not None and folder:
            shutil.rmtree(temporary, ignore_errors=True)
        elif temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        for made in missing:  # after an error, no empty folders stay
            with contextlib.suppress(OSError):
                made.rmdir()


def _system_error(error: BaseException | None) -> int:
    """Return the errno of an exception, or 0 if there is none."""
    # HDF5 and safetensors state the errno only in the message.
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        if found := re.search(r"(?:errno = |os error )(\d+)", str(error)):
            return int(found[1])
        error = error.__context__
    return 0


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def store_text(path: Path, text: str) -> bool:
    """Write a text file atomically, unless it already contains the text. Return False if it cannot be written.

    An unchanged file keeps its time stamp, on which a compiler's cache may depend.
    """
    with contextlib.suppress(OSError, UserError):
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        return True
    return False


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def new_path(path: Path, remedy: str = "remove it or choose another --output") -> Path:
    """Return the absolute form of a path to write, which does not depend on a later change of the working folder.

    Raises:
        UserError: If a file, folder or link exists at `path`, so that nothing of the user is overwritten.
    """
    if os.path.lexists(path):
        raise UserError(f"{path} exists already; {remedy}")
    return path.absolute()
