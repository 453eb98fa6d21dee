"""Every cell says who computed it; whoever comes later adds to that and changes nothing of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from replaybench.data.record import read_header
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.cell import run_cell
from replaybench.experiments.dataset import assemble
from replaybench.experiments.study import Cell, Study
from replaybench.experiments.study_record import write_provenance
from replaybench.runtime import provenance

CODE = provenance.this_code()


class Killed(BaseException):
    """What the operating system would do."""


def make_cells(*strategies: str) -> list[Cell]:
    return Study(
        name="t", plants=("PendulumDCSC",), strategies=strategies, seeds=2, block=1, episodes=10, capacity=300
    ).cells()


def commit_to(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """Let what runs from now on be another commit's code, on a processor of that name."""
    code = dataclasses.replace(CODE, commit=commit, dirty=False, processor=f"cpu {commit}")
    for module in ("replaybench.runtime.provenance", "replaybench.experiments.study_record"):
        monkeypatch.setattr(f"{module}.this_code", lambda: code)


def test_a_cell_keeps_every_stint_and_counts_no_second_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode takes 10 s; the first process is killed in its sixth, and the clock on the wall is set back always."""
    cell = make_cells("FIFO[Uniform]")[0]
    clock, day = [0.0], [1e9]

    def now() -> float:
        day[0] -= 1000.0
        return day[0]

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "time", now)

    def report(episode: int, stop: int, kill: int = 99) -> bool:
        clock[0] += 10.0
        if episode == kill:
            raise Killed
        return episode < stop

    commit_to(monkeypatch, "aaa")
    with pytest.raises(Killed):
        run_cell(cell, tmp_path, "none", 0.0, lambda told: report(told.done, 99, kill=6))
    commit_to(monkeypatch, "bbb")
    clock[0] = 3.0  # the machine was started again
    assert not run_cell(cell, tmp_path, "none", 0.0, lambda told: report(told.done, 8))
    commit_to(monkeypatch, "ccc")
    assert run_cell(cell, tmp_path, "none", 0.0, lambda told: report(told.done, 99))
    facts = read_header(tmp_path / "scores.h5", "scores").facts
    told = [(stint["code"]["commit"], stint["seconds"]) for stint in facts["stints"]]
    assert told == [("aaa", 50.0), ("bbb", 30.0), ("ccc", 20.0)]
    assert facts["seconds"] == 100.0


def test_results_say_who_computed_which_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks of seeds and a second strategy, each after another commit; who assembles them restamps none."""
    first, second = make_cells("FIFO[Uniform]"), make_cells("FIFO[Uniform]", "FULL[Uniform]")[2:]
    folder = RunFolder(tmp_path)
    for cell, commit in zip((*first, *second), ("aaa", "bbb", "ccc"), strict=False):
        commit_to(monkeypatch, commit)
        assert run_cell(cell, folder.cell(cell.id), "none")
    commit_to(monkeypatch, "ddd")
    cells = [*first, *second]
    data = assemble(cells, {}, {cell.id: folder.cell(cell.id) for cell in cells}).squeeze(drop=True)
    assert data["commit"].values.ravel().tolist() == ["aaa", "bbb", "ccc", ""]
    assert (data["memory"].sel(strategy="FIFO[Uniform]") > 50e6).all()
    write_provenance(folder, "t", cells, complete=False)
    told = json.loads(folder.provenance.read_text())
    commits = [[stint["code"]["commit"] for stint in told["cells"][cell.id]["stints"]] for cell in cells]
    assert commits == [["aaa"], ["bbb"], ["ccc"], []]
    assert told["written"]["commit"] == "ddd"
    assert told["seconds"] == pytest.approx(float(data["seconds"].sum()), abs=1e-3)


def test_the_commit_is_the_packages_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit makes it dirty; a package that lies in another project's repository has none."""
    package = tmp_path / "replaybench" / "data"
    package.mkdir(parents=True)
    shutil.copy(provenance.__file__, package)
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # as within a hook

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        command = ["git", "--git-dir", str(tmp_path / ".git"), "--work-tree", str(tmp_path), *identity, *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "another project's")
    assert provenance._git_state() == (None, None)
    git("add", ".")
    git("commit", "-q", "-m", "ours")
    assert provenance._git_state() == (git("rev-parse", "HEAD"), False)
    (tmp_path / "notes.txt").write_text("no code")
    assert provenance._git_state()[1] is False
    (package / "further.py").write_text("pass")
    assert provenance._git_state()[1] is True
