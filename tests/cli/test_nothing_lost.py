"""No command loses a file of the user: each command that writes, in each kind of place.

Computations are replaced by an error, because a place must be accepted or refused before them.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import replaybench
from replaybench.controllers.interface.agent import LearnerSetting, Task
from replaybench.controllers.policies.policy import policy_facts
from replaybench.controllers.registry import load_learner
from replaybench.data.policy_file import write_policy
from replaybench.data.run_folder import RunFolder, claim
from replaybench.envs.ode.pendulum import Pendulum
from replaybench.experiments import sweep as sweeps
from replaybench.experiments.plan import Plan
from replaybench.experiments.results_file import write_results
from replaybench.experiments.workers import Job
from replaybench.reports.figures import all_figures
from replaybench.runtime.atomic import MARK, atomic_path, holding, write_text
from replaybench.runtime.errors import UserError
from tests.helpers.cells import run_here, small_study
from tests.helpers.commands import Capsys, Patch, call, refused
from tests.helpers.made_results import made_results
from tests.helpers.recorded import buffer, collect

Words = tuple[object, ...]
COMPUTES = "here it computes"
STUDY = 'plants = ["PendulumDCSC"]\nstrategies = ["FIFO[Uniform]"]\nseeds = 1\nepisodes = 2  # few\n'


def last_line(capsys: Capsys, *words: object) -> str:
    """Run a command that must be refused, perhaps after warnings, and return the error."""
    capsys.readouterr()
    assert call(*words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("replaybench: ")
    return error


def planned(study: replaybench.Study, *_: object) -> Plan:
    return Plan(study.cells(), [], {}, 0, 0, 0)


@pytest.fixture
def computing(monkeypatch: Patch) -> None:
    """Let each command end where it would compute."""
    computes = Mock(side_effect=UserError(COMPUTES))
    monkeypatch.setattr(sweeps, "plan", planned)
    for place in (
        "experiments.sweep._compute", "evidence.advice.probes.estimate", "cli.baseline.solve",
        "reports.offline.replay_offline", "reports.figures.all_figures.learning_curves", "cli.robustness._evaluated",
    ):  # fmt: skip
        monkeypatch.setattr(f"replaybench.{place}", computes)
    monkeypatch.setattr("replaybench.cli.robustness.conditions", lambda *_: ([], 0))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, results, a buffer, a policy and a log."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "study.toml").write_text(STUDY)
    data = made_results(
        ["PendulumDCSC"], ["DDPG"], ["FIFO[Uniform]", "FULL[PER]"], [0.0], [50.0], seeds=3, episodes=20,
        ends=lambda *_: 0.5, exact=False,
    )  # fmt: skip
    (folder / "run").mkdir()
    write_results(folder / "run" / "results.nc", data)
    buffer(folder / "buffer.h5", collect(Pendulum(), 1, members=1))
    kind, config = load_learner("TD3")
    agent = kind(config(actor_hidden=(8,)), LearnerSetting(Task(1, 1, 0.95, 1.0), 0, range(1), 50.0))
    write_policy(folder / "policy.safetensors", agent.weights(), {"policy": policy_facts("TD3", agent, 50.0)})
    rows = "".join(f"{k / 50:.2f},0.1,0.2,0.3\n" for k in range(40))
    (folder / "log.csv").write_text(f"time,angle,angular_velocity,voltage\n{rows}")
    return folder


FOLDERS: dict[str, tuple[Callable[[Path], Words], str]] = {
    "sweep": (lambda inputs: ("sweep", inputs / "study.toml"), "study.toml"),
    "reproduce": (lambda inputs: ("reproduce", "debruin2018/fig12", "--set", "seeds=1"), "results.nc"),
    "advise": (lambda inputs: ("advise", "--plant", "PendulumDCSC"), "advice.toml"),
    "card": (lambda inputs: ("card", "FULL[PER]"), "card.html"),
    "baseline": (lambda inputs: ("baseline", "PendulumDCSC"), "solution.png"),
    "replay": (lambda inputs: ("replay", inputs / "buffer.h5"), "offline.png"),
    "figures": (lambda inputs: ("figures", inputs / "run"), "scores-PendulumDCSC.png"),
    "robustness": (lambda inputs: ("robustness", inputs, "--parameter", "mass"), "mass.csv"),
}
"""Commands that write several files into a folder, and one of these files."""


def tree(folder: Path) -> dict[str, str | bytes]:
    """Return all links and all contents of files below a folder, but marks."""
    found = sorted(path for path in folder.rglob("*") if path.name != MARK and (path.is_symlink() or path.is_file()))
    return {str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in found}


def foreign(folder: Path, name: str = "thesis.tex") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("mine # with a comment\n")
    (folder / ".thesis.partial").mkdir(exist_ok=True)
    (folder / ".thesis.partial" / "draft").write_text("mine")


def linked(place: Path, name: str = "") -> None:
    foreign(place.parent / "elsewhere", name or "thesis.tex")
    if name:
        claim(place)
    (place / name).symlink_to(place.parent / "elsewhere" / name)


PLACES: dict[str, tuple[bool, Callable[[Path, str], object]]] = {
    "new": (True, lambda place, name: None),
    "empty": (True, lambda place, name: place.mkdir()),
    "own": (True, lambda place, name: claim(place)),
    "foreign": (False, lambda place, name: foreign(place)),
    "foreign, a file of the name": (False, foreign),
    "own, a foreign file of the name": (False, lambda place, name: foreign(claim(place), name)),
    "own, a link of the name": (False, linked),
    "a link to a foreign folder": (False, lambda place, name: linked(place)),
    "a link to nothing": (False, lambda place, name: place.symlink_to(place.parent / "nowhere")),
    "a file": (False, lambda place, name: place.write_text("mine")),
}


@pytest.mark.usefixtures("computing")
@pytest.mark.parametrize("command", FOLDERS)
def test_read_only_folders_are_refused(
    command: str, inputs: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    place, opened = tmp_path / "out", os.open
    place.mkdir()

    def refuse(path: Any, *words: Any, **more: Any) -> int:  # permissions do not bind root
        if str(path).startswith(str(place)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, *words, **more)

    monkeypatch.setattr(os, "open", refuse)
    told = last_line(capsys, *FOLDERS[command][0](inputs), "--output", place)
    assert "cannot write into" in told
    assert "--output" in told
    assert not list(place.iterdir())


@pytest.mark.usefixtures("computing")
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("command", FOLDERS)
def test_folders_are_new_empty_or_own(command: str, where: str, inputs: Path, tmp_path: Path, capsys: Capsys) -> None:
    words, name = FOLDERS[command]
    accepted, prepare = PLACES[where]
    place = tmp_path / "out"
    prepare(place, name)
    before = tree(tmp_path)
    told = last_line(capsys, *words(inputs), "--output", place)
    assert (COMPUTES in told) == accepted, told
    after = tree(tmp_path)
    assert {path: after.get(path) for path in before} == before
    if not accepted:
        assert after == before
    if where in ("new", "empty"):  # nothing stays but what was written, and the marks of such folders
        assert all(len(list(mark.parent.iterdir())) > 1 for mark in tmp_path.rglob(MARK))
        assert where == "empty" or not place.exists() or list(place.iterdir())
    if where == "foreign":
        assert f"choose another --output, such as {place}-2" in told


FILES: dict[str, tuple[Callable[[Path], Words], str, str]] = {
    "init": (lambda inputs: ("init",), "", "out.toml"),
    "examples": (lambda inputs: ("examples",), "", "out"),
    "table": (lambda inputs: ("table", inputs / "run"), "--output", "out.csv"),
    "claims": (lambda inputs: ("claims",), "--output", "out.json"),
    "report": (lambda inputs: ("report", inputs / "run"), "--output", "out.html"),
    "show": (lambda inputs: ("show", "PendulumDCSC", "--seconds", 0.1), "--output", "out.gif"),
    "show --plot": (lambda inputs: ("show", "PendulumDCSC", "--seconds", 0.1), "--plot", "out.csv"),
    "inspect": (lambda inputs: ("inspect", inputs / "buffer.h5"), "--figure", "out.svg"),
    "import": (lambda inputs: ("import", inputs / "log.csv", "--plant", "Pendulum"), "--output", "out.h5"),
    "export": (lambda inputs: ("export", inputs / "buffer.h5"), "", "out.csv"),
    "export-policy": (lambda inputs: ("export-policy", inputs / "policy.safetensors"), "--output", "out.h"),
}
"""Commands that write one file or one new folder, the option that names it, and a name."""
TARGETS: dict[str, Callable[[Path], object]] = {
    "a file": lambda target: target.write_text("mine"),
    "a folder": foreign,
    "a link": lambda target: linked(target),
    "a link to nothing": lambda target: target.symlink_to("nowhere"),
    "below a file": lambda target: target.parent.write_text("mine"),
}


@pytest.mark.parametrize("where", ["new", *TARGETS])
@pytest.mark.parametrize("command", FILES)
def test_files_are_new(command: str, where: str, inputs: Path, tmp_path: Path, capsys: Capsys) -> None:
    words, option, name = FILES[command]
    target = tmp_path / "made" / name if where in ("new", "below a file") else tmp_path / name
    given = (*words(inputs), *([option] if option else []), target)
    if where == "new":
        assert call(*given) == 0
        assert target.exists()
        return
    TARGETS[where](target)
    before = tree(tmp_path)
    refused(capsys, *given)
    assert tree(tmp_path) == before


def test_what_a_run_folder_already_holds(inputs: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """A report and figures are replaced in the run folder only if replaybench wrote them, and never through links."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "results.nc").write_bytes((inputs / "run" / "results.nc").read_bytes())
    (run / "report.html").write_text("mine")
    assert "was not written by replaybench" in refused(capsys, "report", run)
    (tmp_path / "elsewhere").mkdir()
    (run / "figures").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(capsys, "figures", run)
    (run / "figures").unlink()
    (run / "report.html").unlink()
    monkeypatch.setattr(all_figures, "_DRAWN", {"scores": all_figures._DRAWN["scores"]})
    for _ in range(2):
        assert call("report", run) == 0
        assert call("figures", run, "--format", "svg") == 0
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.usefixtures("computing")
def test_the_study_beside_which_it_runs_stays_as_it_is(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    assert f"such as {tmp_path / 'run'}" in refused(capsys, "sweep", "study.toml", "--output", ".")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("folder", ["cells/1", "solved", "figures", "figures/paper", "tensorboard"])
def test_no_file_below_a_run_folder_is_written_through_a_link(folder: str, tmp_path: Path) -> None:
    run = claim(tmp_path / "run")
    link = run / folder
    (tmp_path / "elsewhere").mkdir()
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{folder} is a link"):
        write_text(link / "deep" / "file", "x")
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "short").symlink_to(run)  # a link to the whole run folder is the user's own
    write_text(tmp_path / "short" / "file", "x")
    assert (run / "file").read_text() == "x"


