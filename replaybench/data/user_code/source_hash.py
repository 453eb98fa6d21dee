"""What other people's code is made of: versions of packages, and the content of files that belong to none.

A result is stale once the code behind it has changed. This looks at whole modules: those that define a class or
function, and what they import.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from replaybench.data.user_code.neighbours import named_by

_NAMED_ELSEWHERE: Final = frozenset({"replaybench", "numpy", "typing_extensions", *sys.stdlib_module_names})
"""Part of the environment, like the interpreter, or accounted for by the numerics version."""


def made_of(*origins: Callable[..., Any]) -> str:
    """Describe the modules that define functions, or classes with their bases, in an order that is always the same.

    A module of an installed package counts as that package's version, and so do the packages that it imports. The
    content of a file that belongs to no package counts itself, and so does whatever it imports in turn: what its names
    come from, and what its import statements name, as a plain number does not tell where it comes from.
    """
    parts: set[str] = set()
    waiting = [sys.modules[each.__module__] for origin in origins for each in _bases(origin)]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module.__name__ in seen or _top(module) in _NAMED_ELSEWHERE:
            continue
        seen.add(module.__name__)
        parts.add(_part(module))
        parts |= _named(module)
        for other in _imported(module):
            if _version(_top(other)):
                parts.add(_part(other))
            else:
                waiting.append(other)
    return "; ".join(sorted(part for part in parts if part))


def of_a_package(name: str) -> bool:
    """Return whether a top-level module's name is of an installed package, or of Python itself."""
    return name in _NAMED_ELSEWHERE or bool(_version(name))


def in_no_file(origin: Callable[..., Any]) -> list[Any]:
    """Return which of a class and its bases, or whether a function, stand in no file, as in a notebook's cells.

    What they are made of is not among what `made_of` describes.
    """
    modules = [(each, sys.modules[each.__module__]) for each in _bases(origin)]
    named = [(each, module) for each, module in modules if _top(module) not in _NAMED_ELSEWHERE]
    return [each for each, module in named if not _version(_top(module)) and _file(module) is None]


def _bases(origin: Callable[..., Any]) -> tuple[Any, ...]:
    return getattr(origin, "__mro__", (origin,))


def _imported(module: ModuleType) -> list[ModuleType]:
    """Return the modules that a module's global names come from, the standard library left out."""
    found = []
    for value in list(vars(module).values()):
        other = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
        if other is not None and _top(other) not in _NAMED_ELSEWHERE:
            found.append(other)
    return found


def _part(module: ModuleType) -> str:
    package, path = _version(_top(module)), _file(module)
    return package if package or path is None else _content(path)


def _named(module: ModuleType) -> set[str]:
    """Describe what the import statements of a user's module name."""
    path = _file(module)
    if path is None or path.suffix != ".py" or _version(_top(module)):
        return set()
    files, others = named_by(path, of_a_package, module.__package__ or "")
    return {*map(_content, files.values()), *(_version(name) for name in others - _NAMED_ELSEWHERE)}


def _content(path: Path) -> str:
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _file(module: ModuleType) -> Path | None:
    """Return a module's file; None where it has none, or one in name only, such as `<stdin>`."""
    file = getattr(module, "__file__", None)
    return Path(file) if file is not None and Path(file).is_file() else None


def _top(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


@cache
def _version(package: str) -> str:
    """Return the installed version of what provides an importable package; empty if nothing installed does."""
    for name in (package, *_distributions().get(package, ())):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return ""


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: sorted(set(found)) for name, found in packages_distributions().items()}
