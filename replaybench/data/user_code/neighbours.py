"""Files beside a user's file: which of them, and which packages, its import statements name.

Statements are read, not run, so that the answer depends on files alone and not on what else a process has loaded.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from replaybench.data.errors import UserError


class Named(NamedTuple):
    """What import statements name.

    Attributes:
        files: those within the folder, by their modules' names, what they import in turn included.
        others: the top-level names of all other modules.
    """

    files: dict[str, Path]
    others: set[str]


def named_by(path: Path, installed: Callable[[str], bool], package: str = "") -> Named:
    """Return what the import statements of a Python file name, those left out that only run in a function or a script.

    Args:
        path: the file.
        installed: whether a top-level name is of a package, or of Python itself; those are never files of the folder.
        package: the one that it is of, `tools` for a folder's `tools/helper.py`; none for a user's own file.
    """
    folder = path.parents[package.count(".") + 1 if package else 0]
    found, waiting = Named({}, set()), [(path, package)]
    while waiting:
        source, package = waiting.pop()
        for name in _names(source, package):
            top = name.partition(".")[0]
            file = None if installed(top) else _file(folder, name)
            if file is None:
                found.others.add(top)
            elif name not in found.files:
                found.files[name] = file
                waiting.append((file, name if file.name == "__init__.py" else name.rpartition(".")[0]))
    return found


def refuse_other_modules(path: Path, installed: Callable[[str], bool]) -> None:
    """Raise `UserError` if a file would not get the modules beside it, but others of the same names.

    Python keeps one module per name; two folders with a `helper.py` cannot both have theirs.
    """
    for name, file in named_by(path, installed).files.items():
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if loaded is not None and Path(loaded).resolve() != file.resolve():
            raise UserError(
                f"{path} imports {name}, and {loaded} is loaded already under that name; rename one of them"
            )


def _names(path: Path, package: str) -> Iterator[str]:
    """Yield the modules that a file may import, absolutely named, their packages before them."""
    try:
        waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    except (OSError, SyntaxError, ValueError):  # reported where it is imported
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _guard(node):
            continue
        waiting += ast.iter_child_nodes(node)
        for name in _written(node, package):
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _written(node: ast.AST, package: str) -> list[str]:
    """Return the modules that a statement may import, as `from a import b` may a and a.b."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")
    if node.level > (len(above) if package else 0):  # outside any package, where it raises
        return []
    of = ".".join([*(above[: len(above) + 1 - node.level] if node.level else []), *filter(None, [node.module])])
    return [of, *(f"{of}.{each.name}" for each in node.names)]


def _guard(node: ast.AST) -> bool:
    """Tell whether what follows runs in a script, or for a type checker, only."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "__name__ == '__main__'",
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )


def _file(folder: Path, name: str) -> Path | None:
    """Return the file of a module in a folder, None if there is none."""
    place = folder.joinpath(*name.split("."))
    return next((each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()), None)
