"""Functions that write files atomically.

A file appears complete under its name or not at all, even if the writing process is killed. Temporary files have random
names, so that links planted in a folder are not followed.
"""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replaybench.runtime.errors import UserError

_PARTIAL = ".partial"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY}


@contextmanager
def atomic_path(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file or folder, which is renamed to `path` at the end of the `with` block.

    The data are flushed to disk before the renaming. If the block raises an exception, the temporary file is removed,
    and an existing file at `path` is unchanged. With `folder`, nothing may exist at `path`.

    Raises:
        UserError: If the disk is full, the parent folder cannot be written, or `path` is an existing folder.
    """
    temporary = None
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


def refuse_existing(path: Path, remedy: str = "remove it or choose another --output") -> None:
    """Raise `UserError` if a file or folder exists at `path`, so that no earlier result is overwritten."""
    if path.exists():
        raise UserError(f"{path} exists already; {remedy}")
