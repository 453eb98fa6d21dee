"""Machine code on disk: each kernel is compiled by one process while others wait, and damage is taken for absence.

Without the lock, processes that start together would each compile what all of them need. It is a file's lock, which
ends with its holder in whatever way that ends, and nobody waits for it without end: what cannot be had is compiled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from numba.core import caching, config

from replaybench.data.compilation.linked import restored

PATIENCE: Final = 180.0
"""Seconds that a process waits for another's compilation before it compiles itself."""
_TICK: Final = 0.02
_PACKAGE: Final = Path(__file__).resolve().parents[2]


class NotCompiledError(Exception):
    """A kernel is not stored here, where nothing may be compiled."""


_may_compile = True


@contextlib.contextmanager
def stored_kernels_only() -> Iterator[None]:
    """Compile nothing during the block: a kernel that is not stored raises `NotCompiledError`."""
    global _may_compile
    before, _may_compile = _may_compile, False
    try:
        yield
    finally:
        _may_compile = before


class _Results(caching.CompileResultCacheImpl):
    """What Numba compiles, and functions that are for other kernels to call."""

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        return restored(target_context, payload) or super().rebuild(target_context, payload)


class _ByContent(caching.UserProvidedCacheLocator):
    """A place that does not tell where the package lies: an installed one and a checkout of the same files share it."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        """Take the folder's name in the package; Numba's own for a file of the user's, which may lie anywhere.

        The examples lie in the package and are loaded as a user's files, by modules that are named by their paths.
        """
        super().__init__(function, file)
        folder = Path(file).resolve().parent
        if folder.is_relative_to(_PACKAGE) and function.__module__.startswith(f"{_PACKAGE.name}."):
            place = ".".join((_PACKAGE.name, *folder.relative_to(_PACKAGE).parts))
            settings: Any = config
            self._cache_path = os.path.join(settings.CACHE_DIR, place)

    def get_source_stamp(self) -> str:
        """Return the same of all files: the folder's name tells their content, and Numba's stamp may tell time."""
        return ""


class InCacheDir(_Results):
    """The place of a kernel of the package, in the folder that Numba's settings name."""

    _locator_classes = [_ByContent]  # noqa: RUF012 (as Numba declares it)


class BesideSource(_Results):
    """The place of a kernel of a generated file."""

    _locator_classes = [caching.InTreeCacheLocator]  # noqa: RUF012


class Stored(caching.FunctionCache):
    """Numba's cache of a function in one place or nowhere, which costs nothing but time if it fails.

    Attributes:
        linking: whether what is sought is only for other kernels to call.

    Raises:
        RuntimeError: there is no such place.
    """

    def __init__(self, function: Callable[..., Any], place: type[caching.CompileResultCacheImpl]) -> None:
        self._impl_class = place
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, stamp)
        self._lock_path = os.path.join(self._cache_path, f"{self._impl.filename_base}.lock")
        self._held = contextlib.ExitStack()
        self._depth = 0
        self.linking = False

    @contextlib.contextmanager
    def sole_compiler(self) -> Iterator[None]:
        """Let go, at the end of a compilation, of the lock that it has taken if there was anything to compile."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._held.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is stored, be it that another process is only about to store it; None if there is nothing."""
        found = super().load_overload(sig, target_context)
        if found is None and not _may_compile:
            raise NotCompiledError
        if found is None and self._depth == 1:  # deeper: it has the lock already
            self._held.enter_context(_locked(self._lock_path))
            found = super().load_overload(sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store what was compiled, if that can be done."""
        with contextlib.suppress(OSError):  # the disk is full, or the folder gone
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), self.linking)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a file's lock, if it can be had in time."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the folder cannot be written, or knows no locks
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "wb"))
            end = time.monotonic() + PATIENCE
            while not _try_lock(file.fileno()) and time.monotonic() < end:
                time.sleep(_TICK)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _SealedFiles(caching.IndexDataCacheFile):
    """Numba's index and data files with a checksum at their ends; what is damaged is a miss, and is written anew.

    So is what names a class that is no longer there: files are unpickled before their stamp is compared, and another
    version of this package may have written them.
    """

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())

    def _load_index(self) -> dict[Any, str]:
        if _whole(self._index_path):
            with contextlib.suppress(AttributeError, ImportError):
                index: dict[Any, str] = super()._load_index()
                return index
        return {}

    def _load_data(self, name: str) -> Any:
        if _whole(self._data_path(name)):
            with contextlib.suppress(AttributeError, ImportError):
                return super()._load_data(name)
        raise OSError("damaged, or of another version")  # as a file that is not there


def _whole(path: str) -> bool:
    size = hashlib.sha256().digest_size
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-size]).digest() == content[-size:]
