"""Lookup, by name, of classes of this package, of other installed packages and of users' Python files.

Only this module imports code by name. Inside `imports_only`, only the given names may be imported. A result file may
come from an unknown source, and opening it must not execute code that it names.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from replaybench.runtime.errors import UserError, nearest, unknown
from replaybench.runtime.source_hash import refuse_other_modules

IN_FILE: Final = "path/to/file.py:ClassName"
"""Form of the name of a class in a user's file."""

_NAME: Final = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)\Z", re.DOTALL)
_IN_TEXT: Final = re.compile(r"[^()*·+\[\]]+\.py:(\w+)")
_ALLOWED: Final[ContextVar[frozenset[str] | None]] = ContextVar("names that may be imported", default=None)
"""Names that may be imported. None allows every name, as in a user's script or a study that the user runs."""

_FOLDERS: Final = re.compile(r"(?<=[(=])[^(),=]*/")
"""Folders of files that are parameters, as in `Mix(path/to/buffer.h5)`."""
_PATHS: Final = re.compile(r"[^()*·+\[\]]+\.py(?=:\w)")
_FOLDER: Final[ContextVar[str]] = ContextVar("folder of the study that runs", default="")

_MOST_FILES: Final = 100
"""Maximum number of files of a folder that are searched for a class."""
_MOST_OFFERED: Final = 6
"""Maximum number of classes of a file that a hint lists."""
_IMPORTED: Final[dict[str, Path]] = {}
"""Path of each imported user's file, as the user wrote it, by module name."""


FAILURES: Final = (Exception, SystemExit)
"""What a call of a user's code may raise. A script may call `sys.exit`, which must not end this program."""


class InFile(NamedTuple):
    """The path of a user's Python file and the name of a class in it."""

    path: Path
    class_name: str


class ImportRefusedError(UserError):
    """An error for an import that is refused, because an opened file, and not the user, names the code."""


@contextmanager
def imports_only(*texts: str | None) -> Iterator[None]:
    """Allow imports of users' code in the `with` block only for the names that `texts` contain.

    Each string is the name of a plant or learner, or a strategy in its notation. None is ignored. A nested block never
    allows more than the outer block.
    """
    given = [text for text in texts if text is not None]
    named = frozenset(_key(name) for text in given for name in (text, *(m[0].strip() for m in _IN_TEXT.finditer(text))))
    outer = _ALLOWED.get()
    token = _ALLOWED.set(named if outer is None else named & outer)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def _check_import(name: str, kind: str) -> None:
    """Raise `ImportRefusedError`, with the remedy, if the enclosing `imports_only` blocks do not allow a name."""
    allowed = _ALLOWED.get()
    if allowed is not None and _key(name) not in allowed:
        option = kind if kind in ("plant", "learner") else "strategy"
        raise ImportRefusedError(
            f"{kind} {name!r} would run a Python file or module that only an opened file names; if you trust that "
            f"file, say so with --{option} {shlex.quote(name)} (from Python: {option}=…)"
        )


def _key(name: str) -> str:
    """Return a key that is equal for all names of one class, such as `./mine.py:Mine` and `mine.py:Mine`."""
    place = in_file(name)
    return f"{os.path.abspath(located(Path(place.path)))}:{place.class_name}" if place else name


@contextmanager
def names_from(folder: str) -> Iterator[None]:
    """In the `with` block, look up relative paths of users' files in `folder` before the working directory.

    If `folder` is empty, nothing changes.
    """
    token = _FOLDER.set(folder or _FOLDER.get())
    try:
        yield
    finally:
        _FOLDER.reset(token)


@contextmanager
def same_working_folder() -> Iterator[None]:
    """Restore the working folder after the `with` block, as code of users may change it to find its data."""
    before = os.open(".", os.O_RDONLY)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def located(path: Path) -> Path:
    """Return the path of a file in the folder set by `names_from` if it exists there, else the path unchanged."""
    candidate = _FOLDER.get() / path
    return candidate if candidate.exists() else path


def canonical(text: str, folder: str = "") -> str:
    """Shorten the paths of Python files in the name of a plant or learner, or in the notation of a strategy.

    For example, `./mine.py:Mine` becomes `mine.py:Mine`. Absolute paths inside `folder` become relative to `folder`.
    """

    def short(match: re.Match[str]) -> str:
        front, colon, path = match[0].rpartition(":")  # a name may have a prefix: `gymnasium:./mine.py:Mine-v0`
        if match.start() and path.startswith(os.sep):  # a folder's name has a bracket, at which the match begins
            return match[0]
        inside = folder and os.path.isabs(path) and Path(path).is_relative_to(folder)
        return front + colon + (os.path.relpath(path, folder) if inside else os.path.normpath(path))

    return _PATHS.sub(short, text)


