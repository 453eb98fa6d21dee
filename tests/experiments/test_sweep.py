"""Sweeps: interruption, files left behind, cells computed once, who computed them."""

import ctypes
import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console

from replaybench.api import sweep
from replaybench.cli.options import EXAMPLES
from replaybench.data.record import read_header, read_record
from replaybench.data.run_folder import RunFolder, claim
from replaybench.experiments import interruption, results_file, workers
from replaybench.experiments import sweep as module
from replaybench.experiments.cell import run_cell
from replaybench.experiments.cell_lookup import find_file
from replaybench.experiments.dataset import assemble
from replaybench.experiments.interruption import Interrupted, Terminated, interruptions, stopping_raises
from replaybench.experiments.plan import plan, plan_warnings, same_runs
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import Cell, Study
from replaybench.experiments.study_record import write_provenance
from replaybench.experiments.sweep import run_sweep
from replaybench.replay.strategies.notation import parse
from replaybench.runtime import provenance
from replaybench.runtime.errors import UserError
from tests.helpers.cells import advanced, run_here, small_study
from tests.helpers.commands import Patch

TINY = small_study(seeds=1, episodes=2, greedy_every=1, capacity=500)


def ending(monkeypatch: Patch, error: BaseException) -> None:
    monkeypatch.setattr(module, "run_locally", Mock(side_effect=error))


def test_killed_at_once_it_leaves_no_results_of_another_study(tmp_path: Path, monkeypatch: Patch) -> None:
    results = tmp_path / "run" / "results.nc"
    monkeypatch.setattr(module, "run_locally", run_here)
    sweep(TINY, tmp_path / "run", workers=1)
    ending(monkeypatch, SystemExit("killed"))
    with pytest.raises(SystemExit):
        sweep(TINY, tmp_path / "run", workers=1)
    assert results.is_file()
    figures, mine = tmp_path / "run" / "figures", tmp_path / "run" / "figures" / "scores-mine.png"
    assert (figures / "scores-PendulumDCSC.svg").is_file()
    mine.touch()
    (figures / "paper").mkdir()
    for other in (figures / "scores-PendulumDCSC.pdf", figures / "paper" / "scores-PendulumDCSC.png"):
        shutil.copyfile(figures / "scores-PendulumDCSC.png", other)
    with pytest.raises(SystemExit):
        sweep(dataclasses.replace(TINY, strategies=("Resv[Uniform]",)), tmp_path / "run", workers=1)
    assert [path for path in figures.rglob("*") if path.is_file()] == [mine]
    assert 'strategies = ["Resv[Uniform]"]' in (tmp_path / "run" / "study.toml").read_text()
    assert not results.exists()


