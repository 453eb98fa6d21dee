"""Commands on the files of a finished sweep: what they print, draw, write and refuse; the same from Python."""

import csv
import io
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr

import replaybench
import replaybench.api
from replaybench.baselines.controllers import run_episode
from replaybench.baselines.grid_choice import reference_solution
from replaybench.baselines.references import normalise, reference
from replaybench.data.policy_file import read_policy
from replaybench.data.record import read_record, write_record
from replaybench.envs.interface.channel import Channel
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.experiments import progress as plain_lines
from replaybench.experiments.results_file import write_results
from replaybench.experiments.robustness import Row, read_rows
from replaybench.experiments.sweep import Outcome
from replaybench.runtime.atomic import MARK
from replaybench.runtime.errors import ReplaybenchWarning, UserError
from tests.helpers.cells import run_here
from tests.helpers.commands import Capsys, Patch, call, printed, refused
from tests.helpers.tiers import slow

Buffers = dict[tuple[str, str], Path]
DRAWING = "replaybench.reports.figures.all_figures"
stopped = Mock(side_effect=KeyboardInterrupt)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of two plants, without figures."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "study.toml").write_text(
        'name = "cli"\nseeds = 3\nepisodes = 12\ngreedy_every = 3\ncapacity = 900\n'
        'plants = ["PendulumDCSC", "Magman"]\nstrategies = ["FIFO[Uniform]", "FULL[PER]"]\nnoise = [0.0]\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{DRAWING}.draw_figures", lambda *_: [])
        assert call("sweep", folder / "study.toml", "--output", folder / "run", "--workers", 1) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def pendulum(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run with the results of one plant only, of which there are fewer figures to draw."""
    folder = tmp_path_factory.mktemp("one") / "run"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("figures", "buffer.h5"))
    write_results(folder / "results.nc", replaybench.open_results(run).data.sel(plant=["PendulumDCSC"]))
    return folder


@pytest.fixture(scope="module")
def buffers(run: Path) -> Buffers:
    facts = {path: read_record(path, "buffer")[0].facts for path in run.glob("cells/*/buffer.h5")}
    return {(told["plant"], told["strategy"]): path for path, told in facts.items()}


def test_sweep_writes_labelled_results_policies_and_buffers(run: Path) -> None:
    with xr.open_dataset(run / "results.nc", engine="h5netcdf") as data:
        assert data["reward"].dims == ("plant", "learner", "strategy", "noise", "frequency", "seed", "episode")
        assert data["strategy"].values.tolist() == ["FIFO[Uniform]", "FULL[PER]"]
        for name in ("reward", "reward_greedy", "mu_final"):
            assert np.isfinite(data[name].values).all(), name
        assert set(data["cell"].values.ravel().tolist()) == {path.name for path in run.glob("cells/*")}
        for axis in data.dims:
            named = data[axis].dtype.kind not in "if"
            assert data[axis].attrs.get("units") == (None if named else "Hz" if axis == "frequency" else "1"), axis
    assert len(list(run.glob("cells/*/scores.h5"))) == len(list(run.glob("cells/*/buffer.h5"))) == 4
    assert read_policy(next(run.glob("cells/*/policy.safetensors")))[1]["actor.0.weight"].shape[0] == 3
    facts = json.loads((run / "provenance.json").read_text())
    assert facts["complete"]
    assert facts["written"]["versions"]["numpy"] == np.__version__


def robust(run: Path, *words: Any) -> dict[tuple[str, float], Row]:
    """Run the command on the pendulum, and return its rows by controller and value."""
    place = run / "robustness" / f"{words[1]}.csv"
    place.unlink(missing_ok=True)
    assert call("robustness", run, "--plant", "PendulumDCSC", "--no-rivals", *words) == 0
    return {(row.controller, row.value): row for row in read_rows(place)}


def test_robustness_evaluates_stored_policies_and_controllers_of_the_trained_plant(run: Path) -> None:
    found, nominal = robust(run, "--parameter", "mass", "--factors", 1, 2), PendulumDCSC()
    stored = [read_record(path, "scores") for path in run.glob("cells/*/scores.h5")]
    greedy = {tuple(header.facts["cell"][each] for each in ("plant", "strategy")): own for header, own in stored}
    known, mass = reference(nominal), nominal.mass
    for strategy in ("FIFO[Uniform]", "FULL[PER]"):
        row = found[f"DDPG {strategy}", mass]  # the last greedy episode is that of the final policy
        last = greedy["PendulumDCSC", strategy]["reward_greedy"][:, -1]
        assert row.reward == pytest.approx(last.mean(), rel=1e-12)
        assert row.reward_low < row.reward < row.reward_high
        assert row.score == pytest.approx(normalise(row.reward, known).item(), abs=1e-12)
        assert (row.seeds, row.trained, row.learner) == (3, mass, "DDPG")
        assert found[f"DDPG {strategy}", 2 * mass].reward != row.reward
    for label, score in (
        ("random control", known.random), ("linear-quadratic regulator", known.lqr), ("dynamic programming", known.dp),
    ):  # fmt: skip
        assert found[label, mass].reward == score
    heavy = PopulationEnv(PendulumDCSC(mass=2 * mass))
    solution = reference_solution(nominal, 50.0).solution
    assert found["dynamic programming", 2 * mass].reward == run_episode(solution.greedy, heavy).item()
    assert len(found) == 10


def test_robustness_changes_delay_and_noise_without_telling_controllers(run: Path) -> None:
    late = robust(run, "--parameter", "delay", "--values", 0.03, "--strategy", "FULL[PER]")
    unaware = reference(PendulumDCSC().through(Channel(delay=0.03)))
    assert late["dynamic programming", 0.03].reward == unaware.dp_unaware
    assert late["linear-quadratic regulator", 0.03].reward == unaware.lqr
    assert late["dynamic programming", 0.03].score < 0.99
    noisy = robust(run, "--parameter", "noise", "--values", 0.0, 0.3, "--strategy", "FULL[PER]")
    assert noisy["DDPG FULL[PER]", 0.3].reward != noisy["DDPG FULL[PER]", 0.0].reward
    assert noisy["dynamic programming", 0.3].score < noisy["dynamic programming", 0.0].score == 1.0


def test_robustness_is_reported_and_never_replaces_a_table(
    run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    words = ("robustness", run, "--plant", "PendulumDCSC", "--no-rivals", "--parameter", "mass")
    (run / "robustness").mkdir(exist_ok=True)
    robust(run, "--parameter", "mass", "--factors", 1, 2)
    assert {path.name for path in (run / "robustness").glob("mass*")} == {"mass.csv", "mass.png", "mass.svg"}
    with monkeypatch.context() as patch:  # refused before plants are compiled
        patch.setattr("replaybench.cli.robustness.conditions", pytest.fail)
        assert "mass.csv exists already; move it away or choose another --output" in refused(capsys, *words)
    assert "PendulumDCSC, 50 Hz, noise 0: mean score by mass" in printed(capsys, *words, "--output", tmp_path / "other")
    (run / "robustness" / "notes.csv").write_text("plant,mine\n1,2\n")
    assert call("report", run, "--output", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "PendulumDCSC, noise 0, 50 Hz: mass" in page
    assert "notes.csv is no table that `replaybench robustness` wrote" in page
    (run / "robustness" / "notes.csv").unlink()


def test_robustness_stopped_writes_nothing(run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr("replaybench.experiments.robustness.run_episode", stopped)
    words = ("--plant", "PendulumDCSC", "--no-rivals", "--parameter", "mass", "--output", tmp_path / "out")
    assert call("robustness", run, *words) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mas",), "unknown parameter of PendulumDCSC: 'mas'; did you mean mass"),
        (("colour",), "valid: damping, delay, gravity, inertia, length, mass, noise, resistance, torque_constant"),
        (("delay",), "the delay of PendulumDCSC is 0 in this run, .* --values 0 0.01 0.02"),
        (("delay", "--values", 4.0), "delay = 4 s is as long as an episode"),
        (("noise", "--values", -0.1), "noise must be at least 0"),
        (("mass", "--factors", 0.5, 0), "mass must be positive, not 0.0"),
        (("mass", "--factors", 2, "--values", 0.1), "--factors and --values both give"),
        (("mass", "--no-rivals", "--references", "pid.py:MyPID"), "leaves out your --references, too"),
        (("mass", "--strategy", "TDE[PER]"), "has no cell of strategy 'TDE.PER.'"),
        (("mass", "--references", "pid.py:MyPID"), "unknown controller of this study"),
    ],
)
def test_robustness_refuses_what_it_cannot_evaluate(
    run: Path, words: Any, told: str, tmp_path: Path, capsys: Capsys
) -> None:
    asked = ("robustness", run, "--output", tmp_path / "out", "--plant", "PendulumDCSC", "--parameter", *words)
    assert re.search(told, refused(capsys, *asked))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_figures_are_drawn_again_for_print(pendulum: Path, tmp_path: Path, capsys: Capsys) -> None:
    assert call("figures", pendulum) == 0
    assert {path.suffix for path in pendulum.glob("figures/*")} == {".png", ".svg"}
    told = printed(capsys, "figures", pendulum, "--style", "paper", "--output", tmp_path / "paper")
    assert str(tmp_path / "paper" / "captions.txt") in told
    drawn = {path.stem for path in (pendulum / "figures").glob("*PendulumDCSC.svg")}
    assert {path.stem for path in (tmp_path / "paper").glob("*.pdf")} == drawn
    assert "policies-PendulumDCSC" in drawn
    copied = tmp_path / "run"
    shutil.copytree(pendulum, copied)
    study = (copied / "study.toml").read_text(encoding="utf-8")
    (copied / "study.toml").write_text(study.replace("PendulumDCSC", f"{tmp_path}/none.py:Mine"), encoding="utf-8")
    assert "names Python files: policies are not drawn" in printed(capsys, "figures", copied, "--format", "svg")
    assert "holds runs and is none itself; name one of them: " in refused(capsys, "figures", tmp_path)
    (tmp_path / "empty").mkdir()
    assert "holds no results.nc" in refused(capsys, "figures", tmp_path / "empty")


@pytest.mark.slow
def test_figures_of_a_killed_sweep_show_its_finished_cells(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    """SIGKILL leaves no results.nc; here one cell is not finished, either."""
    killed = tmp_path / "killed"
    shutil.copytree(run, killed, ignore=shutil.ignore_patterns("figures", "results.nc", "buffer.h5"))
    [*finished, last] = sorted(killed.glob("cells/*/scores.h5"))
    last.unlink()
    assert "finished cells are drawn" in printed(capsys, "figures", killed)
    assert list((killed / "figures").glob("learning_curves-*.png"))
    for scores in finished:
        scores.unlink()
    assert "no finished cell" in refused(capsys, "figures", killed)


def test_stopped_while_drawing_it_says_where_the_scores_are(run: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr("replaybench.experiments.sweep.run_locally", run_here)
    monkeypatch.setattr(f"{DRAWING}.draw_figures", stopped)
    assert call("sweep", run.parent / "study.toml", "--output", run) == 130
    assert f"scores are in {run / 'results.nc'}, run the same command again to draw" in capsys.readouterr().err


def test_a_stopped_replay_begins_anew(run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    words = ("replay", next(run.glob("cells/*/buffer.h5")), "--seeds", 2, "--output", tmp_path / "off")
    with monkeypatch.context() as patch:
        patch.setattr("replaybench.reports.offline.replay_offline", stopped)
        assert call(*words, "--updates", 10) == 130
    assert "nothing was written, the same command starts again" in capsys.readouterr().err
    assert not (tmp_path / "off").exists()
    with monkeypatch.context() as patch:
        patch.setattr("replaybench.reports.offline.draw_offline", stopped)
        assert call(*words, "--updates", 10) == 130
    assert sorted(os.listdir(tmp_path / "off")) == [MARK, "policy.safetensors"]
    assert "policy.safetensors exists already" in refused(capsys, *words, "--updates", 11)  # it is another's
    assert call(*words, "--updates", 10) == 0
    assert (tmp_path / "off" / "scores.h5").is_file()


def test_dry_run_runs_nothing(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    chosen = ("--set", "plants=Magman", "strategies=FULL[PER]")
    told = printed(capsys, "sweep", run.parent / "study.toml", "--output", tmp_path / "none", "--dry-run", *chosen)
    assert all(word in told for word in ("1 cell, 1 to run", "time", "memory", "disk"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("strategy", ["FULL[PER]", "FIFO[Uniform]"])
def test_replay_learns_from_a_sweeps_buffer(strategy: str, buffers: Buffers, tmp_path: Path, capsys: Capsys) -> None:
    words = ("replay", buffers["PendulumDCSC", "FULL[PER]"], "--strategy", strategy, "--updates", 60)
    told = printed(capsys, *words, "--output", tmp_path / "out")
    for row in (f"offline: DDPG, {strategy}", "online: FULL[PER]", "the recording itself: ", "dynamic programming"):
        assert row in told
    assert "exists already" in refused(capsys, *words, "--output", tmp_path / "out")
    header, arrays = read_record(tmp_path / "out" / "scores.h5")
    assert header.facts["strategy"] == strategy
    assert np.isfinite(arrays["reward_greedy"]).all()
    assert arrays["updates"][-1] == 60


def test_replay_streams_a_buffer(buffers: Buffers, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.01)
    words = ("replay", buffers["PendulumDCSC", "FIFO[Uniform]"], "--stream")
    told = printed(capsys, *words, "--updates", 1000, "--output", tmp_path / "out")
    assert "offline: DDPG, streamed, 1000 updates" in told
    assert re.search(r"^after .* s: \d+ of 1000 updates, .* left$", told, re.MULTILINE), "not silent for minutes"
    header, arrays = read_record(tmp_path / "out" / "scores.h5")
    assert header.facts["strategy"] == "streamed"
    assert np.isfinite(arrays["reward_greedy"]).all()
    for further in (("--strategy", "FULL[PER]"), ("--capacity", 10)):
        assert "--stream" in refused(capsys, *words, *further)


def test_a_strategy_that_needs_more_than_a_recording_is_refused(buffers: Buffers, capsys: Capsys) -> None:
    for source, strategy, part in (
        (("Magman", "FIFO[Uniform]"), "TDE[Uniform]", "td_error"),
        (("PendulumDCSC", "FULL[PER]"), "Synth(state=0.5)*FIFO[Uniform]", "use Synth(action=…) before"),
        (("PendulumDCSC", "FULL[PER]"), "Synth(action=0.5)*Expl[Uniform]", "use Synth(action=…) before"),
    ):
        assert part in refused(capsys, "replay", buffers[source], "--strategy", strategy)


def test_inspect_and_verify(run: Path, capsys: Capsys) -> None:
    cell = next(run.glob("cells/*"))
    assert call("export-policy", cell / "policy.safetensors") == 0
    for path in (run, run / "results.nc", *(path for path in cell.iterdir() if path.suffix != ".h")):
        told = printed(capsys, "inspect", path, "--verify")
        assert path.name in told.replace("\n", "")
        assert "verified" in told
    (cell / "policy.h").unlink()
    assert "inspect opens .h5" in refused(capsys, "inspect", run / "study.toml")


def test_the_interface_takes_paths_as_text(run: Path) -> None:
    whole = replaybench.open_results(run / "results.nc")
    assert replaybench.open_results(f"{run / 'results.nc'}").equals(whole)
    assert replaybench.open_results(run).equals(whole)
    assert replaybench.read_study(f"{run / 'study.toml'}") == replaybench.read_study(run / "study.toml")
    buffer = next(run.glob("cells/*/buffer.h5"))
    assert len(replaybench.load_replay(f"{buffer}").members) == len(replaybench.load_replay(buffer).members)


def test_damaged_and_foreign_files_are_one_line(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    cell = next(run.glob("cells/*"))
    for source in (cell / "buffer.h5", cell / "policy.safetensors", run / "results.nc"):
        damaged = tmp_path / source.name
        damaged.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
        assert str(damaged) in refused(capsys, "inspect", damaged)
    for command in ("table", "report"):
        assert "buffer.h5 is a buffer file and no results.nc" in refused(capsys, command, cell / "buffer.h5")
    assert "is a scores file" in refused(capsys, "replay", cell / "scores.h5")
    assert "no such file" in refused(capsys, "replay", tmp_path / "none.h5")
    assert "not a run folder" in refused(capsys, "inspect", tmp_path)


def test_a_buffer_of_another_plant_or_of_none_is_refused(buffers: Buffers, tmp_path: Path, capsys: Capsys) -> None:
    header, arrays = read_record(buffers["PendulumDCSC", "FULL[PER]"])
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for facts, part in (
        ({"plant": "Magman", "parameters": {}}, "belongs to another plant"),
        ({"plant": f"{tmp_path / 'evil.py'}:Evil"}, "if you trust that file"),
    ):
        write_record(tmp_path / "b.h5", "buffer", {**header.facts, **facts}, arrays)
        assert part in refused(capsys, "replay", tmp_path / "b.h5")
    assert not (tmp_path / "ran").exists()
    none = np.zeros((len(arrays["count"]), 0), np.uint8)
    write_record(tmp_path / "b.h5", "buffer", header.facts, {**arrays, "synthetic": none})
    assert call("inspect", tmp_path / "b.h5", "--verify") == 0


def test_an_unwritable_folder_is_one_line(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "file").write_text("x")
    words = ("sweep", run.parent / "study.toml", "--output", tmp_path / "file" / "run")
    assert "cannot write into" in refused(capsys, *words)
    assert os.listdir(tmp_path) == ["file"]


def test_a_cell_is_found_by_what_it_is(run: Path, buffers: Buffers, capsys: Capsys) -> None:
    """Instead of by the id of its folder; what is still open is asked for."""
    told = printed(capsys, "inspect", run)
    assert all(path.name in told for path in run.glob("cells/*"))
    assert "state complete" in told
    one = ("inspect", run, "--plant", "PendulumDCSC", "--noise", "0.0", "--frequency", "50")
    assert "member 2" in printed(capsys, *one, "--strategy", "FULL[PER(0.7)]", "--seed", "2")
    told = refused(capsys, *one)
    assert "2 cells of" in told
    assert "--strategy 'FIFO[Uniform]' or 'FULL[PER]'" in told
    assert "no cell of seed 7; there is 0–2" in refused(capsys, *one, "--seed", "7")
    assert "no cell of noise 0.02; there is 0" in refused(capsys, "inspect", run, "--noise", "0.02")
    file = buffers["Magman", "FULL[PER]"]
    assert "--noise, which chooses among" in refused(capsys, "inspect", file, "--noise", "0")
    assert "--member counts" in refused(capsys, *one, "--strategy", "FULL[PER]", "--seed", 1, "--member", 1)


def test_a_film_leaves_no_option_without_effect(run: Path, capsys: Capsys, tmp_path: Path) -> None:
    film = ("show", "PendulumDCSC", "--output", tmp_path / "film.gif")
    told = refused(capsys, *film, "--strategy", "FULL[PER]", "--member", 1)
    assert "there is no policy for --strategy, --member; name its file or run folder with --policy" in told
    file = next(run.glob("cells/*/policy.safetensors"))
    assert "--frequency chooses a cell of a run folder" in refused(capsys, *film, "--policy", file, "--frequency", 10)
    assert not (tmp_path / "film.gif").exists()
    (tmp_path / "film.gif").write_text("precious")
    assert "exists already" in refused(capsys, *film)
    assert (tmp_path / "film.gif").read_text() == "precious"


def test_controllers_of_the_study_that_a_plot_leaves_out_are_named(
    run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr("replaybench.reports.time_series.write_episode", lambda *_: [])
    shutil.copytree(run, tmp_path / "run")
    study = (tmp_path / "run" / "study.toml").read_text()
    (tmp_path / "run" / "study.toml").write_text(
        study.replace("references = []", 'references = ["a.py:Mine", "b.py:B"]')
    )
    words = ("show", "PendulumDCSC", "--policy", tmp_path / "run", "--strategy", "FULL[PER]", "--plot", "episode.png")
    told = printed(capsys, *words, "--references", "./b.py:B")
    assert "left out: a.py:Mine; if you trust these files, add --references a.py:Mine" in told
    assert "left out" not in printed(capsys, *words, "--references", "a.py:Mine", "b.py:B")
    assert "left out" not in printed(capsys, *words, "--no-rivals")


def test_what_shows_results_says_where_there_are_none(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    nothing = replaybench.open_results(run).data.copy(deep=True)
    nothing["reward"][:] = nothing["episode_steps"][:] = np.nan
    write_results(tmp_path / "results.nc", nothing)
    assert "holds no finished cell yet; a table needs at least one" in refused(capsys, "table", tmp_path)
    told = refused(capsys, "figures", run / "results.nc")
    assert f"is a file; figures are drawn from its run folder: replaybench figures {run}" in told


def test_replay_of_a_cell_with_changed_settings(run: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    chosen = ("replay", run, "--plant", "PendulumDCSC", "--from-strategy", "FIFO[Uniform]", "--seed", 1)
    short = (*chosen, "--updates", 20, "--seeds", 2)
    draw_offline = Mock(return_value=tmp_path / "offline.png")
    monkeypatch.setattr("replaybench.reports.offline.draw_offline", draw_offline)
    assert call(*short, "--output", tmp_path / "as-it-was") == 0
    online = {"online: FIFO[Uniform]": 1, "online, exploring: FIFO[Uniform]": 1}
    scores = draw_offline.call_args.args[0]
    assert {name: len(rewards) for name, rewards in scores.online.items()} == online
    changed = ("--set", "tau=0.5", "--discount", "0.5", "--set=exploration.first_amplitude=0.5")
    assert call(*short, *changed, "--output", tmp_path / "changed") == 0
    before, after = (read_record(tmp_path / name / "scores.h5") for name in ("as-it-was", "changed"))
    assert after[0].facts["settings"] == {"tau": 0.5, "exploration": {"first_amplitude": 0.5}}
    assert before[0].facts["recording"] == 1
    assert not np.array_equal(before[1]["reward_greedy"], after[1]["reward_greedy"])
    np.testing.assert_array_equal(before[1]["reward_greedy"][:, 0], after[1]["reward_greedy"][:, 0])
    assert "did you mean tau" in refused(capsys, *chosen, "--set", "tua=1")
    assert "--set takes NAME=VALUE" in refused(capsys, *chosen, "--set", "tau")
    assert "--discount must be" in refused(capsys, *chosen, "--discount", "1.5")
    told = printed(capsys, *short, "--evaluation-noise", "0.02", "--output", tmp_path / "noisy")
    assert "online" not in told, "that was measured under another noise"


def test_a_run_folders_policy_is_loaded_by_what_it_is(run: Path) -> None:
    with pytest.raises(UserError, match=r"4 cells .* plant = PendulumDCSC or Magman; strategy = 'FIFO\[Uniform\]'"):
        replaybench.load_policy(run)
    policy = replaybench.load_policy(run, plant="Magman", strategy="FULL[PER]", seed=2)
    assert (policy.facts["cell"]["plant"], policy.facts["cell"]["strategy"]) == ("Magman", "FULL[PER]")
    path = run / "cells" / policy.facts["id"] / "policy.safetensors"
    seen = np.zeros(policy.agent.task.observation_size, np.float32)
    np.testing.assert_array_equal(policy.predict(seen)[0], replaybench.load_policy(path, 2).predict(seen)[0])


@pytest.mark.parametrize("suffix", [".csv", *slow([".parquet"])])
def test_files_for_other_programs(suffix: str, run: Path, buffers: Buffers, tmp_path: Path, capsys: Capsys) -> None:
    pandas: Any = pytest.importorskip("pandas")
    read = pandas.read_csv if suffix == ".csv" else pandas.read_parquet
    steps, scores = tmp_path / f"steps{suffix}", tmp_path / f"scores{suffix}"
    path = buffers["PendulumDCSC", "FULL[PER]"]
    assert call("export", path, steps, "--member", 1) == 0
    header, arrays = read_record(path, "buffer")
    found, count = read(steps), int(arrays["count"][1])
    order = np.argsort(arrays["serial"][1, :count])
    angle, voltage = header.facts["states"][0], header.facts["actions"][0]
    assert (angle["name"], angle["unit"], voltage["unit"]) == ("angle", "rad", "V")
    for column, name, array in (
        ("angle [rad]", angle, arrays["observation"][1, order, 0]),
        ("voltage [V]", voltage, arrays["action"][1, order, 0]),
    ):
        physical = name["center"] + name["scale"] * array.astype(float)
        np.testing.assert_allclose(found[column], physical, rtol=1e-12, err_msg=column)
    assert set(found["recording"]) == {1}
    assert "exists already" in refused(capsys, "export", path, steps)
    assert "leave --output out" in refused(capsys, "export", path, tmp_path / f"x{suffix}", "--output", tmp_path)
    assert call("table", run, "--output", scores) == 0
    rows, data = read(scores), replaybench.open_results(run)
    assert len(rows) == 4
    for _, row in rows.iterrows():
        point = {axis: row[axis] for axis in ("plant", "learner", "strategy", "noise", "frequency")}
        assert row["mu_final_mean"] == pytest.approx(float(data["mu_final_mean"].sel(point)))
        assert row["seeds"] == 3
    assert "must end in .csv, .json, .md or .parquet" in refused(capsys, "table", run, "--output", "x.xls")


@pytest.mark.slow
def test_curves_from_elsewhere_are_drawn_over_steps(run: Path, pendulum: Path, tmp_path: Path, capsys: Capsys) -> None:
    monitor = tmp_path / "monitor.csv"
    monitor.write_text('#{"t_start": 1}\nr,l,t\n-3e4,200,1\n-2e4,200,2\n')
    assert "one plant" in refused(capsys, "figures", run, "--overlay", f"SB3={monitor}")
    assert "LABEL=FILE" in refused(capsys, "figures", run, "--overlay", f"{monitor}")
    assert call("figures", pendulum, "--axis", "steps", "--format", "png", "--output", tmp_path / "drawn") == 0


PRINTING = ("table", "table --compare strategy", "list", "inspect", "claims")
FORMS = [(form, command) for form in ("json", "csv", "md") for command in PRINTING]


@pytest.mark.parametrize(("form", "command"), slow(FORMS, but=[*FORMS[:5], ("csv", "table"), ("md", "table")]))
def test_tables_are_printed_in_formats(form: str, command: str, run: Path, capsys: Capsys) -> None:
    name, *options = command.split()
    told = printed(capsys, name, *([run] if name in ("table", "inspect") else []), *options, "--format", form)
    word = {"list": "Magman", "claims": "debruin2018"}.get(name, "FULL[PER]")
    if form == "md":
        assert re.search(r"^\| .* \|\n\|( --- \|)+\n\| .* \|$", told, re.MULTILINE)
        assert word in told
        return
    rows = json.loads(told) if form == "json" else list(csv.DictReader(io.StringIO(told)))
    assert len(rows) > 3
    assert any(word in str(row.values()) for row in rows)
    if command == "table":
        data = replaybench.open_results(run)
        found = [float(row["mu_final_mean"]) for row in rows if row["plant"] == "Magman" and word in row["strategy"]]
        assert found == [data["mu_final_mean"].sel(plant="Magman", strategy=word).item()]


def test_other_lines_do_not_disturb_a_format(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    assert call("table", run, "--format", "json", "--output", tmp_path / "scores.md") == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 4
    assert "scores.md" in err
    assert (tmp_path / "scores.md").read_text(encoding="utf-8").count("\n") == 6
    claims = ("claims", run, "--output")
    assert printed(capsys, *claims, tmp_path / "claims.json", "--format", "csv").startswith("paper,id,")
    assert "again.json" not in printed(capsys, *claims, tmp_path / "again.json", "--format", "md")


def test_claims_name_and_leave_out_what_is_no_run(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    """As a pattern such as `results/*` names it."""
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    others = sorted(tmp_path.iterdir())
    capsys.readouterr()
    assert call("claims", run, *others) == call("claims", run)
    assert capsys.readouterr().err.count("left out, because they are no run folders") == 1
    assert "has no study.toml" in refused(capsys, "claims", *others)
    assert "has no study.toml" in refused(capsys, "claims", run, tmp_path / "misspelt")


def test_a_finished_sweep_ends_with_verdicts_and_next_command(run: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """All in 25 lines of 80 columns."""
    monkeypatch.setattr("replaybench.experiments.sweep.run_locally", run_here)
    monkeypatch.setattr(f"{DRAWING}.draw_figures", lambda *_: [run / "a.png"])
    monkeypatch.setattr("replaybench.cli.console._WIDTH", 80)
    again = ("sweep", run.parent / "study.toml", "--output", run)
    lines = printed(capsys, *again).splitlines()
    screen = lines[next(place for place, line in enumerate(lines) if line.startswith("PendulumDCSC")) :]
    assert len(screen) <= 25
    assert max(map(len, screen[:-1])) <= 80
    verdicts = [line for line in screen if line.startswith("verdict  ")]
    assert [line.split()[1] for line in verdicts] == ["PendulumDCSC:", "Magman:"]
    assert screen[screen.index(verdicts[0]) - 1] == ""
    assert shlex.split(screen[-1]) == ["next", "replaybench", "report", str(run)]
    assert not printed(capsys, *again, "-q")


def test_a_table_of_declared_strategies_is_a_family_of_its_own(run: Path, capsys: Capsys) -> None:
    text = printed(capsys, "table", run, "--strategies", "full[per]", "FIFO[Uniform]")
    assert "compared with FULL[PER]" in text
    assert "sign-flip" not in text
    assert "sign-flip" in printed(capsys, "table", run, "--explain")
    assert "did you mean FULL[PER]" in refused(capsys, "table", run, "--strategies", "FULL[PRE]")


def test_a_sweep_whose_runs_all_failed_ends_with_1(
    run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    data = replaybench.open_results(run).data
    data["reward"][:] = np.nan
    monkeypatch.setattr("replaybench.experiments.sweep.run_sweep", lambda *_, **__: (data, [], 0))
    assert call("sweep", run.parent / "study.toml", "--output", tmp_path / "x") == 1
    assert capsys.readouterr().out.count("every run failed") == 2


def test_results_show_in_notebooks(run: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a notebook's kernel sets it
    found = replaybench.open_results(run)
    assert "\x1b" not in repr(found)
    assert isinstance(found.data, xr.Dataset)
    assert found["mu_final"].dims == found.data["mu_final"].dims
    assert found.sizes == found.data.sizes
    html = found._repr_html_()
    assert html.count("<table>") == 2
    assert "<td>FULL[PER]</td>" in html
    assert all("verdict  PendulumDCSC: no significant difference" in shown for shown in (html, repr(found)))
    assert found.plot(plant="Magman")._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="did you mean Magman"):
        found.plot(plant="Magmn")
    with pytest.raises(UserError, match="plant of these results"):
        found.plot()
    with pytest.raises(AttributeError):
        found.mu_finl  # noqa: B018


def test_python_warns_and_shows_the_progress_of_a_sweep(
    run: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    """The same warnings and progress as the command, which prints both; neither is part of what is printed."""
    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.001)
    monkeypatch.setattr(f"{DRAWING}.draw_figures", lambda *_: [])
    monkeypatch.setattr(replaybench.api, "draw_figures", lambda *_: [])
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("figures"))
    warned = pytest.warns(ReplaybenchWarning, match="explores nearly as much")
    with warned as found:
        replaybench.sweep(copy / "study.toml", copy)
    assert Path(found[0].filename) == Path(__file__)
    lines = capsys.readouterr()
    assert not lines.out
    assert re.search(r"^after .* s: 4/4 cells", lines.err, re.MULTILINE)
    with warned:
        replaybench.sweep(copy / "study.toml", copy, progress=False)
    assert not any(capsys.readouterr())
    assert call("sweep", copy / "study.toml", "--output", copy) == 0
    assert re.search(r"^warning: DDPG explores nearly as much", capsys.readouterr().err, re.MULTILINE)
    assert call("sweep", copy / "study.toml", "--output", copy, "--quiet") == 0
    assert not any(capsys.readouterr())
    stopped = Outcome(xr.Dataset(), [], 130)
    monkeypatch.setattr(replaybench.api, "run_sweep", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt, match="run the cell or the script again to resume"):
        replaybench.sweep(copy / "study.toml", copy)


def test_python_replays_advises_solves_and_reports(run: Path, buffers: Buffers, tmp_path: Path, capsys: Capsys) -> None:
    chosen: dict[str, Any] = {"plant": "PendulumDCSC", "cell": {"strategy": "FIFO[Uniform]", "seed": 1}}
    scores = replaybench.replay_offline(run, "FULL[PER]", tmp_path / "off", **chosen, updates=20, seeds=2)
    assert scores.reward.shape[0] == 2
    assert "offline: DDPG, FULL[PER]" in repr(scores)
    assert scores.plot()._repr_png_()
    with pytest.raises(UserError, match="did you mean strategy"):
        replaybench.replay_offline(run, cell={"strtegy": "FULL[PER]"})
    with pytest.raises(UserError, match=r"no finished runs of FULL\[Uniform\]"):
        replaybench.advise(run)
    with pytest.raises(UserError, match="did you mean seeds"):
        replaybench.advise("PendulumDCSC", sedes=3)
    advised = replaybench.advise(buffers["Magman", "FULL[PER]"])
    assert advised[0].plant in repr(advised)
    with pytest.raises(UserError, match="no picture"):
        advised.plot()
    solution = replaybench.solve("PendulumDCSC")
    assert solution.frequency == 50.0
    assert "<td>PendulumDCSC</td>" in solution._repr_html_()
    page = replaybench.report(run, tmp_path / "page.html")
    assert page.data == tmp_path / "page.html"
    assert page.is_file()
    assert not capsys.readouterr().out, "progress is printed where it is asked for"
