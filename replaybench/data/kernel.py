"""`kernel`: Numba compilation whose cache survives the process and can never be stale.

Numba's own on-disk cache looks only at the file of the cached function, so a kernel goes on using an old version
of a kernel that it calls from another file. Here the cache folder is named by the content of every file of the
package that holds kernels: a second process compiles nothing, an edit anywhere compiles afresh.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config

from replaybench.data.cache import cache_dir

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def kernel_digest() -> str:
    """Return a hash over all source files of the package that define kernels, and Numba's version."""
    package = Path(__file__).parent.parent
    content = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if any(mark in source for mark in (b"@kernel", b"@intrinsic", b"@overload")):
            content.update(source)
    return content.hexdigest()[:16]


def kernel(function: F) -> F:
    """Compile `function` in nopython mode, division by zero as in NumPy, cached by `kernel_digest`.

    Where the cache folder cannot be written, nothing is cached: Numba's own choice of folder could be stale.
    """
    folder = cache_dir() / "numba" / kernel_digest()
    settings: Any = config
    theirs = settings.CACHE_DIR
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return cast(F, numba.njit(error_model="numpy")(function))
    settings.CACHE_DIR = str(folder)
    try:
        compiled: Any = numba.njit(cache=True, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = theirs
    return cast(F, compiled)
