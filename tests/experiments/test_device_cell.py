"""Cells on a device, whose source runs on this processor here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import advanced, arrays_of, assert_equal_files, small_cell, small_study, until
from commands import refused
from rich.console import Console

from replaybench.data.record import read_header, read_record, write_record
from replaybench.data.run_folder import RunFolder
from replaybench.device.program import Host
from replaybench.exchange.offline import offer, replay_offline
from replaybench.exchange.recorded_buffer import read_recording
from replaybench.experiments import device_cell, sweep
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.plan import plan
from replaybench.experiments.study import Cell
from replaybench.replay.buffer_file import load_replay
from replaybench.runtime.errors import UserError

SMALL = {"DDPG": {"actor_hidden": [8, 8], "critic_hidden": [8, 8, 4]}}


def cell_of(strategy: str = "FIFO[Uniform]", **changes: Any) -> Cell:
    usual = {"seeds": 3, "episodes": 6, "capacity": 500, "greedy_every": 2, "noise": (0.01,), "learner": SMALL}
    return small_cell(**{"device": "cuda", "strategies": (strategy,)} | usual | changes)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_cell, "GPU", lambda program, number: Host(program))


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "TDE[PER+IS]", "Expl[PERprop]", "FULL[Uniform+FIS]"])
def test_a_killed_cell_continues_bit_for_bit(strategy: str, tmp_path: Path) -> None:
    cell = cell_of(strategy)
    assert run_cell(cell, tmp_path / "whole", "final")
    for stop in (1, 4):
        assert not run_cell(cell, tmp_path / "parts", "final", report=until(stop))
        assert read_header(tmp_path / "parts" / "checkpoint.h5").facts["episode"] >= stop
    assert run_cell(cell, tmp_path / "parts", "final")
    assert_equal_files(tmp_path / "whole", tmp_path / "parts")
