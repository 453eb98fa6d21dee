"""Compilation of the C++ sources in `replaybench/device/source`, for the CPU by g++ and for GPUs by NVRTC.

The CPU and GPUs use the same source (see `source/block.cuh`). Compiled code is cached. The key of the cache contains
the source, all headers, the options and, for GPUs, the version of the compiler.
"""

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import cache_dir, machine_code_hash

SOURCE: Final = Path(__file__).parent / "source"
THREADS: Final = 256
"""Default number of threads in a thread block."""
MOST_THREADS: Final = 512
"""Largest number of threads in a thread block. A batch has at most one sample for each thread."""

HOST_OPTIONS: tuple[str, ...] = ("-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-x", "c++")
"""Options of g++. They compile quickly, because tests compile many programs."""


def host_library(source: str, threads: int = THREADS, reverse: bool = False) -> ctypes.CDLL:
    """Compile C++ source for the CPU, where the threads of a thread block run one after the other in a loop.

    Args:
        threads: Number of threads in a thread block.
        reverse: Whether the loops run over the threads backwards. If results depend on this, threads have a data race.

    Raises:
        UserError: g++ is not installed.
        RuntimeError: The source has an error. The exception contains the message of the compiler.
    """
    options = (*HOST_OPTIONS, f"-DTHREADS={threads}", *["-DREVERSED"] * reverse, f"-I{SOURCE}")

    def compile_to(path: Path) -> None:
        try:
            done = subprocess.run(["g++", *options, "-", "-o", path], input=source, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError("the device's source is compiled for the host by g++, which is not here") from None
        if done.returncode:
            raise RuntimeError(f"g++ rejected the source:\n{done.stderr[:4000]}")

    return ctypes.CDLL(str(_cached(source, options, ".so", compile_to)))


def device_code(source: str, architecture: str, threads: int = THREADS, form: str = "cubin") -> bytes:
    """Compile C++ source for a GPU. This needs the package `cuda-core`, but no GPU.

    Divisions and roots are accurate to 2 ulp, because the option `--use_fast_math` is used.

    Args:
        architecture: Architecture of the GPU, for example `sm_90`.
        threads: Number of threads in a thread block.
        form: "cubin" for machine code, or "ltoir" for code that `linked_code` links.
    """
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError:
        raise UserError('a GPU needs the package cuda-core: pip install "replaybench[gpu]"') from None
    from cuda.bindings import nvrtc

    options = {
        "arch": architecture,
        "std": "c++17",
        "use_fast_math": True,
        "device_as_default_execution_space": True,
        "define_macro": ("THREADS", str(threads)),
    }
    linked = {"link_time_optimization": True} if form == "ltoir" else {}

    def compile_to(path: Path) -> None:
        program = Program(source, "c++", ProgramOptions(**options, **linked, include_path=str(SOURCE)))
        path.write_bytes(bytes(program.compile(form).code))

    key = [*map(str, options.items()), form, str(nvrtc.nvrtcVersion())]
    return _cached(source, key, f".{form}", compile_to).read_bytes()


def struct(**fields: Any) -> ctypes.Structure:
    """Return a C struct with the given fields, whose values have types of `ctypes`."""
    kind: Any = type("struct", (ctypes.Structure,), {"_fields_": [(name, type(own)) for name, own in fields.items()]})
    made: ctypes.Structure = kind(**fields)
    return made


def _cached(source: str | bytes, options: Iterable[str], ending: str, compile_to: Callable[[Path], Any]) -> Path:
    """Return the path of the compiled code in the cache folder, and compile the source if it is missing there."""
    headers = (path.read_bytes() for path in sorted(SOURCE.glob("*.cuh")))
    folder = cache_dir() / "device"
    target = folder / f"{machine_code_hash(source, *options, *headers)}{ending}"
    if not target.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            folder = Path(tempfile.mkdtemp())  # the next process then compiles the code again
            target = folder / target.name
        # A process that is killed leaves no half-written code.
        part = folder / f".{os.getpid()}-{target.name}"
        compile_to(part)
        os.replace(part, target)
    return target


def linked_code(parts: Sequence[bytes], architecture: str) -> bytes:
    """Link and optimise parts in the form "ltoir" (see `device_code`) together, and return machine code.

    This needs the package `cuda-core`, but no GPU.
    """
    from cuda.bindings import nvjitlink
    from cuda.core import Linker, LinkerOptions, ObjectCode

    def link_to(path: Path) -> None:
        options = LinkerOptions(arch=architecture, link_time_optimization=True)
        path.write_bytes(bytes(Linker(*map(ObjectCode.from_ltoir, parts), options=options).link("cubin").code))

    key = [architecture, "linked", str(nvjitlink.version())]
    return _cached(b"".join(parts), key, ".linked", link_to).read_bytes()