def same_class_name(name: str, other: str) -> bool:
    """Return whether two names refer to classes of equal name in Python files of equal name, in any folders."""
    first, second = (_PATHS.sub(lambda match: Path(match[0]).name, each) for each in (name, other))
    return first == second and bool(_PATHS.search(name))


def in_file(name: str) -> InFile | None:
    """Split a name of the form `path/to/file.py:ClassName`, or return None for a name of another form."""
    match = _NAME.match(name)
    return InFile(Path(match["path"]), match["name"]) if match else None


def called(name: str) -> str:
    """Return the class name in lower case and without the file, such as `mine` for `path/to/file.py:Mine`."""
    place = in_file(name)
    return (place.class_name if place else name).casefold()


def _class_in_working_directory(name: str) -> str | None:
    # Files are searched as text and not executed, so the result is only a hint for an error message.
    defined = re.compile(rf"^class ({re.escape(name)})\b", re.IGNORECASE | re.MULTILINE)
    for path in sorted(Path().glob("*.py"))[:_MOST_FILES]:
        try:
            if path.is_file() and (match := defined.search(path.read_text(encoding="utf-8", errors="replace"))):
                return f"{path}:{match[1]}"
        except OSError:
            continue
    return None


def without_class(name: str, kind: str) -> UserError:
    """Return the error for `path/to/file.py` without a class, with a list of classes in this file, which is not run."""
    try:
        text = Path(name).read_text(encoding="utf-8", errors="replace") if Path(name).is_file() else ""
    except (OSError, ValueError):  # `ValueError`: a NUL in the path
        text = ""
    classes = re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE)[:_MOST_OFFERED] or ["ClassName"]
    return UserError(f"{name!r} names no {kind} in the file; write {' or '.join(f'{name}:{each}' for each in classes)}")


def class_in_file(place: InFile, kind: str, base: type, derive_from: str = "") -> type[Any]:
    """Import a user's file and return a class that the file defines.

    Args:
        place: Path of the file and name of the class.
        kind: What the class is, for error messages, such as "learner".
        derive_from: Name of the base class in error messages, if it differs from the name of `base`.

    Raises:
        UserError: If the file or class does not exist, the import fails, the base or a method's parameters differ, or
            the base class does not have a public name of the class.
    """
    classes = vars(import_file(place.path, kind, f"{place.path}:{place.class_name}"))
    if place.class_name not in classes:
        candidates = [
            name
            for name, value in classes.items()
            if isinstance(value, type) and issubclass(value, base) and not value.__module__.startswith("replaybench.")
        ]
        raise unknown(f"{kind} in {place.path}", place.class_name, candidates)
    cls = classes[place.class_name]
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UserError(
            f"{place.class_name} in {place.path} is no {kind}; derive it from {derive_from or base.__name__}"
        )
    for each in classes.values():
        if isinstance(each, type) and each.__module__ == cls.__module__:
            _check_names(each, place)
            _check_methods(each, place)
    return cls


def _check_names(cls: type, place: InFile) -> None:
    """Raise `UserError` for a public name in a class that its base class does not have, because nothing would use it.

    Fields are exempt. They are the parameters of a plant, learner or strategy.
    """
    above = cls.__mro__[1:]
    base = next((each for each in above if each.__module__.startswith("replaybench.")), None)
    if base is None:
        return
    known = {name for each in above for name in (*vars(each), *inspect.get_annotations(each))}
    known = {name for name in known if not name.startswith("_")}
    unused = [name for name in vars(cls) if name not in {*known, *inspect.get_annotations(cls)} and name[0] != "_"]
    if unused:
        near = {name: " or ".join(nearest(name, known)) for name in unused}
        words = ", ".join(f"{name} (did you mean {meant}?)" if meant else name for name, meant in near.items())
        raise UserError(
            f"{place.path}: {base.__name__} has no {words}, so that {cls.__name__} cannot use it; begin names of your "
            "own with an underscore"
        )