def test_stopped_at_once_it_keeps_the_scores_that_were_there(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(module, "run_locally", run_here)
    monkeypatch.setattr("replaybench.api.draw_figures", lambda *_: [])
    before = sweep(TINY, tmp_path / "run", workers=1)["mu_final"]
    ending(monkeypatch, Interrupted(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        sweep(TINY, tmp_path / "run", workers=1)
    assert np.isfinite(before).all()
    np.testing.assert_array_equal(read_results(tmp_path / "run" / "results.nc")["mu_final"], before)


def test_what_went_wrong_is_told_on_a_full_disk(tmp_path: Path, monkeypatch: Patch) -> None:
    ending(monkeypatch, UserError("the fault"))
    monkeypatch.setattr(results_file, "write_results", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(UserError, match="the fault"):
        sweep(TINY, tmp_path / "run", workers=1)


@pytest.mark.slow
def test_what_an_own_strategy_raises_is_one_line_and_finished_cells_have_results(tmp_path: Path) -> None:
    own, source = tmp_path / "own.py", (EXAMPLES / "newest_first.py").read_text(encoding="utf-8")
    before, line, after = source.partition("draws.probability[:] = np.nan")
    own.write_text(f"{before}draws.idx[:] = [1, 2, 3]{after}", encoding="utf-8")
    assert line
    mixed = dataclasses.replace(TINY, strategies=("FIFO[Uniform]", f"FIFO[{own}:NewestFirst]"))
    told = rf"own.py, line {before.count(chr(10)) + 1}: ValueError: .* while running PendulumDCSC DDPG FIFO\["
    with pytest.raises(UserError, match=told):
        sweep(mixed, tmp_path / "run", workers=1)
    scores = read_results(tmp_path / "run" / "results.nc")["mu_final"].squeeze()
    assert scores.notnull().values.tolist() == [True, False]


@pytest.mark.parametrize("address", ["", "foo", "foo://bar:1", "tls://127.0.0.1:1"])
def test_a_wrong_address_is_refused_before_anything_is_made(address: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Dask scheduler answers"):
        sweep(TINY, tmp_path / "run", cluster=address)
    assert not (tmp_path / "run").exists()


LIMIT = 60.0
"""Seconds after which what does not come is missed."""
MEANT = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
both = pytest.mark.parametrize("sent", MEANT)


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Handle both signals: tests in a shell's background ignore Ctrl-C."""
    kept = {number: signal.signal(number, signal.default_int_handler) for number in MEANT}
    yield
    for number, before in kept.items():
        assert signal.signal(number, before) is signal.default_int_handler


def swallowed(sent: signal.Signals) -> Any:
    """Return a callback of a C library that sends a signal; what it raises is lost, as in LLVM."""
    return ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), sent))


def wait_for(noted: list[KeyboardInterrupt] | None = None) -> None:
    deadline = time.monotonic() + LIMIT
    while not noted and time.monotonic() < deadline:
        time.sleep(0.001)


@both
def test_an_interruption_is_raised_whatever_a_library_made_of_it(sent: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, stopping_raises():
        try:
            os.kill(os.getpid(), sent)
            time.sleep(LIMIT)
        except KeyboardInterrupt:
            raise ValueError("Invalid bounding box") from None
    assert caught.type is MEANT[sent]
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="mine"), stopping_raises():
        raise ValueError("mine")


@both
@pytest.mark.parametrize("end", [False, True], ids=["goes on", "ends at once"])
def test_a_swallowed_interruption_is_raised_again(sent: signal.Signals, end: bool) -> None:
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt) as caught, stopping_raises():
        swallowed(sent)()
        if end:
            sys.exit(0)
        wait_for()
    assert caught.type is MEANT[sent]
    assert sys.unraisablehook is hook
    time.sleep(0.1)  # it is raised once


def test_a_repeated_interruption_counts_once(monkeypatch: Patch) -> None:
    """If another part handles it meanwhile, the command ends as that part decides."""
    due = threading.Event()

    class Held(threading.Timer):
        """A timer that runs only when it is due, however slow the machine is."""

        def run(self) -> None:
            due.wait(LIMIT)
            super().run()

    monkeypatch.setattr(threading, "Timer", Held)
    with pytest.raises(SystemExit), stopping_raises():
        swallowed(signal.SIGINT)()
        with interruptions() as noted:
            due.set()
            wait_for(noted)
        assert len(noted) == 1
        sys.exit(77)
    due.clear()
    with pytest.raises(Terminated), stopping_raises():
        swallowed(signal.SIGINT)()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(LIMIT)
        finally:
            due.set()


def test_two_ctrl_c_at_once_are_one(monkeypatch: Patch) -> None:
    """`timeout --signal INT` sends it to its child, and to the child's group."""
    now = [0.0]
    monkeypatch.setattr(interruption, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with interruptions() as noted:
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert len(noted) == count
            now[0] += 0.2
    with pytest.raises(KeyboardInterrupt) as caught, stopping_raises():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(LIMIT)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGINT)
            raise
    assert caught.value.__context__ is None


@both
def test_an_interruption_while_workers_end_counts(sent: signal.Signals, monkeypatch: Patch) -> None:
    monkeypatch.setattr(workers._WorkerPool, "close", lambda crew: os.kill(os.getpid(), sent))
    with pytest.raises(Interrupted) as caught:
        workers.run_locally(1, [], lambda key, state: None, lambda key, result: None)
    assert caught.value.status == 128 + sent


AFTER_THE_END = """
import os, signal, sys; signal.signal({0}, signal.default_int_handler)
from replaybench.cli import main
sys.exit = lambda status: (os.kill(os.getpid(), {0}), print("end"))
sys.argv[1:] = ["--version"]; main.main()
"""
DURING_IMPORTS = """
import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)
class Early:
    def find_spec(self, name, *_):
        if name == "replaybench.cli.main": signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Early())
from replaybench.__main__ import main; main()
"""


@both
def test_a_signal_after_the_end_changes_nothing(sent: signal.Signals) -> None:
    code = AFTER_THE_END.format(int(sent))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()[-1]) == (0, "", "end")


