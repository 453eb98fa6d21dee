"""`kernel`: Numba compilation whose cache survives the process, cannot be stale, and takes damage for absence.

Numba's own on-disk cache looks only at the file of the cached function, so a kernel goes on using an old version
of a kernel, a code generator or a constant that it takes from another file. Here the cache folder is named by the
content of every file of the package that the kernel's own can reach by imports: a second process compiles nothing, an
edit compiles afresh what it can have changed, and an edit elsewhere leaves the rest as it is.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import llvmlite
import numba
import numpy as np
from numba.core import caching, config

from replaybench.data.cache import cache_dir

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE: Final = Path(__file__).parent.parent
_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+(\S+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_SETTINGS: Final = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "ENABLE_AVX")
"""Numba's settings by which it compiles otherwise and which its cache does not tell apart; processors it does."""


def kernel(function: F) -> F:
    """Compile `function` in nopython mode, division by zero as in NumPy, cached by `kernel_digest`.

    Where the cache folder cannot be written, nothing is cached: Numba's own choice of folder could be stale.
    """
    settings: Any = config
    theirs = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_dir() / "numba" / kernel_digest(Path(inspect.getfile(function))))
    compiled: Any = numba.njit(error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):
        compiled._cache = _Cache(function, _InCacheDir)
    settings.CACHE_DIR = theirs
    return cast(F, compiled)


def cached_beside_source(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function of a generated file, cached beside it: its name tells its content.

    Args:
        options: Numba's.

    Raises:
        RuntimeError: by the decorator, if the folder cannot be written.
    """

    def decorate(function: F) -> F:
        compiled: Any = numba.njit(**options)(function)
        compiled._cache = _Cache(function, _BesideSource)
        return cast(F, compiled)

    return decorate


def compiler() -> str:
    """Return what compiles: versions, and those of Numba's settings that its cache does not tell apart."""
    return repr([numba.__version__, llvmlite.__version__, np.__version__, *(getattr(config, s) for s in _SETTINGS)])


@functools.cache
def kernel_digest(file: Path) -> str:
    """Return a hash over a source file, all that it reaches by imports of the package, and the compiler."""
    content = hashlib.sha256(compiler().encode())
    for path in sorted(_reached(file.resolve())):
        content.update(_source(path).encode())
    return content.hexdigest()[:16]


def _reached(file: Path) -> set[Path]:
    found, left = set(), [file]
    while left:
        if (path := left.pop()) not in found:
            found.add(path)
            left += _imports(path)
    return found


@functools.cache
def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Return the package's files, and a user's own, that a file names in imports, also late or for types only."""
    names = set()
    for base, imported in _IMPORT.findall(_source(path)):
        words = re.findall(r"[\w.]+", imported)
        names |= {base, *(f"{base}.{word}" for word in words)} if base else set(words)
    return tuple(file for name in names if (file := _file_of(name) or _neighbour(path, name)) is not None)


@functools.cache
def _file_of(module: str) -> Path | None:
    top, *parts = module.split(".")
    if top != _PACKAGE.name:
        return None
    place = _PACKAGE.joinpath(*parts)
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _neighbour(path: Path, module: str) -> Path | None:
    """Return the module that lies beside a user's file, if there is one of that name."""
    file = path.parent.joinpath(*module.split(".")).with_suffix(".py") if module.strip(".") else path
    return file if _PACKAGE not in path.parents and file != path and file.is_file() else None


class _InCacheDir(caching.CompileResultCacheImpl):
    _locator_classes = [caching.UserProvidedCacheLocator]  # noqa: RUF012 (as Numba declares it)


class _BesideSource(caching.CompileResultCacheImpl):
    _locator_classes = [caching.InTreeCacheLocator]  # noqa: RUF012


class _Cache(caching.FunctionCache):
    """Numba's cache of a function in one place or nowhere, which costs nothing but time if it fails."""

    def __init__(self, function: Callable[..., Any], place: type[caching.CompileResultCacheImpl]) -> None:
        self._impl_class = place
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):  # the disk is full, or the folder gone
            super().save_overload(sig, data)


class _SealedFiles(caching.IndexDataCacheFile):
    """Numba's index and data files with a checksum at their ends; what is damaged is a miss, and is written anew."""

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if _whole(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _whole(self._data_path(name)):
            raise OSError("damaged")  # as a file that is not there
        return super()._load_data(name)


def _whole(path: str) -> bool:
    size = hashlib.sha256().digest_size
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-size]).digest() == content[-size:]
