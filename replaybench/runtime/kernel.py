"""Kernels, which are functions that Numba compiles, and a cache of their machine code on disk.

One process compiles a kernel while others wait for the result. Cached code is verified before use, and damaged code is
compiled again. Numba's own cache would need less code here, but also generates machine code for functions that only
kernels call. A first sweep would then take 16 to 23 % more CPU time (DDPG with FULL[PER], two runs of each).
"""

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

from replaybench.runtime.errors import UserError

# The environment alone configures Numba: a file `.numba_config.yaml` in the working folder may be a stranger's.
config._config_fname = ""
config.reload_config()


def cache_dir() -> Path:
    """Return the folder of this package's cache, which need not exist.

    The folder is `$REPLAYBENCH_CACHE`, else `$XDG_CACHE_HOME/replaybench`, else `~/.cache/replaybench`. The environment
    variables are read at every call.
    """
    if own := os.environ.get("REPLAYBENCH_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "replaybench"
    return Path(os.path.expanduser("~")) / ".cache" / "replaybench"


def why_not_kept() -> str:
    """Return an error message if the cache folder cannot be written, else an empty string."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return (
            f"the cache folder {folder} cannot be written ({error.strerror}): every process compiles "
            "kernels and solves references again; set REPLAYBENCH_CACHE to another folder"
        )


_PACKAGE: Final = Path(__file__).resolve().parents[1]
_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+(\S+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_SETTINGS: Final = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "ENABLE_AVX")
"""Numba's settings that change machine code but are missing in Numba's cache keys."""


def machine_code_hash(*parts: str | bytes) -> str:
    """Return a hash of the compiler and of all parts from which machine code is made: sources, files and options."""
    versions = [numba.__version__, llvmlite.__version__, np.__version__, *(getattr(config, s) for s in _SETTINGS)]
    content = hashlib.sha256(repr(versions).encode())
    for part in parts:
        content.update(b"\0" + (part.encode() if isinstance(part, str) else part))
    return content.hexdigest()[:20]


@functools.cache
def kernel_digest(file: Path) -> str:
    """Return a hash of a source file, of the files that it imports, and of the compiler.

    The hash covers direct and indirect imports of files of this package, and of files in the folder of a user's file.
    """
    reached, left = set[Path](), [file.resolve()]
    while left:
        if (path := left.pop()) not in reached:
            reached.add(path)
            left += _imports(path)
    return machine_code_hash(*map(_source, sorted(reached)))


@functools.cache
def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Return the files of this package or of the user that a file imports, also in functions or for type checkers."""
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
    """Return the file of a module in the folder of the user's file `path`, or None."""
    file = path.parent.joinpath(*module.split(".")).with_suffix(".py") if module.strip(".") else path
    return file if _PACKAGE not in path.parents and file != path and file.is_file() else None


class _Bitcode(JITCodeLibrary):
    """A library of LLVM bitcode that is linked into other libraries, without machine code of its own."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        content: tuple[str, str, bytes] = self.serialize_using_bitcode()
        return content


class _Compiler(_FunctionCompiler):  # type: ignore[misc]
    """A compiler of one function for calls from Python or, if `linking`, for calls from other kernels."""

    linking = False

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        if not self.linking:
            return super()._compile_core(args, return_type)
        flags: Any = numba_compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        context = self.targetdescr.target_context
        result: Any = numba_compiler.compile_extra(
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
        result = result._replace(entry_point=object())
        context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


class LinkedDispatcher(CPUDispatcher):
    """A Numba dispatcher that generates machine code for a function only when Python calls the function.

    If another compiled function calls the function, LLVM bitcode is linked instead. The function is compiled in
    nopython mode. Numba calls the constructor with the same arguments when it unpickles a function.
    """

    _cache: Any

    def __init__(self, function: Callable[..., Any], locals: Any = None, targetoptions: Any = None) -> None:
        options = {"nopython": True, **(targetoptions or {})}
        super().__init__(function, locals, options)
        self._compiler = _Compiler(function, self.targetdescr, options, self.locals, numba_compiler.Compiler)
        self._superseded: list[Any] = []

    def store(self, locator: type[caching._CacheLocator]) -> None:
        """Cache compiled results in the folder that a Numba locator chooses. Raise `RuntimeError` if it has none."""
        self._cache = Stored(self.py_func, locator, self._compiler)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the function for another compiled function that calls it, without generating machine code."""
        before, self._compiler.linking = self._compiler.linking, True
        try:
            return super().get_call_template(args, kws)
        finally:
            self._compiler.linking = before

    def compile(self, sig: Any) -> Any:
        """Compile the function for a signature, to LLVM bitcode for compiled callers or to machine code for Python."""
        with global_compiler_lock:
            arguments = tuple(sigutils.normalize_signature(sig)[0])
            existing: Any = self.overloads.get(arguments)
            if existing is not None and isinstance(existing.library, _Bitcode) and not self._compiler.linking:
                self._superseded.append(self.overloads.pop(arguments))  # callers still use it
            with getattr(self._cache, "sole_compiler", contextlib.nullcontext)():
                return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """Register a compiled result for calls from compiled functions and, if it has machine code, from Python."""
        if isinstance(cres.library, _Bitcode):
            self.overloads[tuple(cres.signature.args)] = cres
            return
        for environment in cres._find_referenced_environments():  # of called functions; Numba has set its own
            cres.codegen.set_env(environment.env_name, environment)
        super().add_overload(cres)


PATIENCE: Final = 180.0
"""Time in seconds that a process waits for another process to compile a kernel before it compiles the kernel."""
_TICK: Final = 0.02


class NotCompiledError(Exception):
    """An error for a kernel (compiled function) that is not in the cache while compilation is disabled."""


_may_compile = True


@contextlib.contextmanager
def stored_kernels_only() -> Iterator[None]:
    """Disable compilation in the `with` block, so that a compiled function outside the cache raises an error."""
    global _may_compile
    before, _may_compile = _may_compile, False
    try:
        yield
    finally:
        _may_compile = before


class _Results(caching.CompileResultCacheImpl):
    """Numba's cache entries, extended by LLVM bitcode of functions that only compiled functions call."""

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        stored, fndesc, environment, signature, objectmode, lifted, annotation, reload, environments = payload
        name, kind, content = stored
        if kind != "bitcode":
            return super().rebuild(target_context, payload)
        library = _Bitcode(target_context.codegen(), name)
        library._final_module = binding.parse_bitcode(content)
        library._finalize_final_module()
        return numba_compiler.compile_result(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=object(),  # callers look the result up by this object
            fndesc=fndesc,
            type_annotation=annotation,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            reload_init=reload,
            referenced_envs=environments,
        )


class _ByContent(caching.UserProvidedCacheLocator):
    """A cache location that is equal for equal source files, whether installed or checked out."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)  # which chooses the cache folder for users' files, such as the examples
        folder = Path(file).resolve().parent
        if folder.is_relative_to(_PACKAGE) and function.__module__.startswith(f"{_PACKAGE.name}."):
            place = ".".join((_PACKAGE.name, *folder.relative_to(_PACKAGE).parts))
            settings: Any = config
            self._cache_path = os.path.join(settings.CACHE_DIR, place)

    def get_source_stamp(self) -> str:
        return ""  # the name of the folder contains a hash of the sources, and Numba's stamp may contain times


class Stored(caching.FunctionCache):
    """A cache of one function's compiled results, in a folder that a Numba cache locator chooses.

    Entries that cannot be used count as missing.
    """

    def __init__(self, function: Callable[..., Any], locator: type[caching._CacheLocator], compiler: _Compiler) -> None:
        self._impl_class: Any = type("_Located", (_Results,), {"_locator_classes": [locator]})
        self._compiler = compiler
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, stamp)
        self._lock_path = os.path.join(self._cache_path, f"{self._impl.filename_base}.lock")
        self._held = contextlib.ExitStack()
        self._depth = 0

    @contextlib.contextmanager
    def sole_compiler(self) -> Iterator[None]:
        """Let other processes wait while this process compiles a kernel inside the `with` block.

        `load_overload` acquires the lock. The lock is released when the outermost of nested blocks ends.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._held.close()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached result for a signature. If there is none, return None, or raise `NotCompiledError`.

        If another process is compiling the function, this method waits for it, but not longer than `PATIENCE`.
        """
        found = super().load_overload(sig, target_context)
        if found is None and not _may_compile:
            raise NotCompiledError
        if found is None and self._depth == 1:  # a deeper compilation holds the lock already
            self._held.enter_context(_locked(self._lock_path))
            found = super().load_overload(sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Cache a compiled result, unless the folder cannot be written."""
        with contextlib.suppress(OSError):  # the disk is full, or the folder was removed
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), self._compiler.linking)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock a file in the `with` block, or continue without the lock after a timeout."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the folder cannot be written, or does not support locks
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "wb"))
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_TICK)
        yield