def test_an_interruption_during_imports_is_one_word() -> None:
    ended = subprocess.run([sys.executable, "-c", DURING_IMPORTS], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "replaybench: stopped\n")


RETENTIONS = ("FIFO", "FULL", "Resv", "Expl", "TDE", "FIFO(3000)")


def make_study(*strategies: str, **changes: Any) -> Study:
    settings: dict[str, Any] = {"seeds": 2, "episodes": 2, "capacity": 400, "greedy_every": 1}
    settings["learner"] = {"DDPG": {"exploration": {"decay_episodes": 1}}}
    return small_study(strategies=strategies, **settings | changes)


@pytest.mark.parametrize("sampling", ["Uniform", "PER+IS", "PERprop+FIS", "AER", "ERE"])
def test_what_is_called_the_same_runs_is_so_to_the_bit_and_nothing_else_is(sampling: str) -> None:
    cells = make_study(*(f"{retention}[{sampling}]" for retention in RETENTIONS)).cells()
    made = {}
    for cell in cells:
        weights = advanced(cell).agent.weights()
        made[cell.id] = b"".join(np.ascontiguousarray(array).tobytes() for array in weights.values())
    groups = same_runs(cells)
    for group in groups:
        assert len({made[cell.id] for cell in group}) == 1
    by_place = parse(cells[0].strategy).sampling.by_place
    assert len(groups) == len(cells) if by_place else len(groups) == len(set(made.values())) < len(cells)
    assert len(same_runs(cells, contents_only=True)) == 1


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
    assert all(len(group) == 1 for group in same_runs(study.cells()))
    assert not [line for line in plan_warnings(study.cells()) if "never fill" in line]


def test_a_warning_names_the_strategies_that_are_the_same(tmp_path: Path) -> None:
    [warning] = plan_warnings(make_study("FIFO[Uniform]", "Resv[Uniform]", "FULL[PER]", "Resv[PER]").cells())[:-1]
    assert "FIFO[Uniform] and Resv[Uniform] keep the same" in warning
    [alone] = plan_warnings(make_study("FIFO[PER]", "Resv[Uniform]").cells())
    assert "Resv[Uniform] keeps every experience" in alone


