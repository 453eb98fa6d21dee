"""Kernels that kernels call: kept as LLVM code to be linked into their callers, without machine code of their own.

Numba makes machine code and a Python wrapper of every function, again for all that each calls; for kernels that call
kernels that is half of the time. Here a callee becomes machine code only within its caller, or once Python calls it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import binding
from numba.core import compiler, sigutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher


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
    return compiler.compile_result(
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
        flags: Any = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        context = self.targetdescr.target_context
        found: Any = compiler.compile_extra(
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
        pipeline_class: type[compiler.CompilerBase] = compiler.Compiler,
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
