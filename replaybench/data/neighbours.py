"""Modules beside users' files: `import helper` takes the helper of the file's own folder, whoever loaded another.

Python keeps one module per name. Two folders may each have a `helper.py`, though, and once edited it is another one: so
each user's file keeps what its own imports found.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

_FOUND: Final[dict[str, dict[str, ModuleType]]] = {}
"""By the name of a user's module: the modules of its folder, by the names under which it may import them."""
_CONTENT: Final[dict[ModuleType, str]] = {}
"""Digests of neighbours' files, as they were when loaded."""


@contextmanager
def importing(user: str, folder: Path, installed: Callable[[str], bool]) -> Iterator[None]:
    """Let what the module `user` imports meanwhile come from its folder first, as when its file is run.

    Args:
        user: the name of the module.
        folder: the absolute path of its folder.
        installed: whether a top-level name is of a package, or of Python itself; those are left alone.
    """

    def here() -> dict[str, ModuleType]:
        tops = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
        mine = {top for top in tops if (folder / f"{top}.py").is_file() or (folder / top).is_dir()}
        mine = {top for top in mine if not installed(top)}
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in mine}

    before = here()
    others = {name: module for name, module in before.items() if not _lies_in(module, folder)}
    for name in before if any(map(_edited, before.values())) else others:
        del sys.modules[name]
    sys.path.insert(0, os.fspath(folder))
    try:
        yield
    finally:
        sys.path.remove(os.fspath(folder))
        _FOUND[user] = {name: module for name, module in here().items() if _lies_in(module, folder)}
        _CONTENT.update((each, _digest(each)) for each in _FOUND[user].values() if each not in _CONTENT)
        sys.modules.update(others)


def outdated(user: str) -> bool:
    """Return whether a file beside a user's, which it may import, has been edited since."""
    return any(map(_edited, _FOUND.get(user, {}).values()))


def module_seen(name: str, user: str) -> ModuleType | None:
    """Return what a user's module has, or would have, under the name of a module; None if nothing is loaded so."""
    return _FOUND.get(user, {}).get(name) or sys.modules.get(name)


def names_imported(module: ModuleType, source: bytes) -> set[str]:
    """Return the modules that import statements of a module's source name, as far as they always run.

    Of a plain number from another file nothing else tells where it comes from. What stands below an `if` or in a
    function may or may not have been loaded by someone else.
    """
    names: set[str] = set()
    waiting: list[ast.stmt] = list(ast.parse(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Try | ast.With | ast.ClassDef):
            waiting += node.body
        elif isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            of = "." * node.level + (node.module or "")
            of = importlib.util.resolve_name(of, module.__package__ or None) if node.level else of
            names.update([of, *(f"{of}.{each.name}" for each in node.names)])
    return names


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(place and Path(place).resolve().is_relative_to(folder) for place in places)


def _edited(module: ModuleType) -> bool:
    return module in _CONTENT and _digest(module) != _CONTENT[module]


def _digest(module: ModuleType) -> str:
    """Return a hash of a module's file, empty where there is none or none any more."""
    file = Path(getattr(module, "__file__", None) or "")
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