def _check_methods(cls: type, place: InFile) -> None:
    """Raise `UserError` if a method cannot be called as in the base class, before a sweep calls the method."""
    for name, method in vars(cls).items():
        base = next((above for above in cls.__mro__[1:] if name in vars(above)), object)
        inherited = vars(base).get(name)
        if name.startswith("__") or not base.__module__.startswith("replaybench."):
            continue
        if not (inspect.isfunction(method) and inspect.isfunction(inherited)):
            continue
        parameters = inspect.signature(inherited).parameters.values()
        variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        required = [each for each in parameters if each.default is each.empty and each.kind not in variadic]
        by_name = {each.name: None for each in required if each.kind is each.KEYWORD_ONLY}
        by_place = [each for each in required if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        try:
            inspect.signature(method).bind(*by_place, **by_name)
        except TypeError:
            words = ", ".join(each.name for each in required)
            raise UserError(
                f"{place.path} line {method.__code__.co_firstlineno}: {cls.__name__}.{name} must take ({words}), "
                f"not ({', '.join(inspect.signature(method).parameters)})"
            ) from None


def import_module(module: str, kind: str, name: str) -> None:
    """Import an installed module.

    Args:
        module: Name of the module.
        kind: What the module defines, for error messages, such as "learner".
        name: Full name that the user gave, which begins with the name of the module.

    Raises:
        ImportRefusedError: If an enclosing `imports_only` block does not allow the name.
        UserError: If the import fails.
    """
    _check_import(name, kind)
    try:
        with same_working_folder():
            importlib.import_module(module)
    except Exception as error:  # any error that a module raises, or an impossible name
        raise UserError(f"{name}: the module {module} cannot be imported: {error_text(error)}") from error


class _ContentLoader(SourceLoader):
    """A loader that runs the content of a file that was hashed, even if the file has changed since.

    Python's own loader would run the bytecode of an earlier content that has the same length and is of the same second.
    A reloaded module (`%autoreload`) stays as it is, because an edited file becomes another module.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self._path, self._content = path, content

    def get_filename(self, fullname: str) -> str:
        return os.fspath(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        return self._content


class _Reloading(MetaPathFinder):
    """A finder that lets modules of users' files be reloaded."""

    specs: Final[dict[str, ModuleSpec]] = {}

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        return self.specs.get(fullname) if target is not None else None


sys.meta_path.append(_Reloading())


def import_file(path: Path, kind: str, name: str) -> ModuleType:
    """Import a user's Python file as a module.

    A file that was edited since the last import becomes another module.

    Args:
        path: Path of the file, absolute or relative to the study's folder or the working directory.
        kind: What the file defines, for error messages, such as "learner".
        name: Full name that refers to the file, such as `path/to/file.py:ClassName`.

    Raises:
        ImportRefusedError: If an enclosing `imports_only` block does not allow the name.
        UserError: If the file does not exist, cannot be imported, or imports a module under a name that is in use.
    """
    _check_import(name, kind)
    written, path = path, located(path)
    if not path.is_file():
        where = "" if path.is_absolute() else f" in {Path.cwd()}, where this runs"
        where += f", nor in {_FOLDER.get()}, where the study is" if where and _FOLDER.get() else ""
        raise UserError(f"no {kind} file {str(path)!r}{where}; give the path of a Python file that exists")
    path = path.resolve()
    content = path.read_bytes()
    digest = hashlib.sha256(str(path).encode() + b"\0" + content).hexdigest()[:16]
    own = f"replaybench_{kind}_{path.stem}_{digest}"
    _IMPORTED.setdefault(own, written)
    if own in sys.modules:
        return sys.modules[own]
    loader = _ContentLoader(path, content)
    spec = importlib.util.spec_from_file_location(own, path, loader=loader, submodule_search_locations=None)
    assert spec is not None
    _Reloading.specs[own] = spec
    module = importlib.util.module_from_spec(spec)
    refuse_other_modules(path)
    sys.modules[own] = module
    sys.path.insert(0, os.fspath(path.parent))  # as for a script: it may import files of its folder
    try:
        with same_working_folder():
            loader.exec_module(module)
    except BaseException as error:
        del sys.modules[own]
        if isinstance(error, UserError | KeyboardInterrupt):
            raise
        raise UserError(f"{kind} file {path} cannot be imported: {reason(error, path)}") from error
    finally:
        sys.path.remove(os.fspath(path.parent))
    return module


def name_in_file(found: type) -> str:
    """Return `path/to/file.py:ClassName` for a class from a user's file, or an empty string for another class."""
    path = _IMPORTED.get(found.__module__)
    return f"{path}:{found.__name__}" if path is not None else ""


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Return a short form of each name of a strategy or learner, without folders of users' files, for tables.

    All names keep their paths if two of the short forms would be equal.
    """
    whole = list(names)
    short = {name: _FOLDERS.sub("", _IN_TEXT.sub(r"\1", name)) for name in whole}
    return short if len(set(short.values())) == len(set(whole)) else {name: name for name in whole}


def line_of(error: BaseException) -> str:
    """Return the place in a user's file where an error occurred, such as `path/to/file.py, line 12`.

    The result is empty if the traceback contains no user's file.
    """
    written = {str(path.resolve()): path for path in _IMPORTED.values()}
    passed = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in written]
    return f"{written[passed[-1].filename]}, line {passed[-1].lineno}" if passed else ""


def error_text(error: BaseException) -> str:
    """Return the type and message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


@contextmanager
def one_line_errors(where: str) -> Iterator[None]:
    """Convert an error in a user's Python file to a `UserError` of one line, inside the `with` block.

    The line states the file and the line number. An error elsewhere is raised again with a note. `where` describes the
    `with` block in the line and in the note.
    """
    try:
        yield
    except UserError:
        raise
    except FAILURES as error:
        if line := line_of(error):
            raise UserError(f"{line}: {error_text(error)}; while running {where}") from error
        error.add_note(f"while running {where}")
        raise


def reason(error: BaseException, path: Path) -> str:
    """Return one line of text with an error and, if the traceback contains the file, the number of its line."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == path.name
    ]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


@dataclass(frozen=True, eq=False)
class Registry(Mapping[str, type[Any]]):
    """A mapping from names to classes of plants, learners or parts of strategies, which are imported on first use.

    Attributes:
        kind: What the classes are, for error messages, such as "learner".
        own: Location `module:Class` of each class of this package, by name.
        base: Location `module:Class` of the base class.
        group: Group of entry points by which installed packages add classes. The package's own names take precedence.
        derive_from: Name of the base class in error messages. If empty, it is the name of the class at `base`.
        also_named: Further valid forms of names, which the error about an unknown name lists.
    """

    kind: str
    own: Mapping[str, str]
    base: str
    group: str
    derive_from: str = ""
    also_named: tuple[str, ...] = (IN_FILE,)

    @cached_property
    def offered(self) -> dict[str, EntryPoint]:
        """The entry points of the classes that other installed packages add, by name."""
        return {entry.name: entry for entry in entry_points(group=self.group) if self._is_new(entry)}

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *self.offered))

    def __len__(self) -> int:
        return len(self.own) + len(self.offered)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.offered

    def __getitem__(self, name: str) -> type[Any]:
        if name not in self:
            raise KeyError(name)
        return self.load(name)

    def spelled(self, name: str) -> str:
        """Return the registered spelling of a name, regardless of case, or an unknown name unchanged."""
        return name if name in self.own else {known.casefold(): known for known in self}.get(name.casefold(), name)

    def load(self, name: str) -> type[Any]:
        """Return the class of a registered name, or of a name of the form `path/to/file.py:ClassName`.

        Raises:
            UserError: If there is no such class, or the class cannot be imported.
        """
        self.check(name)
        if name in self.own:
            return _imported(self.own[name])
        if place := in_file(name):
            return class_in_file(place, self.kind, self.base_class, self.derive_from)
        try:
            cls: type[Any] = self.offered[name].load()
        except Exception as error:
            raise UserError(f"{self.kind} {name}, which an installed package offers, fails: {error}") from error
        return cls

    def check(self, name: str) -> None:
        """Raise `UserError` for a name that is neither registered nor of the form `path/to/file.py:ClassName`."""
        if name in self.own or in_file(name) or name in self.offered:
            return
        if name.endswith(".py"):
            raise without_class(name, self.kind)
        if there := _class_in_working_directory(name):
            raise UserError(f"unknown {self.kind} {name!r}; did you mean {there}?")
        raise unknown(self.kind, name, self, self.also_named)

    @property
    def base_class(self) -> type[Any]:
        """The base class of all classes in the registry."""
        return _imported(self.base)

    def _is_new(self, entry: EntryPoint) -> bool:
        """Return whether an entry point adds a class to this registry."""
        if entry.name in self.own:
            return False
        try:
            cls = entry.load()
        except Exception:  # `load` reports this failure
            return True
        return isinstance(cls, type) and issubclass(cls, self.base_class)


def _imported(path: str) -> type[Any]:
    module, _, name = path.partition(":")
    cls: type[Any] = getattr(importlib.import_module(module), name)
    return cls
