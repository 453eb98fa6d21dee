"""Sweeps as a user starts them, for what measures them from outside."""

import os
import subprocess
import sys
from pathlib import Path

MIXED = Path(__file__).with_name("endurance.toml")
"""A study of a little of everything."""
WORKERS = int(os.environ.get("ENDURANCE_WORKERS", "2"))
LIMIT_SECONDS = 3600.0
"""What a sweep of seconds never takes, be the machine ever so busy."""


def command(study: Path, folder: Path, *more: object) -> list[str]:
    words = ("sweep", study, "--output", folder, "--workers", WORKERS, "--checkpoint-seconds", 0.2, *more)
    return [sys.executable, "-m", "replaybench", *map(str, words)]


def sweep(study: Path, folder: Path, *more: object) -> subprocess.CompletedProcess[str]:
    """Run a sweep to its end.

    Raises:
        RuntimeError: it did not come to its end.
    """
    done = subprocess.run(command(study, folder, *more), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise RuntimeError(f"a sweep ended with {done.returncode}: {done.stderr}")
    return done


def count(folder: Path) -> int:
    """Return how many cells are done."""
    return sum(1 for _ in folder.glob("cells/*/scores.h5"))
