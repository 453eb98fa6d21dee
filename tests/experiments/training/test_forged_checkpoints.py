"""A checkpoint whose facts are wrong, checksum and all, is one line that says what to do."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from replaybench.cli.main import main
from replaybench.data.record import read_record, write_record
from replaybench.experiments.cell import run_cell
from replaybench.experiments.study import Cell, Study
from replaybench.experiments.study_record import write_toml
from replaybench.runtime.errors import UserError

REFUSED: dict[str, list[Any]] = {
    "id": [None, 5, "another"],
    "episode": [None, "1", True, 1.5, math.nan, -1, 2, 10**30],
    "stints": [None, "x", [], {}, [5], [{}]],
}


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(
        name="t", plants=("PendulumDCSC",), strategies=("FIFO[Uniform]",), seeds=1, episodes=2, capacity=300,
        reference="paper",
    )  # fmt: skip


@pytest.fixture(scope="module")
def sound(study: Study, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Path]:
    """A cell and its checkpoint after one of two episodes."""
    [cell] = study.cells()
    folder = tmp_path_factory.mktemp("cell")
    assert not run_cell(cell, folder, "none", report=lambda _: False)
    return cell, folder / "checkpoint.h5"


def forge(source: Path, folder: Path, key: str, value: Any) -> Path:
    header, arrays = read_record(source, "checkpoint")
    folder.mkdir(parents=True)
    write_record(folder / "checkpoint.h5", "checkpoint", {**copy.deepcopy(header.facts), key: value}, arrays)
    return folder / "checkpoint.h5"


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in REFUSED.items() for value in values])
def test_wrong_facts_are_one_line_with_the_remedy(
    key: str, value: Any, sound: tuple[Cell, Path], tmp_path: Path
) -> None:
    cell, source = sound
    path = forge(source, tmp_path / "cell", key, value)
    with pytest.raises(UserError, match=f": remove {path} to run this cell from its start$") as told:
        run_cell(cell, tmp_path / "cell", "none")
    assert "\n" not in str(told.value)


def test_what_was_forged_is_else_gone_on_from(sound: tuple[Cell, Path], tmp_path: Path) -> None:
    cell, source = sound
    forge(source, tmp_path / "cell", "more", 5)
    assert run_cell(cell, tmp_path / "cell", "none")


def test_a_sweep_ends_with_status_2(
    study: Study, sound: tuple[Cell, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell, source = sound
    path = forge(source, tmp_path / "run" / "cells" / cell.id, "episode", "x")
    (tmp_path / "s.toml").write_text(write_toml(study))
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(tmp_path / "s.toml"), "--output", str(tmp_path / "run"), "--workers", "1"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"replaybench: the facts of {path}: episode must be a whole number")
    assert said.count("\n") == 1
