"""Buffers that never fill: strategies that differ in retention alone are the same runs, and are computed once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import advanced
from rich.console import Console

from replaybench.data.record import read_record
from replaybench.data.run_folder import RunFolder
from replaybench.experiments import tasks as shared_cells
from replaybench.experiments.cell import run_cell
from replaybench.experiments.cells import Choice, chosen_file
from replaybench.experiments.plan import plan, plan_warnings
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import Study
from replaybench.experiments.sweep import run_sweep
from replaybench.replay.strategies.notation import parse

RETENTIONS = ("FIFO", "FULL", "Resv", "Expl", "TDE", "FIFO(3000)")


def make_study(*strategies: str, **changes: Any) -> Study:
    settings: dict[str, Any] = {"seeds": 2, "episodes": 2, "capacity": 400, "greedy_every": 1}
    settings["learner"] = {"DDPG": {"exploration": {"decay_episodes": 1}}}
    return Study(name="t", plants=("PendulumDCSC",), strategies=strategies, **settings | changes)


@pytest.mark.parametrize("sampling", ["Uniform", "PER+IS", "PERprop+FIS", "AER", "ERE"])
def test_what_is_called_the_same_runs_is_so_to_the_bit_and_nothing_else_is(sampling: str) -> None:
    cells = make_study(*(f"{retention}[{sampling}]" for retention in RETENTIONS)).cells()
    made = {}
    for cell in cells:
        run = advanced(cell)
        made[cell.id] = b"".join(np.ascontiguousarray(array).tobytes() for array in run.agent.weights().values())
        run.close()
    groups = shared_cells.same_runs(cells)
    for group in groups:
        assert len({made[cell.id] for cell in group}) == 1
    by_place = parse(cells[0].strategy).sampling.by_place
    assert len(groups) == len(cells) if by_place else len(groups) == len(set(made.values())) < len(cells)
    assert len(shared_cells.same_runs(cells, contents_only=True)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"capacity": 399},
        {"strategies": ("Drop(0.5)*FIFO[Uniform]", "FULL[Uniform]")},
        {"strategies": ("FIFO[Uniform]", "FULL[PER]")},
        {"strategies": ("FIFO[Uniform+ReFER]", "FULL[Uniform]"), "learners": ("V-RACER",), "learner": {}},
    ],
)
def test_other_cells_are_each_their_own(changes: dict[str, Any]) -> None:
    study = dataclasses.replace(make_study("FIFO[Uniform]", "FULL[Uniform]"), **changes)
    assert all(len(group) == 1 for group in shared_cells.same_runs(study.cells()))
    assert not [line for line in plan_warnings(study.cells()) if "never fill" in line]


def test_a_warning_names_the_strategies_that_are_the_same(tmp_path: Path) -> None:
    [warning] = plan_warnings(make_study("FIFO[Uniform]", "Resv[Uniform]", "FULL[PER]", "Resv[PER]").cells())[:-1]
    assert "FIFO[Uniform] and Resv[Uniform] keep the same" in warning
    [alone] = plan_warnings(make_study("FIFO[PER]", "Resv[Uniform]").cells())
    assert "Resv[Uniform] keeps every experience" in alone


def test_one_is_computed_and_its_results_stand_under_each_name(tmp_path: Path) -> None:
    """Also those that are asked for later; an own computation of the other would have the same numbers."""
    folder = RunFolder(tmp_path / "run")
    first = make_study("Resv[Uniform]")
    run_cell(first.cells()[0], folder.cell(first.cells()[0].id), "final")
    study = make_study("FIFO[Uniform]", "Resv[Uniform]", "TDE[Uniform]")
    source, own = first.cells()[0], study.cells()[0]
    assert plan(study, folder, 1).open == []
    quiet: dict[str, Any] = {"checkpoint_seconds": 60.0, "console": Console(quiet=True)}
    data = run_sweep(study, folder.path, 1, None, **quiet).data
    assert np.isfinite(data["reward"]).all()
    assert data["shared_from"].values.ravel().tolist() == [source.id, "", source.id]
    assert np.isfinite(data["seconds"].values.ravel()).tolist() == [False, True, False]
    np.testing.assert_array_equal(read_results(folder.results)["shared_from"], data["shared_from"])
    header, arrays = read_record(folder.cell(own.id) / "scores.h5")
    assert (header.facts["id"], header.facts["cell"]["strategy"]) == (own.id, "FIFO[Uniform]")
    np.testing.assert_array_equal(arrays["reward"], advanced(own).reward)
    told = json.loads(folder.provenance.read_text())
    assert told["cells"][own.id]["shared_from"] == source.id
    assert told["seconds"] == pytest.approx(
        sum(stint["seconds"] for stint in told["cells"][source.id]["stints"]), abs=1e-3
    )
    buffer, _ = chosen_file(folder.path, Choice(strategy="FIFO[Uniform]"))
    assert buffer == folder.cell(source.id) / "buffer.h5"
    policy, _ = chosen_file(folder.path, Choice(strategy="FIFO[Uniform]"), ("policy",))
    assert policy == folder.cell(own.id) / "policy.safetensors"
    assert plan(study, folder, 1).shared == {}
