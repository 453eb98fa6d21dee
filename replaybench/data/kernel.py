"""`kernel`: Numba compilation whose cache survives the process, cannot be stale, and takes damage for absence."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba.core import config

from replaybench.data.cache import cache_dir
from replaybench.data.compilation.digest import kernel_digest
from replaybench.data.compilation.linked import LinkedDispatcher
from replaybench.data.compilation.stored import BesideSource, InCacheDir, Stored

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` in nopython mode, division by zero as in NumPy, cached by `kernel_digest`.

    Where the cache folder cannot be written, nothing is cached: Numba's own choice of folder could be stale.
    """
    settings: Any = config
    theirs = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_dir() / "numba" / kernel_digest(Path(inspect.getfile(function))))
    compiled = LinkedDispatcher(function, targetoptions={"error_model": "numpy"})
    with contextlib.suppress(RuntimeError):
        compiled._cache = Stored(function, InCacheDir)
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
        compiled = LinkedDispatcher(function, targetoptions=options)
        compiled._cache = Stored(function, BesideSource)
        return cast(F, compiled)

    return decorate
