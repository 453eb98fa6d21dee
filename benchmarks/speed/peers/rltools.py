"""RLtools, built from the headers in its Python package and linked with MKL from its own."""

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

from replaybench.runtime.kernel import cache_dir

SOURCE = Path(__file__).with_name("pendulum.cpp")
FLAGS = ("-std=c++17", "-Ofast", "-march=native", "-DRL_TOOLS_BACKEND_ENABLE_MKL")
LIBRARIES = ("libmkl_intel_lp64.so", "libmkl_sequential.so", "libmkl_core.so")


def peers_folder() -> Path:
    """Return where programs of peers are kept, which can always be built again."""
    return cache_dir() / "peers"


def missing() -> str:
    """Say what keeps the peers from being built and run, and the remedy; empty if nothing does."""
    lacking = [name for name in ("rltools", "mkl", "mkl-include", "jax") if not _installed(name)]
    if lacking:
        return f"{', '.join(lacking)} not installed: pip install -c constraints.txt -e '.[bench]'"
    return "" if shutil.which("g++") else "no g++ to build RLtools with: install a C++ compiler"


def _installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def _file_of(package: str, start: str) -> Path:
    """Return the file of an installed package whose name begins so.

    Raises:
        FileNotFoundError: the package has none.
    """
    for file in files(package) or ():
        if file.name.startswith(start):
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"package {package} has no file {start}")


def compiler_command(learner: str, batch: int, units: int, output: Path) -> list[str]:
    """Return the command that builds one learner, `SAC` or `TD3`, of two hidden layers of `units`."""
    found = importlib.util.find_spec("rltools")
    assert found is not None
    assert found.submodule_search_locations is not None
    headers = Path(found.submodule_search_locations[0]) / "external" / "rl_tools" / "include"
    libraries = [_file_of("mkl", name) for name in LIBRARIES]
    sizes = [f"-DREPLAYBENCH_{name}={value}" for name, value in (("BATCH", batch), ("UNITS", units))]
    return [
        "g++", *FLAGS, f"-DREPLAYBENCH_LEARNER={learner.lower()}", *sizes, f"-I{headers}",
        f"-I{_file_of('mkl-include', 'mkl.h').parent}", str(SOURCE), "-o", str(output), "-Wl,--no-as-needed",
        *map(str, libraries), f"-Wl,-rpath,{libraries[0].parent}", "-lpthread", "-lm", "-ldl",
    ]  # fmt: skip


def build(command: list[str]) -> None:
    """Run a compiler.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[:2000]}")


@functools.cache
def built(learner: str, batch: int, units: int) -> Path:
    """Return the program of one learner, built now unless the very same was built before on this machine."""
    folder = peers_folder()
    command = compiler_command(learner, batch, units, Path("program"))
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0] if Path("/proc/cpuinfo").exists() else ""
    flags = "".join(line for line in cpu.splitlines() if line.startswith(("model name", "flags")))
    told = "\n".join([*command, SOURCE.read_text(encoding="utf-8"), version("rltools"), version("mkl"), flags])
    program = folder / hashlib.sha256(told.encode()).hexdigest()[:16]
    if not program.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            made = Path(place) / "program"
            build(compiler_command(learner, batch, units, made))
            os.replace(made, program)
    return program
