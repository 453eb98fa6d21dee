"""Compiled kernels, and their machine code on disk.

One process compiles a kernel while others wait. Code is verified before use, and compiled again if it is damaged.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import inspect
import io
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core import caching, config, sigutils
from numba.core import compiler as numba_compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher


def cache_dir() -> Path:
    """Return `$REPLAYBENCH_CACHE`, else `$XDG_CACHE_HOME/replaybench`, else `~/.cache/replaybench`.

    The folder need not exist; the environment is read at every call.
    """
    if own := os.environ.get("REPLAYBENCH_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "replaybench"
    return Path(os.path.expanduser("~")) / ".cache" / "replaybench"


def why_not_kept() -> str:
    """Return why nothing can be kept in the folder, and the remedy, for people; empty if it can be written."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return (
            f"the cache folder {folder} cannot be written ({error.strerror}): kernels are compiled and references "
            "solved in every process again; set REPLAYBENCH_CACHE to another folder"
        )


def store_text(path: Path, text: str) -> bool:
    """Write `text` to `path` atomically unless it holds that text already.

    Returns:
        True when the file now holds `text`, False when the folder cannot be written.
    """
    temporary = None
    try:
        # Leaving an equal file alone keeps its time stamp, on which compilers' own caches may depend.
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


_PACKAGE: Final = Path(__file__).resolve().parents[1]
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


class _Bitcode(JITCodeLibrary):
    """A library to be linked into others, of which no machine code is made."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Return what a cache keeps of it."""
        kept: tuple[str, str, bytes] = self.serialize_using_bitcode()
        return kept


def restored(context: Any, payload: Any) -> Any:
    """Return a result that was stored for linking only; None if this is any other."""
    stored, fndesc, environment, signature, objectmode, lifted, annotation, reload, environments = payload
    name, kind, content = stored
    if kind != "bitcode":
        return None
    library = _Bitcode(context.codegen(), name)
    library._final_module = binding.parse_bitcode(content)
    library._finalize_final_module()
    return numba_compiler.compile_result(
        target_context=context,
        typing_context=context.typing_context,
        library=library,
        environment=environment,
        entry_point=object(),  # a name, under which callers find it
        fndesc=fndesc,
        type_annotation=annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        reload_init=reload,
        referenced_envs=environments,
    )


class _Compiler(_FunctionCompiler):  # type: ignore[misc]
    """Compiles a function for Python or, where `linking`, for other kernels."""

    linking = False

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        if not self.linking:
            return super()._compile_core(args, return_type)
        flags: Any = numba_compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        context = self.targetdescr.target_context
        found: Any = numba_compiler.compile_extra(
            self.targetdescr.typing_context,
            context,
            self.py_func,
            args=args,
            return_type=return_type,
            flags=flags,
            locals=self.locals,
            library=_Bitcode(context.codegen(), self.py_func.__qualname__),
            pipeline_class=self.pipeline_class,
        )
        found = found._replace(entry_point=object())
        context.insert_user_function(found.entry_point, found.fndesc, [found.library])
        return found


class LinkedDispatcher(CPUDispatcher):
    """Numba's dispatcher of a function, whose machine code is made when Python calls it.

    Args:
        function: what is compiled, in nopython mode.
        locals, targetoptions, pipeline_class: Numba's.
    """

    _cache: Any

    def __init__(
        self,
        function: Callable[..., Any],
        locals: Any = None,
        targetoptions: Any = None,
        pipeline_class: type[numba_compiler.CompilerBase] = numba_compiler.Compiler,
    ) -> None:
        options = {"nopython": True, **(targetoptions or {})}
        super().__init__(function, locals, options, pipeline_class)
        self._compiler = _Compiler(function, self.targetdescr, options, self.locals, pipeline_class)
        self._superseded: list[Any] = []

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile for a caller that is being compiled, as Numba's does, but for that alone."""
        with self._linking():
            return super().get_call_template(args, kws)

    def compile(self, sig: Any) -> Any:
        """Compile for a signature, or find what was; machine code only if it is not a caller that asks."""
        with global_compiler_lock:
            arguments = tuple(sigutils.normalize_signature(sig)[0])
            found: Any = self.overloads.get(arguments)
            if found is not None and isinstance(found.library, _Bitcode) and not self._compiler.linking:
                self._superseded.append(self.overloads.pop(arguments))  # callers' code lives on
            with getattr(self._cache, "sole_compiler", contextlib.nullcontext)():
                return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """Let callers find what was compiled, and Python if it can call it."""
        if isinstance(cres.library, _Bitcode):
            self.overloads[tuple(cres.signature.args)] = cres
            return
        for environment in cres._find_referenced_environments():  # those of callees; Numba's has set its own
            cres.codegen.set_env(environment.env_name, environment)
        super().add_overload(cres)

    @contextlib.contextmanager
    def _linking(self) -> Iterator[None]:
        before = self._compiler.linking
        self._set_linking(True)
        try:
            yield
        finally:
            self._set_linking(before)

    def _set_linking(self, linking: bool) -> None:
        self._compiler.linking = linking
        if hasattr(self._cache, "linking"):
            self._cache.linking = linking


