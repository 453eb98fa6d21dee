"""Content hashes of users' Python files and of the files that they import.

A result is stale if its code has changed. The hash covers the whole modules that define a class or function, and the
modules that they import.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from replaybench.runtime.errors import UserError


def _modules_imported_by(path: Path, package: str = "") -> tuple[dict[str, Path], set[str]]:
    """Return the modules that a Python file imports directly or indirectly.

    Args:
        path: Path of the file.
        package: Dotted name of the file's package, such as `tools` for `tools/helper.py`. Empty outside packages.

    Returns:
        Files of the imported modules in the file's folder by module name, and top-level names of the other modules.
    """
    folder = path.parents[package.count(".") + 1 if package else 0]
    files: dict[str, Path] = {}
    others, waiting = set[str](), [(path, package)]
    while waiting:
        source, package = waiting.pop()
        for name in _names(source, package):
            top = name.partition(".")[0]
            file = None if of_a_package(top) else _file(folder, name)
            if file is None:
                others.add(top)
            elif name not in files:
                files[name] = file
                waiting.append((file, name if file.name == "__init__.py" else name.rpartition(".")[0]))
    return files, others


def refuse_other_modules(path: Path) -> None:
    """Raise `UserError` if a file imports a module under a name that another loaded file has.

    Python has one module per name, so two folders with a `helper.py` cannot be used together.
    """
    for name, file in _modules_imported_by(path)[0].items():
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if loaded is not None and Path(loaded).resolve() != file.resolve():
            raise UserError(
                f"{path} imports {name}, and {loaded} is loaded already under that name; rename one of them"
            )


def _names(path: Path, package: str) -> Iterator[str]:
    """Yield the absolute names of the modules that a file may import, each after the packages that contain it."""
    try:
        waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    except (OSError, SyntaxError, ValueError):  # reported when the file is imported
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _is_script_or_typing_block(node):
            continue
        waiting += ast.iter_child_nodes(node)
        for name in _imported_names(node, package):
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _imported_names(node: ast.AST, package: str) -> list[str]:
    """Return the names of the modules that a statement may import, such as a and a.b for `from a import b`."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")
    if node.level > (len(above) if package else 0):  # it leads out of the package, and Python raises an error
        return []
    of = ".".join([*(above[: len(above) + 1 - node.level] if node.level else []), *filter(None, [node.module])])
    return [of, *(f"{of}.{each.name}" for each in node.names)]


def _is_script_or_typing_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "__name__ == '__main__'",
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )


def _file(folder: Path, name: str) -> Path | None:
    place = folder.joinpath(*name.split("."))
    return next((each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()), None)


_NOT_HASHED: Final = frozenset({"replaybench", "numpy", "typing_extensions", *sys.stdlib_module_names})
"""Modules that are not hashed, because they belong to Python or NumPy, or `NUMERICS_VERSION` covers them."""


def made_of(*origins: Callable[..., Any]) -> str:
    """Return a string that identifies the code of functions or classes, including base classes and imported modules.

    An installed package is identified by its version. A file outside packages is identified by a hash of its content
    and of the content of the files that it imports directly or indirectly. An import is found from the `__module__` of
    an imported object. Import statements are read as well, because an imported number has no `__module__`.
    """
    parts: set[str] = set()
    waiting = [sys.modules[each.__module__] for origin in origins for each in _bases(origin)]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module.__name__ in seen or _top(module) in _NOT_HASHED:
            continue
        seen.add(module.__name__)
        parts.add(_part(module))
        parts |= _imports_of(module)
        for other in _imported(module):
            if _version(_top(other)):
                parts.add(_part(other))
            else:
                waiting.append(other)
    return "; ".join(sorted(part for part in parts if part))


def of_a_package(name: str) -> bool:
    """Return whether a top-level module belongs to an installed package or to Python."""
    return name in _NOT_HASHED or bool(_version(name))


def in_no_file(origin: Callable[..., Any]) -> list[Any]:
    """Return the objects, among a function or a class and its base classes, that no file defines, as in a notebook.

    `made_of` cannot identify code without a file.
    """
    modules = [(each, sys.modules[each.__module__]) for each in _bases(origin)]
    named = [(each, module) for each, module in modules if _top(module) not in _NOT_HASHED]
    return [each for each, module in named if not _version(_top(module)) and _file_of(module) is None]


def _bases(origin: Callable[..., Any]) -> tuple[Any, ...]:
    return getattr(origin, "__mro__", (origin,))


def _imported(module: ModuleType) -> list[ModuleType]:
    """Return the modules that define the objects in a module's namespace, except those in `_NOT_HASHED`."""
    found = []
    for value in list(vars(module).values()):
        other = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
        if other is not None and _top(other) not in _NOT_HASHED:
            found.append(other)
    return found


def _part(module: ModuleType) -> str:
    package, path = _version(_top(module)), _file_of(module)
    return package if package or path is None else _content(path)


def _imports_of(module: ModuleType) -> set[str]:
    path = _file_of(module)
    if path is None or path.suffix != ".py" or _version(_top(module)):
        return set()
    files, others = _modules_imported_by(path, module.__package__ or "")
    return {*map(_content, files.values()), *(_version(name) for name in others - _NOT_HASHED)}


def _content(path: Path) -> str:
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _file_of(module: ModuleType) -> Path | None:
    """Return the file of a module, or None for a module without a file, such as `<stdin>`."""
    file = getattr(module, "__file__", None)
    return Path(file) if file is not None and Path(file).is_file() else None


def _top(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


_distributions: Final = cache(packages_distributions)


@cache
def _version(package: str) -> str:
    """Return the name and version of the distribution that provides a package, or an empty text."""
    for name in (package, *sorted(set(_distributions().get(package, ())))):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return ""
