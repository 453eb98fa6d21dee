"""Where generated files that can always be made again are kept, and how one is written there.

Kernels and dynamic-programming solutions: deleting the folder costs only the time to compute them again, so a folder
that cannot be written is never an error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_dir() -> Path:
    """Return `$REPLAYBENCH_CACHE`, else `$XDG_CACHE_HOME/replaybench`, else `~/.cache/replaybench`.

    The folder need not exist; the environment is read at every call.
    """
    if own := os.environ.get("REPLAYBENCH_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "replaybench"
    return Path(os.path.expanduser("~")) / ".cache" / "replaybench"


def why_not_kept() -> str:
    """Return why nothing can be kept in the folder, and the remedy, for people; empty if it can be written."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return (
            f"the cache folder {folder} cannot be written ({error.strerror}): kernels are compiled and references "
            "solved in every process again; set REPLAYBENCH_CACHE to another folder"
        )


def store_text(path: Path, text: str) -> bool:
    """Write `text` to `path` atomically unless it holds that text already.

    Returns:
        True when the file now holds `text`, False when the folder cannot be written.
    """
    temporary = None
    try:
        # Leaving an equal file alone keeps its time stamp, on which compilers' own caches may depend.
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True
