"""What tests ask of a cell that runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from replaybench.controllers.learner import Learner
from replaybench.data.policy_file import read_policy
from replaybench.data.record import read_record
from replaybench.evidence.contracts import difference
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.progress import Report
from replaybench.experiments.study import Cell, Study, read_study
from replaybench.experiments.study_record import resolved, write_toml
from replaybench.experiments.workers import Job

DRIFTING = f"{Path(__file__).with_name('drifting.py')}:Drifting"
"""A plant whose episodes end early and often, after 20 steps at most."""


def until(stop: int) -> Report:
    """Return what asks a cell to stop after so many rounds."""
    return lambda told: told.done < stop


def advanced(cell: Cell) -> CellRun:
    """Return a run of all episodes."""
    run = CellRun(cell)
    while run.episode < cell.episodes:
        run.advance()
    return run


def arrays_of(folder: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays in the files of a cell, by file and name: `scores/reward`."""
    files = {name: read_record(folder / f"{name}.h5")[1] for name in ("scores", "buffer")}
    files["snapshots"] = read_record(folder / "snapshots.h5", "snapshots")[1]
    files["policy"] = read_policy(folder / "policy.safetensors")[1]
    return {f"{file}/{name}": array for file, arrays in files.items() for name, array in arrays.items()}


def assert_equal_files(one: Path, other: Path) -> None:
    assert not difference(arrays_of(one), arrays_of(other))


def assert_resumes(cell: Cell, folder: Path, stops: Iterable[int]) -> None:
    """A run that is stopped after so many rounds, and resumed each time, leaves the files of an uninterrupted one."""
    whole, parts = folder / "whole", folder / "parts"
    assert run_cell(cell, whole, "final")
    for stop in stops:
        assert not run_cell(cell, parts, "final", report=until(stop))
        assert (parts / "checkpoint.h5").exists()
    assert run_cell(cell, parts, "final")
    assert not (parts / "checkpoint.h5").exists()
    assert_equal_files(whole, parts)


def assert_reads_back(study: Study, folder: Path, home: Path | None = None) -> Study:
    """A study that is written and read has the same cells; return it as it is read. Paths are those from `home`."""
    path, cells = folder / "again.toml", study.cells()
    path.write_text(write_toml(resolved(study, cells, home)), encoding="utf-8")
    again = read_study(path)
    assert [cell.id for cell in again.cells()] == [cell.id for cell in cells]
    return again


def updates_of(run: CellRun) -> int:
    """Return the updates that its learner has done."""
    assert isinstance(run.agent, Learner)
    return int(run.agent.steps[0])


def run_here(count: int, jobs: Sequence[Job], watch: Any, finish: Any) -> None:
    """Do what the workers of a sweep do in this process, in place of `run_locally`: starting them takes seconds."""
    for key, function, arguments, _ in jobs:
        finish(key, function(*arguments, lambda state, key=key: watch(key, state) or True))


def small_study(**changes: Any) -> Study:
    """Return a study of the pendulum with FIFO[Uniform]."""
    return Study(**{"name": "t", "plants": ("PendulumDCSC",), "strategies": ("FIFO[Uniform]",)} | changes)


def small_cell(**changes: Any) -> Cell:
    """Return the first cell of a small study."""
    return small_study(**changes).cells()[0]
