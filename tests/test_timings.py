"""Timings are stored with where they come from, and running one section again leaves the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks/speed"
SCRIPT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import timings
from pathlib import Path
timings.FOLDER = Path(sys.argv.pop(1))
value = float(sys.argv.pop(1))
row = timings.compared("stepping", value, 2.0, "/s", "a peer", least_ratio=3, at={"members": 8})
timings.main("bench_none.py", {"one:a": lambda: [row], "two": lambda: [timings.Timing("start", value, "s", most=1)]})
"""


def run(folder: Path, value: float, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(BENCHMARKS), str(folder), str(value), *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_sections_are_stored_one_by_one(tmp_path: Path) -> None:
    first = run(tmp_path, 8.0, "--note", "a busy machine")
    assert "4.00×  ok ≥ 3" in first.stdout
    assert "MISSED ≤ 1" in first.stdout
    run(tmp_path, 5.0, "a")
    stored = json.loads((tmp_path / "bench_none.json").read_text(encoding="utf-8"))
    assert stored["one:a"]["timings"] == [
        {
            "what": "stepping", "ours": 5.0, "unit": "/s", "peer": 2.0, "rival": "a peer", "ratio": 2.5,
            "least_ratio": 3, "at": {"members": 8},
        }
    ]  # fmt: skip
    assert stored["two"]["timings"][0]["ours"] == 8.0
    assert stored["two"]["made"]["note"] == "a busy machine"
    assert "note" not in stored["one:a"]["made"]
    assert {"date", "commit", "processor", "cores", "load", "versions"} <= set(stored["one:a"]["made"])


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    refused = run(tmp_path, 1.0, "three")
    assert refused.returncode == 2
    assert "no section three; there are one:a, two" in refused.stderr


@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARKS.glob("bench_*.py")))
def test_every_script_is_run_by_make(script: str) -> None:
    makefile = (BENCHMARKS.parents[1] / "Makefile").read_text(encoding="utf-8")
    assert f"benchmarks/speed/{script}" in makefile


def test_no_script_is_taken_for_a_module_that_others_import() -> None:
    """A script's folder comes first on the path: one named like an installed or optional module would be imported."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import numba"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
