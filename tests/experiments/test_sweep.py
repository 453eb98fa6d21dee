"""What a sweep leaves in its folder when it does not come to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.api import sweep
from replaybench.data.run_folder import RunFolder
from replaybench.experiments import results_file
from replaybench.experiments import sweep as module
from replaybench.experiments.interruption import Interrupted
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import Study, read_study
from replaybench.experiments.study_record import replaced
from replaybench.runtime.errors import UserError


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "tiny.toml"
    path.write_text(
        'seeds = 1\nepisodes = 2\ngreedy_every = 1\ncapacity = 500\nplants = ["PendulumDCSC"]\n'
        'strategies = ["FIFO[Uniform]"]\n'
    )
    return read_study(path)


def changed(study: Study, folder: Path) -> Study:
    path = folder / "changed.toml"
    path.write_text((folder / "tiny.toml").read_text().replace("FIFO", "Resv"))
    return read_study(path)


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def end(*_: Any) -> None:
        raise error

    monkeypatch.setattr(module, "run_locally", end)


def test_killed_at_once_it_leaves_no_results_of_another_study(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "run" / "results.nc"
    sweep(study, tmp_path / "run", workers=1)
    ending(monkeypatch, SystemExit("killed"))
    with pytest.raises(SystemExit):
        sweep(study, tmp_path / "run", workers=1)
    assert results.is_file()
    figures, mine = tmp_path / "run" / "figures", tmp_path / "run" / "figures" / "scores-mine.png"
    assert (figures / "scores-PendulumDCSC.svg").is_file()
    mine.touch()
    (figures / "paper").mkdir()
    for other in (figures / "scores-PendulumDCSC.pdf", figures / "paper" / "scores-PendulumDCSC.png"):
        other.touch()
    with pytest.raises(SystemExit):
        sweep(changed(study, tmp_path), tmp_path / "run", workers=1)
    assert [path for path in figures.rglob("*") if path.is_file()] == [mine]
    assert 'strategies = ["Resv[Uniform]"]' in (tmp_path / "run" / "study.toml").read_text()
    assert not results.exists()


def test_run_again_unchanged_it_is_the_study_that_the_folder_holds(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells of an earlier one lie beside its own."""
    sweep(study, tmp_path / "run", workers=1)
    other = changed(study, tmp_path)
    sweep(other, tmp_path / "run", workers=1)
    folder = RunFolder(tmp_path / "run")
    assert replaced(folder, other, other.cells()) is None
    assert "finished cell(s) of it stay in cells/" in str(replaced(folder, study, study.cells()))
    ending(monkeypatch, SystemExit("killed"))
    with pytest.raises(SystemExit):
        sweep(other, tmp_path / "run", workers=1)
    assert folder.results.is_file()
    folder.provenance.write_text('{"cells": [[]]}')
    assert "made by another version" in str(replaced(folder, other, other.cells()))


def test_stopped_at_once_it_keeps_the_scores_that_were_there(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sweep(study, tmp_path / "run", workers=1)["mu_final"]
    ending(monkeypatch, Interrupted(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        sweep(study, tmp_path / "run", workers=1)
    assert np.isfinite(before).all()
    np.testing.assert_array_equal(read_results(tmp_path / "run" / "results.nc")["mu_final"], before)


def test_what_went_wrong_is_told_though_results_cannot_be_written(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    ending(monkeypatch, UserError("the fault"))
    monkeypatch.setattr(results_file, "write_results", full)
    with pytest.raises(UserError, match="the fault"):
        sweep(study, tmp_path / "run", workers=1)


BROKEN = """
from dataclasses import dataclass

from replaybench.replay.strategies.interface import RunningSampling, Sampling


@dataclass(frozen=True)
class Broken(Sampling):
    def start(self, view):
        return Running(view)


class Running(RunningSampling):
    def draw(self, context, count, offers, draws):
        draws.idx[:] = [1, 2, 3]
"""


def test_what_an_own_strategy_raises_is_one_line_and_finished_cells_have_results(study: Study, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(BROKEN)
    path = tmp_path / "mixed.toml"
    path.write_text((tmp_path / "tiny.toml").read_text().replace('m]"', f'm]", "FIFO[{own}:Broken]"'))
    with pytest.raises(UserError, match=r"own.py, line 15: ValueError: .* while running PendulumDCSC DDPG FIFO\["):
        sweep(read_study(path), tmp_path / "run", workers=1)
    scores = read_results(tmp_path / "run" / "results.nc")["mu_final"].squeeze()
    assert scores.notnull().values.tolist() == [True, False]


@pytest.mark.parametrize("address", ["", "foo", "foo://bar:1", "tls://127.0.0.1:1"])
def test_an_address_that_is_none_is_refused_before_the_folder_is_made(
    address: str, study: Study, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no Dask scheduler answers"):
        sweep(study, tmp_path / "run", cluster=address)
    assert not (tmp_path / "run").exists()
