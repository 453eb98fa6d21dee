"""Compile sources of `replaybench/device/source` for the host (g++) and for GPUs (NVRTC); results are cached.

Both use the same source; see `source/block.cuh`. A source consists of literals of this package and compile-time
constants. The key of the cache contains the source, every file that it can include, the options and the compiler.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import cache_dir

SOURCE: Final = Path(__file__).parent / "source"
THREADS: Final = 256
"""Default number of threads in a block."""

_HOST: Final = ("-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-x", "c++")


def host_library(source: str, threads: int = THREADS, reverse: bool = False) -> ctypes.CDLL:
    """Compile `source` for this processor, with loops over `threads` as phases; `reverse` runs them backwards.

    If the two orders give different results, a thread reads what another thread writes in the same phase.

    Raises:
        UserError: there is no g++ here.
        RuntimeError: the source has an error; the compiler's message is in it.
    """
    options = (*_HOST, f"-DTHREADS={threads}", *["-DREVERSED"] * reverse, f"-I{SOURCE}")

    def compile_to(path: Path) -> None:
        try:
            done = subprocess.run(["g++", *options, "-", "-o", path], input=source, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError("the device's source is compiled for the host by g++, which is not here") from None
        if done.returncode:
            raise RuntimeError(f"g++ rejected the source:\n{done.stderr[:4000]}")

    return ctypes.CDLL(str(_cached(source, options, ".so", compile_to)))


def device_code(source: str, architecture: str, threads: int = THREADS, form: str = "cubin") -> bytes:
    """Return machine code (`cubin`) of `source` for an architecture such as `sm_90`, or `ltoir` for `linked_code`.

    This needs no GPU. Divisions and roots are accurate to 2 ulp, as `--use_fast_math` compiles them.

    Raises:
        UserError: `cuda-core` is missing.
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
    """Return a C struct with these fields, given as ctypes values."""
    kind: Any = type("struct", (ctypes.Structure,), {"_fields_": [(name, type(own)) for name, own in fields.items()]})
    made: ctypes.Structure = kind(**fields)
    return made


def _cached(source: str, options: Iterable[str], ending: str, compile_to: Callable[[Path], Any]) -> Path:
    """Return the file of compiled code in the cache folder; compile it if it is missing."""
    digest = hashlib.sha256("\0".join([source, *options]).encode())
    for path in sorted(SOURCE.glob("*.cuh")):
        digest.update(path.read_bytes())
    folder = cache_dir() / "device"
    target = folder / f"{digest.hexdigest()[:24]}{ending}"
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
    """Return machine code linked from `ltoir` parts, optimised together; needs `cuda-core`, but no GPU."""
    from cuda.bindings import nvjitlink
    from cuda.core import Linker, LinkerOptions, ObjectCode

    def link_to(path: Path) -> None:
        options = LinkerOptions(arch=architecture, link_time_optimization=True)
        path.write_bytes(bytes(Linker(*map(ObjectCode.from_ltoir, parts), options=options).link("cubin").code))

    key = [architecture, "linked", str(nvjitlink.version())]
    digests = "".join(hashlib.sha256(part).hexdigest() for part in parts)
    return _cached(digests, key, ".linked", link_to).read_bytes()
