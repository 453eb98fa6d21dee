"""The provenance of a result, such as code version, libraries, processor, duration and peak memory.

A cell may be computed in several sessions by different processes, from different
commits or on different machines. Each session has its own record, which does not change after the session.
"""

import contextlib
import dataclasses
import functools
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final, cast

import llvmlite.binding
from numba.core import config

from replaybench.runtime.configuration import Within

_CONTAINER: Final = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return the memory in bytes that is available to new processes, within the limit of a container."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit, used = (int((_CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current"))
        # Cached files count as used memory, but the system frees them on demand.
        lines = (_CONTAINER / "memory.stat").read_text().splitlines()
        cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):  # no container, or one without a limit
        return free
    return min(free, limit - used + cached)


def _reset_peak_memory() -> None:
    # Systems other than Linux cannot reset it.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


LIBRARIES: Final = (
    *("replaybench", "numpy", "scipy", "numba", "llvmlite", "gymnasium", "h5py", "xarray"),
    *("mujoco", "pybullet", "torch"),
)
_PATIENCE: Final = 5.0


@dataclass(frozen=True)
class Code:
    """The code, libraries and machine that computed a result.

    Attributes:
        commit: Git commit of the package. None if the package is not under git.
        dirty: Whether the package's files differed from the commit. None if the package is not under git.
        versions: Versions of Python and of the installed `LIBRARIES`, by name.
        processor: Model of the processor, and of the GPU if a GPU was used.
        target: LLVM's name of the processor for which kernels were compiled.
        system: Operating system.
    """

    commit: str | None
    dirty: bool | None
    versions: dict[str, str]
    processor: str
    target: str
    system: str


@dataclass(frozen=True)
class ComputeSession:
    """The part of a computation that one process did without interruption.

    Attributes:
        code: Code, libraries and machine of the process.
        started: Start time in UTC, such as `2026-11-22T08:00:00Z`.
        seconds: Duration in seconds by a monotonic clock.
        memory: Peak memory in bytes.
    """

    code: Code
    started: str
    seconds: Annotated[float, Within(0, 1e12, "s")]
    memory: Annotated[int, Within(0, 2**63 - 1, "bytes")]


class Stopwatch:
    """A measurement of the current computing session, which begins when the object is created.

    `earlier` contains the earlier sessions of the same computation. `gpu` is the model of the GPU, if one is used.
    """

    def __init__(self, earlier: Sequence[ComputeSession] = (), gpu: str = "") -> None:
        self._earlier, self._code, self._started = tuple(earlier), this_code(), utc_now()
        if gpu:
            self._code = dataclasses.replace(self._code, processor=f"{self._code.processor}, {gpu}")
        self._began = time.monotonic()
        _reset_peak_memory()

    def sessions(self) -> tuple[ComputeSession, ...]:
        """Return the earlier sessions and the current session, which ends at the time of the call."""
        return (
            *self._earlier,
            ComputeSession(self._code, self._started, time.monotonic() - self._began, _peak_memory()),
        )


def session_facts(sessions: Sequence[ComputeSession]) -> dict[str, Any]:
    """Return the metadata about computing sessions for a file.

    The entry `sessions` contains one table per session, and `seconds` is the sum of their durations.
    """
    return {
        "sessions": [dataclasses.asdict(session) for session in sessions],
        "seconds": sum(session.seconds for session in sessions),
    }


def utc_now() -> str:
    """Return the current date and time in UTC as text, such as `2026-11-22T08:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@functools.cache
def this_code() -> Code:
    """Return the code, libraries and machine of this process, as found by the first call."""
    versions, settings = {"python": platform.python_version()}, cast(Any, config)
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    target = str(settings.CPU_NAME or llvmlite.binding.get_host_cpu_name())
    return Code(*_git_state(), versions, _processor(), target, platform.platform())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the package's files, and whether the files differ from the commit.

    The commit and the flag are None for a package outside git, and for a package that is only installed inside another
    repository.
    """
    if _git("ls-files", "--error-unmatch", "provenance.py") is None:
        return None, None
    changes = _git("status", "--porcelain", "--", "..")
    return _git("rev-parse", "HEAD"), None if changes is None else bool(changes)


def _git(*words: str) -> str | None:
    """Return the output of a git command for the repository of this file, or None if git fails or is missing."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    options: dict[str, Any] = {"cwd": Path(__file__).parent, "env": clean, "timeout": _PATIENCE}
    try:
        done = subprocess.run(["git", "--no-optional-locks", *words], capture_output=True, text=True, **options)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