PATIENCE: Final = 180.0
"""Seconds that a process waits for another's compilation before it compiles itself."""
_TICK: Final = 0.02


class NotCompiledError(Exception):
    """A kernel is not stored here, where nothing may be compiled."""


_may_compile = True


@contextlib.contextmanager
def stored_kernels_only() -> Iterator[None]:
    """Compile nothing during the block: a kernel that is not stored raises `NotCompiledError`."""
    global _may_compile
    before, _may_compile = _may_compile, False
    try:
        yield
    finally:
        _may_compile = before


class _Results(caching.CompileResultCacheImpl):
    """What Numba compiles, and functions that are for other kernels to call."""

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        return restored(target_context, payload) or super().rebuild(target_context, payload)


class _ByContent(caching.UserProvidedCacheLocator):
    """A place that does not tell where the package lies: an installed one and a checkout of the same files share it."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        """Take the folder's name in the package; Numba's own for a file of the user's, which may lie anywhere.

        The examples lie in the package and are loaded as a user's files, by modules that are named by their paths.
        """
        super().__init__(function, file)
        folder = Path(file).resolve().parent
        if folder.is_relative_to(_PACKAGE) and function.__module__.startswith(f"{_PACKAGE.name}."):
            place = ".".join((_PACKAGE.name, *folder.relative_to(_PACKAGE).parts))
            settings: Any = config
            self._cache_path = os.path.join(settings.CACHE_DIR, place)

    def get_source_stamp(self) -> str:
        """Return the same of all files: the folder's name tells their content, and Numba's stamp may tell time."""
        return ""


class InCacheDir(_Results):
    """The place of a kernel of the package, in the folder that Numba's settings name."""

    _locator_classes = [_ByContent]  # noqa: RUF012 (as Numba declares it)


class BesideSource(_Results):
    """The place of a kernel of a generated file."""

    _locator_classes = [caching.InTreeCacheLocator]  # noqa: RUF012


class Stored(caching.FunctionCache):
    """Numba's cache of a function in one place or nowhere, which costs nothing but time if it fails.

    Attributes:
        linking: whether what is sought is only for other kernels to call.

    Raises:
        RuntimeError: there is no such place.
    """

    def __init__(self, function: Callable[..., Any], place: type[caching.CompileResultCacheImpl]) -> None:
        self._impl_class = place
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, stamp)
        self._lock_path = os.path.join(self._cache_path, f"{self._impl.filename_base}.lock")
        self._held = contextlib.ExitStack()
        self._depth = 0
        self.linking = False

    @contextlib.contextmanager
    def sole_compiler(self) -> Iterator[None]:
        """Let go, at the end of a compilation, of the lock that it has taken if there was anything to compile."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._held.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is stored, be it that another process is only about to store it; None if there is nothing."""
        found = super().load_overload(sig, target_context)
        if found is None and not _may_compile:
            raise NotCompiledError
        if found is None and self._depth == 1:  # deeper: it has the lock already
            self._held.enter_context(_locked(self._lock_path))
            found = super().load_overload(sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store what was compiled, if that can be done."""
        with contextlib.suppress(OSError):  # the disk is full, or the folder gone
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), self.linking)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a file's lock, if it can be had in time."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the folder cannot be written, or knows no locks
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "wb"))
            end = time.monotonic() + PATIENCE
            while not _try_lock(file.fileno()) and time.monotonic() < end:
                time.sleep(_TICK)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _SealedFiles(caching.IndexDataCacheFile):
    """Numba's index and data files with a checksum at their ends; what is damaged is a miss, and is written anew.

    So is what names a class that is no longer there: files are unpickled before their stamp is compared, and another
    version of this package may have written them.
    """

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())

    def _load_index(self) -> dict[Any, str]:
        if _whole(self._index_path):
            with contextlib.suppress(AttributeError, ImportError):
                index: dict[Any, str] = super()._load_index()
                return index
        return {}

    def _load_data(self, name: str) -> Any:
        if _whole(self._data_path(name)):
            with contextlib.suppress(AttributeError, ImportError):
                return super()._load_data(name)
        raise OSError("damaged, or of another version")  # as a file that is not there


def _whole(path: str) -> bool:
    size = hashlib.sha256().digest_size
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


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