def removed(run: Path) -> None:
    (run / MARK).unlink()
    run.rmdir()


def renamed(run: Path) -> None:
    run.rename(run.with_name("renamed"))


def replaced(run: Path) -> None:
    renamed(run)
    claim(run)


@pytest.mark.parametrize("lose", [removed, renamed, replaced])
def test_a_run_folder_that_is_lost_is_not_made_again(lose: Callable[[Path], None], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunFolder(run).locked() as held:
        lose(run)
        before = tree(tmp_path)
        with pytest.raises(UserError, match="was removed, renamed or replaced"), holding(held):
            write_text(run / "cells" / "1" / "scores.h5", "x")
    assert tree(tmp_path) == before
    assert run.exists() == (lose is replaced)


def test_a_sweep_notices_that_its_folder_is_lost(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    def compute(count: int, jobs: Sequence[Job], *functions: Any) -> None:
        renamed(tmp_path / "run")
        run_here(count, [job for job in jobs if job.stops], *functions)

    monkeypatch.setattr(sweeps, "run_locally", compute)
    words = ("--plant", "PendulumDCSC", "--strategy", "FIFO[Uniform]", "--seeds", 1, "--episodes", 2)
    assert "was removed, renamed or replaced" in last_line(capsys, "sweep", *words, "--output", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not list((tmp_path / "renamed").glob("cells/*/*"))


def test_results_land_where_the_user_was(tmp_path: Path, monkeypatch: Patch) -> None:
    """Code of users may change the working folder while it runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()

    def compute(*arguments: Any) -> None:
        os.chdir(tmp_path / "sub")
        run_here(*arguments)

    monkeypatch.setattr(sweeps, "run_locally", compute)
    monkeypatch.setattr("replaybench.api.draw_figures", lambda *_: [])
    replaybench.sweep(small_study(seeds=1, episodes=2, greedy_every=1), "run", workers=1)
    assert (tmp_path / "run" / "results.nc").is_file()
    assert not list((tmp_path / "sub").iterdir())


def test_after_an_error_no_new_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for path in (tmp_path / "old" / "new" / "data-v0", tmp_path / "newer" / "data-v0"):
        with pytest.raises(RuntimeError), atomic_path(path, folder=True):
            raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


def test_matplotlib_reads_no_settings_of_the_working_folder() -> None:
    import matplotlib

    from replaybench.reports.figures.style import style

    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "red"}), style():
        assert not matplotlib.rcParams["text.usetex"]
        assert matplotlib.rcParams["axes.facecolor"] == "white"


def test_numba_reads_no_settings_of_the_working_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    from numba.core import config

    (tmp_path / ".numba_config.yaml").write_text("developer_mode: 1\n")
    monkeypatch.chdir(tmp_path)
    config.reload_config()
    assert not vars(config)["DEVELOPER_MODE"]
