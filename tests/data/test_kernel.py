"""The kernel cache: a second process compiles nothing, and no edit is missed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import replaybench

PROGRAM = """
import numpy as np
from replaybench.controllers.networks.mlp import PopulationMLP, Shape, _forward_all
from replaybench.data.kernel import kernel_digest
out = PopulationMLP(Shape((2, 3, 1)), 1)(np.ones((1, 1, 2), np.float32))
stats = _forward_all.stats
print(kernel_digest(), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def run(package: Path, cache: Path) -> tuple[str, int, int]:
    environment = {"PYTHONPATH": str(package), "REPLAYBENCH_CACHE": str(cache), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment, cwd=package
    )
    digest, hits, misses = done.stdout.split()
    return digest, int(hits), int(misses)


def test_second_process_compiles_nothing_and_an_edit_elsewhere_is_seen(tmp_path: Path) -> None:
    copy = tmp_path / "package"
    shutil.copytree(
        Path(replaybench.__file__).parent, copy / "replaybench", ignore=shutil.ignore_patterns("__pycache__")
    )
    cache = tmp_path / "cache"
    first, second = run(copy, cache), run(copy, cache)
    assert first[1:] == (0, 1)
    assert second == (first[0], 1, 0)
    called = copy / "replaybench" / "controllers" / "networks" / "matmul.py"
    called.write_text(called.read_text() + "\n")
    third = run(copy, cache)
    assert third[0] != first[0]
    assert third[1:] == (0, 1)
