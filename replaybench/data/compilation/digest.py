"""What machine code is made of: the content of files, and what compiles them.

Numba's own on-disk cache checks only the file of the cached function; a kernel would go on using old versions of what
it takes from other files. Here the cache folder is named by the content of every file that its imports can reach.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from typing import Final

import llvmlite
import numba
import numpy as np
from numba.core import config

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+(\S+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_SETTINGS: Final = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "ENABLE_AVX")
"""Numba's settings by which it compiles otherwise and which its cache does not tell apart; processors it does."""


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
