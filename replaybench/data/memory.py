"""How much memory there is, and how much a process has needed."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Final

_CONTAINER: Final = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return the bytes of memory that new processes can have, within the limit of a container."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit, used = (int((_CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current"))
        # Files that were read or written are counted as used, and given back as soon as memory is asked for.
        lines = (_CONTAINER / "memory.stat").read_text().splitlines()
        cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):  # no container, or one without a limit
        return free
    return min(free, limit - used + cached)


def forget_peak() -> None:
    """Let `peak_memory` count from here on, where the system can (Linux); else it counts from the process's begin."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the most bytes of memory that this process has held at once, since `forget_peak` if the system can."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
