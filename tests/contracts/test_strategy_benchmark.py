"""The script that takes every strategy through real training checks what it says that it checks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from replaybench.experiments.study import Cell, Study
from replaybench.replay.strategies.interface import RunningSampling

FOLDER = Path(__file__).parents[2] / "benchmarks/evidence"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script, cut down to four episodes of which every second is watched."""
    monkeypatch.syspath_prepend(str(FOLDER))
    specification = importlib.util.spec_from_file_location("strategy_contract", FOLDER / "strategy_contract.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "strategy_contract", module)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "EPISODES", 4)
    monkeypatch.setattr(module, "EVERY", 2)
    return module


def cell(strategy: str) -> Cell:
    study = Study(
        name="t", plants=("PendulumDCSC",), strategies=(strategy,), seeds=1, episodes=4, capacity=500,
        learner={"DDPG": {"actor_hidden": (8,), "critic_hidden": (8,)}},
    )  # fmt: skip
    return study.cells()[0]


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FIFO[PER]"])
def test_annotations_are_checked_whether_or_not_the_learner_is_asked(script: Any, strategy: str) -> None:
    assert "| 2 right | bit for bit |" in script.contract(cell(strategy))


def test_a_sampler_that_heeds_errors_which_it_does_not_need_breaks_the_promise(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def annotate(self: RunningSampling, idx: np.ndarray, td_error: np.ndarray) -> None:
        self.stream.state += np.uint64(1)

    monkeypatch.setattr(RunningSampling, "annotate", annotate)
    with pytest.raises(SystemExit, match="sampling_stream heeds errors"):
        script.contract(cell("FIFO[Uniform]"))