def test_one_is_computed_and_its_results_stand_under_each_name(tmp_path: Path, monkeypatch: Patch) -> None:
    """Also those that are asked for later; an own computation of the other would have the same numbers."""
    monkeypatch.setattr(module, "run_locally", run_here)
    folder = RunFolder(tmp_path / "run")
    claim(folder.path)
    first = make_study("Resv[Uniform]")
    run_cell(first.cells()[0], folder.cell(first.cells()[0].id), "final")
    study = make_study("FIFO[Uniform]", "Resv[Uniform]", "TDE[Uniform]")
    source, own = first.cells()[0], study.cells()[0]
    assert plan(study, folder, 1).open == []
    data = run_sweep(study, folder.path, 1, None, checkpoint_seconds=60.0, console=Console(quiet=True)).data
    assert np.isfinite(data["reward"]).all()
    assert data["shared_from"].values.ravel().tolist() == [source.id, "", source.id]
    assert np.isfinite(data["seconds"].values.ravel()).tolist() == [False, True, False]
    np.testing.assert_array_equal(read_results(folder.results)["shared_from"], data["shared_from"])
    header, arrays = read_record(folder.cell(own.id) / "scores.h5")
    assert (header.facts["id"], header.facts["cell"]["strategy"]) == (own.id, "FIFO[Uniform]")
    np.testing.assert_array_equal(arrays["reward"], advanced(own).reward)
    told = json.loads(folder.provenance.read_text())
    assert told["cells"][own.id]["shared_from"] == source.id
    computed = sum(session["seconds"] for session in told["cells"][source.id]["sessions"])
    assert told["seconds"] == pytest.approx(computed, abs=1e-3)
    buffer, _ = find_file(folder.path, None, "buffer", strategy="FIFO[Uniform]")
    assert buffer == folder.cell(source.id) / "buffer.h5"
    policy, _ = find_file(folder.path, None, "policy", strategy="FIFO[Uniform]")
    assert policy == folder.cell(own.id) / "policy.safetensors"
    assert plan(study, folder, 1).shared == {}


def test_a_sweep_plans_once_and_leaves_out_what_another_one_finishes_meanwhile(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    study, folder = make_study("FIFO[Uniform]"), RunFolder(tmp_path / "run")
    [cell] = study.cells()

    def planned(*given: Any) -> Any:
        made = plan(*given)
        claim(folder.path)
        run_cell(cell, folder.cell(cell.id), "final")
        return made

    planning, here = Mock(side_effect=planned), Mock(side_effect=run_here)
    monkeypatch.setattr(module, "plan", planning)
    monkeypatch.setattr(module, "run_locally", here)
    assert run_sweep(study, folder.path, 1, None, checkpoint_seconds=60.0, console=Console(quiet=True)).status == 0
    planning.assert_called_once()
    assert cell.id not in {job.key for job in here.call_args.args[1]}


CODE = provenance.this_code()


class Killed(BaseException):
    """What the operating system would do."""


def make_cells(*strategies: str) -> list[Cell]:
    return small_study(strategies=strategies, seeds=2, block=1, episodes=10, capacity=300).cells()


def commit_to(monkeypatch: Patch, commit: str) -> None:
    """Let what runs from now on be another commit's code, on a processor of that name."""
    code = dataclasses.replace(CODE, commit=commit, dirty=False, processor=f"cpu {commit}")
    for name in ("replaybench.runtime.provenance", "replaybench.experiments.study_record"):
        monkeypatch.setattr(f"{name}.this_code", lambda: code)


def test_a_cell_keeps_every_session_and_counts_no_second_twice(tmp_path: Path, monkeypatch: Patch) -> None:
    """An episode takes 10 s; the first process is killed in its sixth, and the clock on the wall is set back always."""
    cell = make_cells("FIFO[Uniform]")[0]
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "time", Mock(side_effect=itertools.count(1e9, -1000.0)))

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
    told = [(session["code"]["commit"], session["seconds"]) for session in facts["sessions"]]
    assert told == [("aaa", 50.0), ("bbb", 30.0), ("ccc", 20.0)]
    assert facts["seconds"] == 100.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.safetensors", "scores.h5", "snapshots.h5"]


def test_results_say_who_computed_which_cell(tmp_path: Path, monkeypatch: Patch) -> None:
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
    lines = [text for text in folder.provenance.read_text().splitlines() if '{"cell": ' in text]
    assert [text.split('"')[1] for text in lines] == [cell.id for cell in cells], "a line a cell"
    commits = [[session["code"]["commit"] for session in told["cells"][cell.id]["sessions"]] for cell in cells]
    assert commits == [["aaa"], ["bbb"], ["ccc"], []]
    assert told["written"]["commit"] == "ddd"
    assert told["seconds"] == pytest.approx(float(data["seconds"].sum()), abs=1e-3)


def test_the_commit_is_the_packages_own(tmp_path: Path, monkeypatch: Patch) -> None:
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
