"""Small studies that run in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

STUDY = """
name = "tiny"
seeds = 2
episodes = 12
greedy_every = 4
capacity = 500
plants = ["PendulumDCSC"]
strategies = ["FIFO[Uniform]", "FULL[PER]", "Resv[Uniform]"]
noise = [0.0, 0.02]
"""


@pytest.fixture
def tiny_study(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path
