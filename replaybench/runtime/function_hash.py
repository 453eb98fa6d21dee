"""Content hashes of compiled functions, including every helper and constant that they refer to, in any file.

A cached kernel or a stored result is stale when any of these changes. The search follows global names, attributes of
users' modules, and closures.
"""

import ast
import enum
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from replaybench.runtime.errors import UserError

_LIBRARIES: Final = frozenset(
    {"builtins", "math", "cmath", "operator", "numpy", "numba", "llvmlite", "scipy", "typing"}
)
"""Packages whose functions are hashed by name only."""

_CONSTANTS: Final = (bool, int, float, complex, str, bytes, tuple, enum.Enum, np.generic, np.ndarray, type(None))


def content_hash(functions: Iterable[Callable[..., Any]], *, exact: bool = False) -> str:
    """Return a hash, in hexadecimal, of functions and of all helpers and constants that they refer to.

    Args:
        functions: Python functions or Numba dispatchers.
        exact: Whether to hash bytecode, module names and compiler options, as needed for machine code of one Python
            version. By default, the source without comments, docstrings and layout is hashed.

    Raises:
        UserError: If a function refers to an object whose content cannot be hashed.
    """
    return hashlib.sha256("\n".join(_Walk(functions, exact).lines).encode()).hexdigest()


def importable(functions: Iterable[Callable[..., Any]]) -> bool:
    """Return whether `sys.modules` contains the modules that define some functions and their helpers.

    Cached machine code needs the modules from which it was compiled.
    """
    return _Walk(functions, exact=True).modules <= sys.modules.keys()


class _Walk:
    """A traversal of functions and of all helpers and constants that they refer to.

    Attributes:
        lines: Descriptions of functions and constants in a fixed order.
        modules: Names of the modules that define the functions, without libraries.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]], exact: bool) -> None:
        self.exact = exact
        self.lines: list[str] = []
        self.modules: set[str] = set()
        self._seen: set[int] = set()
        for function in functions:
            self.visit(getattr(function, "__name__", "function"), function)

    def visit(self, name: str, value: Any) -> None:
        """Add the description of a value, to which a function refers as `name`, to `lines`."""
        function = _python_function(value)
        if function is not None:
            self._visit_function(name, function, getattr(value, "targetoptions", {}))
        elif isinstance(value, _CONSTANTS):
            self.lines.append(f"{name} = {_constant(name, value)}")
        elif isinstance(value, enum.EnumMeta):
            members: list[Any] = list(value)
            self.lines.append(f"{name} = {[(member.name, member.value) for member in members]!r}")
        elif _in_library(value) or isinstance(value, BuiltinFunctionType | np.ufunc):
            self.lines.append(f"{name} = {getattr(value, '__qualname__', type(value).__qualname__)}")
        elif isinstance(value, type):
            self.lines.append(f"{name} = {_source(value) or value.__qualname__}")
        else:
            raise _no_content(name, value)

    def _visit_function(self, name: str, function: FunctionType, options: dict[str, Any]) -> None:
        if _in_library(function):
            self.lines.append(f"{name} = {function.__module__}.{function.__qualname__}")
            return
        if id(function) in self._seen:  # helpers may be shared, and may call each other
            self.lines.append(f"{name} = {function.__qualname__}")
            return
        self._seen.add(id(function))
        self.modules.add(function.__module__)
        source = None if self.exact else _source(function)
        self.lines.append(f"{name}: {source or _bytecode(function.__code__)}")
        if self.exact:
            self.lines.append(f"in {function.__module__} with {sorted(options.items())!r}")
        for number, default in enumerate(function.__defaults__ or ()):
            self.visit(f"default {number}", default)
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.visit(cell_name, cell.cell_contents)
        names = sorted(set(_names_in(function.__code__)))
        for global_name in names:
            if global_name in function.__globals__:
                self._visit_reference(global_name, function.__globals__[global_name], names)

    def _visit_reference(self, name: str, value: Any, attributes: list[str]) -> None:
        """Describe the value of a global variable, or the attributes of a user's module that the code may use."""
        if not isinstance(value, ModuleType):
            self.visit(name, value)
        elif value.__name__.partition(".")[0] not in _LIBRARIES and id(value) not in self._seen:
            self._seen.add(id(value))
            for attribute in attributes:
                if hasattr(value, attribute):
                    self._visit_reference(f"{name}.{attribute}", getattr(value, attribute), attributes)
            self._seen.remove(id(value))


def _python_function(value: Any) -> FunctionType | None:
    """Return the Python function of a Numba dispatcher, ufunc, callback or intrinsic, or None for other values.

    A plain function is returned unchanged.
    """
    if isinstance(value, FunctionType):
        return value
    for owner in (value, getattr(value, "_dispatcher", None)):
        for attribute in ("py_func", "_pyfunc", "_defn"):
            found = getattr(owner, attribute, None)
            if isinstance(found, FunctionType):
                return found
    return None


def _in_library(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


@functools.cache  # planning a study requests the same few functions hundreds of times
def _source(thing: FunctionType | type) -> str | None:
    """Return the source without comments, docstrings and layout, or None if the source cannot be read."""
    try:
        text = textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return None
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda's source is its whole line
        return text
    for node in ast.walk(tree):
        documented = isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
        if documented:
            node.body = node.body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _bytecode(code: CodeType) -> str:
    # The order of a set of strings changes from process to process.
    consts = [
        _bytecode(c) if isinstance(c, CodeType) else repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return f"{code.co_code.hex()} {consts} {code.co_names} {code.co_varnames} {code.co_freevars}"


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names_in(const)


def _constant(name: str, value: Any) -> str:
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        return f"{array.dtype.descr} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if isinstance(value, tuple):
        return f"({', '.join(_constant(name, item) for item in value)})"
    if isinstance(value, _CONSTANTS):
        return repr(value)
    raise _no_content(name, value)


def _no_content(name: str, value: object) -> UserError:
    return UserError(
        f"{name!r}, a {type(value).__name__} to which a plant's function refers, has no known content; "
        "use numbers, tuples, arrays or functions"
    )
