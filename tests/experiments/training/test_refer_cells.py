"""Cells with ReF-ER: counts stay exact through real episodes, and a resumed run is the uninterrupted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import advanced, assert_equal_files, until

from replaybench.controllers.losses.refer import FAR
from replaybench.experiments.cell import run_cell
from replaybench.experiments.study import Cell, Study

GAUSSIAN = {"exploration": {"form": "gaussian", "truncate": 3.0}}
CASES: Any = [
    ("V-RACER", {"warmup_episodes": 1}, "FarPol[Uniform+ReFER(c=0.05, beta_rate=0.01)]"),
    ("NAF", GAUSSIAN, "Resv[PER+IS+ReFER-2(0.05)]"),
    ("DDPG", GAUSSIAN, "FIFO[Uniform+ReFER-1(0.05)]"),
]


def make_cell(learner: str, settings: dict[str, Any], strategy: str) -> Cell:
    return Study(
        name="t", plants=("PendulumDCSC",), learners=(learner,), learner={learner: settings}, strategies=(strategy,),
        noise=(0.0,), seeds=2, episodes=6, capacity=700, greedy_every=2,
    ).cells()[0]  # fmt: skip


@pytest.mark.parametrize(("learner", "settings", "strategy"), CASES)
def test_counts_agree_with_what_is_stored(learner: str, settings: dict[str, Any], strategy: str) -> None:
    run = advanced(make_cell(learner, settings, strategy))
    traces = run.replay.traces
    assert traces is not None
    rule = run.agent.traces
    np.testing.assert_array_equal(rule.stored_steps, run.replay.count)
    np.testing.assert_array_equal(rule.far, traces.values[:, :, FAR].sum(axis=1))
    assert (rule.far > 0).all()
    assert (run.metrics["kl"][:, -1] > 0).all()
    np.testing.assert_array_equal(run.metrics["far"][:, -1], rule.far / 700)
    if "ReFER-1" not in strategy:
        assert (run.metrics["beta"][:, -1] < 1).all()


@pytest.mark.parametrize(("learner", "settings", "strategy"), CASES)
def test_stopped_and_resumed_equals_uninterrupted(
    learner: str, settings: dict[str, Any], strategy: str, tmp_path: Path
) -> None:
    cell = make_cell(learner, settings, strategy)
    assert run_cell(cell, tmp_path / "whole", "final")
    assert not run_cell(cell, tmp_path / "parts", "final", report=until(4))
    assert run_cell(cell, tmp_path / "parts", "final")
    assert_equal_files(tmp_path / "whole", tmp_path / "parts")