class _SealedFiles(caching.IndexDataCacheFile):
    """Numba's index and data files with a checksum at the end, so that a damaged file is a cache miss.

    A file that refers to a missing class is a cache miss, too. Another version of this package may have written such a
    file, and Numba unpickles a file before it compares stamps.
    """

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())

    def _load_index(self) -> dict[Any, str]:
        if _is_intact(self._index_path):
            with contextlib.suppress(AttributeError, ImportError):
                index: dict[Any, str] = super()._load_index()
                return index
        return {}

    def _load_data(self, name: str) -> Any:
        if _is_intact(self._data_path(name)):
            with contextlib.suppress(AttributeError, ImportError):
                return super()._load_data(name)
        raise OSError("damaged, or of another version")  # like a missing file


def _is_intact(path: str) -> bool:
    size = hashlib.sha256().digest_size
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function with Numba in nopython mode, and cache its machine code on disk.

    Division by zero gives infinity or NaN, as in NumPy. Cached code is used as long as the source file, the files that
    it imports and the compiler are unchanged. If the cache folder cannot be written, nothing is cached, because the
    folder that Numba would choose may contain outdated code.
    """
    settings: Any = config
    if settings.DISABLE_JIT:
        raise UserError("NUMBA_DISABLE_JIT is set, but replaybench computes with compiled code only; unset it")
    previous = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_dir() / "numba" / kernel_digest(Path(inspect.getfile(function))))
    compiled = LinkedDispatcher(function, targetoptions={"error_model": "numpy"})
    with contextlib.suppress(RuntimeError):
        compiled.store(_ByContent)
    settings.CACHE_DIR = previous
    return cast(F, compiled)


def cached_next_to_source(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function of a generated file and caches the code next to that file.

    The options are Numba's. The name of the file must contain a hash of its content. The decorator raises
    `RuntimeError` if the folder cannot be written.
    """

    def decorate(function: F) -> F:
        compiled = LinkedDispatcher(function, targetoptions=options)
        compiled.store(caching.InTreeCacheLocator)
        return cast(F, compiled)

    return decorate
