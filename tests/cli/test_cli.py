"""The command line as a user meets it: help, one-line errors with exit status 2, and every command on real files."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from commands import Capsys, Patch, call, refused

import replaybench
from replaybench.cli.main import COMMANDS
from replaybench.cli.options import _SHARED, plant_parameters, signature_of, take_plant_parameters
from replaybench.controllers.registry import LEARNERS
from replaybench.data.policy_file import read_policy
from replaybench.data.record import read_record, write_record
from replaybench.exchange.offline_scores import OfflineScores
from replaybench.experiments import progress as plain_lines
from replaybench.experiments.comparison import verdict
from replaybench.experiments.results_file import write_results
from replaybench.replay.strategies.notation import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS
from replaybench.runtime.errors import UserError

Buffers = dict[tuple[str, str], Path]

EXAMPLES = Path(__file__).parents[2] / "replaybench" / "examples"


TANK = (
    "from dataclasses import dataclass\n"
    "from replaybench.envs.ode.plant import OdePlant\n\n"
    "@dataclass(frozen=True, kw_only=True)\n"
    "class Tank(OdePlant):\n"
    "    area: float = 2.0\n"
    "    name = 'Tank'\n"
    "    state_names, state_units, action_names, action_units = ('level',), ('m',), ('valve',), ('1',)\n"
    "    state_center = state_scale = action_high = reference_state = (1.0,)\n"
    "    action_low = initial_state = grid_low = (0.0,)\n"
    "    episode_seconds, frequency, discount, max_substep = 400.0, 0.1, 0.9, 1.0\n"
    "    grid_nodes, grid_high, action_levels = (21,), (3.0,), (5,)\n\n"
    "    @staticmethod\n"
    "    def rhs(x, u, p):\n"
    "        return ((0.05 * u[0] - 0.02 * max(x[0], 0.0) ** 0.5) / p[0],)\n\n"
    "    @staticmethod\n"
    "    def reward(x, u, x_next, event, p):\n"
    "        return -abs(x_next[0] - 1.0)\n"
)
"""A plant of one's own, of one state."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of two plants."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "study.toml").write_text(
        'name = "cli"\nseeds = 3\nepisodes = 12\ngreedy_every = 3\ncapacity = 900\n'
        'plants = ["PendulumDCSC", "Magman"]\nstrategies = ["FIFO[Uniform]", "FULL[PER]"]\nnoise = [0.0]\n'
    )
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
def buffers(run: Path) -> dict[tuple[str, str], Path]:
    found = {}
    for path in run.glob("cells/*/buffer.h5"):
        facts = read_record(path, "buffer")[0].facts
        found[facts["plant"], facts["strategy"]] = path
    return found


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_names_every_command(words: list[str], capsys: Capsys) -> None:
    assert call(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(f"  {command} ") for line in lines) for command in COMMANDS)
    assert {"run", "look", "compare", "exchange", "extend", "options"} <= {*lines}
    assert any("--version" in line for line in lines)


@pytest.mark.parametrize("words", ["--help", "sweep --help", "list --help"])
def test_help_imports_nothing_that_takes_long(words: str) -> None:
    """Seconds depend on the machine; what is imported does not."""
    slow = {"numpy", "numba", "torch", "rich", "typeguard", "h5py", "matplotlib", "asyncio", "scipy", "gymnasium"}
    run = [sys.executable, "-X", "importtime", "-m", "replaybench", *words.split()]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stderr
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.splitlines()}
    assert "replaybench" in imported
    assert not imported & slow


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_describes_its_options(command: str, capsys: Capsys) -> None:
    """Nothing of Python's: no types in capitals, no None, no negated flags."""
    assert call(command, "--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "usage: replaybench" in out
    for name in signature_of(COMMANDS[command]).parameters:
        assert name in _SHARED or f"    {name}: " in str(COMMANDS[command].__doc__), name
    assert not re.search(r"\b(INT|STR|FLOAT|None|--no-\w+)\b", out.replace("--no-measure", "")), out
    if command == "sweep":
        for shown in ("[SWEEP OPTIONS] [STUDY]", "--output PATH", "--checkpoint-seconds S", "(default: 60.0)"):
            assert shown in out


def test_bash_completes(capsys: Capsys, tmp_path: Path) -> None:
    """The script is given to a shell, which then completes a command and an option."""
    assert call("--tyro-print-completion", "zsh") == 0
    script = capsys.readouterr().out
    assert all(word in script for word in (*COMMANDS, "checkpoint-seconds"))
    assert call("--tyro-print-completion", "bash") == 0
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    for line, completed in (
        ("replaybench swe", "sweep"),
        ("replaybench sweep --che", "--checkpoint-seconds"),
        ("replaybench import rig.csv --mi", "--missing"),
        ("replaybench import rig.csv --missing d", "drop"),
    ):
        typed = line.split()
        program = (
            f"source {tmp_path / 'completion'}; COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; "
            f"COMP_LINE='{' '.join(typed)}'; COMP_POINT=${{#COMP_LINE}}; "
            "spec=$(complete -p replaybench); f=${spec##*-F }; ${f%% *}; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [completed], done


def test_examples_are_copied_once(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("examples") == 0
    assert {path.name for path in (tmp_path / "examples").iterdir()} >= {"cart_pole.py", "rig_log.csv"}
    (tmp_path / "examples" / "cart_pole.py").write_text("mine")
    assert "exists already" in refused(capsys, "examples")
    assert (tmp_path / "examples" / "cart_pole.py").read_text() == "mine"


def test_a_study_that_comes_along_runs_by_its_name(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """Unless there is a file of that name; a folder is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert call("sweep", "DEMO", "--dry-run", "--no-measure") == 0
    assert "demo: 15 cells" in capsys.readouterr().out
    (tmp_path / "demo").rmdir()
    (tmp_path / "demo").write_text('plants = ["Magman"]\nstrategies = ["FULL[PER]"]\n')
    assert call("sweep", "demo", "--dry-run", "--no-measure") == 0
    assert "demo: 1 cell," in capsys.readouterr().out
    assert "demo, partial" in refused(capsys, "sweep", "dmeo", "--dry-run")


def test_sweep_writes_labelled_results_policies_buffers_and_figures(run: Path) -> None:
    with xr.open_dataset(run / "results.nc", engine="h5netcdf") as data:
        assert data["reward"].dims == ("plant", "learner", "strategy", "noise", "frequency", "seed", "episode")
        assert data["strategy"].values.tolist() == ["FIFO[Uniform]", "FULL[PER]"]
        assert np.isfinite(data["reward"].values).all()
        assert np.isfinite(data["reward_greedy"].values).all()
        point = data.sel(plant="Magman", strategy="FULL[PER]").squeeze()
        span = point["reference_dp"] - point["reference_random"]
        expected = ((point["reward"] - point["reference_random"]) / span)[:, -100:].mean("episode")
        np.testing.assert_allclose(point["mu_final"], expected)
        assert (point["mu_final_low"] <= point["mu_final_mean"]) & (point["mu_final_mean"] <= point["mu_final_high"])
        assert set(data["cell"].values.ravel().tolist()) == {path.name for path in run.glob("cells/*")}
        for axis in data.dims:
            named = axis in ("plant", "learner", "strategy")
            assert data[axis].attrs.get("units") == (None if named else "Hz" if axis == "frequency" else "1"), axis
    assert len(list(run.glob("cells/*/scores.h5"))) == 4
    assert len(list(run.glob("cells/*/buffer.h5"))) == 4
    assert read_policy(next(run.glob("cells/*/policy.safetensors")))[1]["actor.0.weight"].shape[0] == 3
    names = {path.suffix for path in run.glob("figures/*")}
    assert names == {".png", ".svg"}
    facts = json.loads((run / "provenance.json").read_text())
    assert facts["complete"]
    assert facts["written"]["versions"]["numpy"] == np.__version__
    assert facts["seconds"] > 0


@pytest.mark.slow
def test_figures_are_drawn_again_for_print(run: Path, pendulum: Path, tmp_path: Path, capsys: Capsys) -> None:
    assert call("figures", pendulum, "--style", "paper", "--output", tmp_path / "paper") == 0
    drawn = {path.stem for path in (run / "figures").glob("*PendulumDCSC.svg")}
    assert {path.stem for path in (tmp_path / "paper").glob("*.pdf")} == drawn
    assert "policies-PendulumDCSC" in drawn
    assert str(tmp_path / "paper" / "captions.txt") in capsys.readouterr().out
    copied = tmp_path / "run"
    shutil.copytree(pendulum, copied)
    study = (copied / "study.toml").read_text(encoding="utf-8")
    (copied / "study.toml").write_text(study.replace("PendulumDCSC", f"{tmp_path}/none.py:Mine"), encoding="utf-8")
    assert call("figures", copied, "--format", "svg") == 0
    assert "names Python files: policies are not drawn" in capsys.readouterr().out
    assert "holds runs and is none itself; name one of them: " in refused(capsys, "figures", tmp_path)
    (tmp_path / "empty").mkdir()
    assert "holds no results.nc" in refused(capsys, "figures", tmp_path / "empty")


@pytest.mark.slow
def test_figures_of_a_killed_sweep_show_its_finished_cells(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    """SIGKILL leaves no results.nc; here one cell is not finished, either."""
    killed = tmp_path / "killed"
    shutil.copytree(run, killed, ignore=shutil.ignore_patterns("figures", "results.nc", "buffer.h5"))
    [*_, last] = sorted(killed.glob("cells/*/scores.h5"))
    last.unlink()
    assert call("figures", killed) == 0
    told = capsys.readouterr().out
    assert "finished cells are drawn" in told
    assert list((killed / "figures").glob("learning_curves-*.png"))
    for scores in killed.glob("cells/*/scores.h5"):
        scores.unlink()
    assert "no finished cell" in refused(capsys, "figures", killed)


def stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_stopped_while_drawing_it_says_where_the_scores_are(run: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr("replaybench.reports.figures.all_figures.draw_figures", stopped)
    assert call("sweep", run.parent / "study.toml", "--output", run) == 130
    assert f"scores are in {run / 'results.nc'}, run the same command again to draw" in capsys.readouterr().err


def test_a_stopped_replay_begins_anew_and_replaces_what_it_left(
    run: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    words = ("replay", next(run.glob("cells/*/buffer.h5")), "--seeds", 2, "--output", tmp_path / "off")
    with monkeypatch.context() as patch:
        patch.setattr("replaybench.cli.commands.replay_offline", stopped)
        assert call(*words, "--updates", 10) == 130
    assert "nothing was written, the same command starts again" in capsys.readouterr().err
    assert not (tmp_path / "off").exists()
    with monkeypatch.context() as patch:
        patch.setattr("replaybench.cli.commands.draw_offline", stopped)
        assert call(*words, "--updates", 10) == 130
    assert [path.name for path in (tmp_path / "off").iterdir()] == ["policy.safetensors"]
    assert "policy.safetensors exists already" in refused(capsys, *words, "--updates", 11)  # it is another's
    assert call(*words, "--updates", 10) == 0
    assert (tmp_path / "off" / "scores.h5").is_file()


def test_dry_run_runs_nothing(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    assert call("sweep", run.parent / "study.toml", "--output", tmp_path / "none", "--dry-run") == 0
    told = capsys.readouterr().out
    assert "4 cells, 4 to run" in told
    assert all(word in told for word in ("time", "memory", "disk"))
    assert not (tmp_path / "none").exists()
    text = 'name = "x"\nplants = ["Pendulum"]\nstrategies = ["FIFO[Uniform]"]\nlearners = ["DDPG:a:b"]\nepisodes = 2\n'
    (tmp_path / "x.toml").write_text(text + '[learner."DDPG:a:b"]\nexploration = { decay_episodes = 500 }\n')
    assert call("sweep", tmp_path / "x.toml", "--dry-run", "--output", tmp_path / "run") == 0
    assert "warning: DDPG:a:b explores" in capsys.readouterr().out, "names are no pictures, as :a: would be"


def test_a_sweep_that_cannot_fit_is_refused_at_once(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    study = tmp_path / "huge.toml"
    study.write_text('plants = ["Magman"]\nstrategies = ["FULL[PER]"]\nseeds = 50\nepisodes = 100000000\n')
    assert "on disk" in refused(capsys, "sweep", study, "--output", tmp_path / "run")
    assert "on disk" in refused(capsys, "sweep", study, "--output", tmp_path / "run", "--dry-run")
    monkeypatch.setattr("replaybench.experiments.plan.available_memory", lambda: 10**9)
    few = ("--buffers", "none", "--episodes", "3000")
    assert "of memory" in refused(capsys, "sweep", study, "--output", tmp_path / "run", *few)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("strategy", ["FULL[PER]", "FIFO[Uniform]"])
def test_replay_learns_from_a_sweeps_buffer(strategy: str, buffers: Buffers, tmp_path: Path, capsys: Capsys) -> None:
    source = buffers["PendulumDCSC", "FULL[PER]"]
    assert call("replay", source, "--strategy", strategy, "--updates", 60, "--output", tmp_path / "out") == 0
    told = capsys.readouterr().out
    assert "offline: DDPG, " + strategy in told
    assert "online: FULL[PER]" in told
    for known in ("the recording itself: ", "random control", "doing nothing", "dynamic programming"):
        assert known in told
    again = refused(capsys, "replay", source, "--strategy", strategy, "--updates", 60, "--output", tmp_path / "out")
    assert "exists already" in again
    header, arrays = read_record(tmp_path / "out" / "scores.h5")
    assert header.facts["strategy"] == strategy
    assert np.isfinite(arrays["reward_greedy"]).all()
    assert arrays["updates"][-1] == 60


def test_replay_streams_a_buffer_that_need_not_fit_into_memory(
    buffers: Buffers,
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.01)
    path = buffers["PendulumDCSC", "FIFO[Uniform]"]
    assert call("replay", path, "--stream", "--updates", 1000, "--output", tmp_path / "out") == 0
    told = capsys.readouterr().out
    assert "offline: DDPG, streamed, 1000 updates" in told
    assert re.search(r"^after .* s: \d+ of 1000 updates, .* left$", told, re.MULTILINE), "not silent for minutes"
    header, arrays = read_record(tmp_path / "out" / "scores.h5")
    assert header.facts["strategy"] == "streamed"
    assert np.isfinite(arrays["reward_greedy"]).all()
    assert "--stream" in refused(capsys, "replay", path, "--stream", "--strategy", "FULL[PER]")
    assert "--stream" in refused(capsys, "replay", path, "--stream", "--capacity", 10)


@pytest.mark.parametrize(
    ("source", "strategy", "part"),
    [
        (("Magman", "FIFO[Uniform]"), "TDE[Uniform]", "td_error"),
        (("PendulumDCSC", "FULL[PER]"), "Synth(state=0.5)*FIFO[Uniform]", "use Synth(action=…) before"),
        (("PendulumDCSC", "FULL[PER]"), "Synth(action=0.5)*Expl[Uniform]", "use Synth(action=…) before"),
    ],
)
def test_a_strategy_that_needs_more_than_a_recording_is_refused(
    source: tuple[str, str],
    strategy: str,
    part: str,
    buffers: Buffers,
    capsys: Capsys,
) -> None:
    assert part in refused(capsys, "replay", buffers[source], "--strategy", strategy)


def test_a_plants_parameter_takes_no_option_of_the_command(tmp_path: Path) -> None:
    text = """
from dataclasses import dataclass
from replaybench.envs.ode.pendulum import Pendulum

@dataclass(frozen=True, kw_only=True)
class Timed(Pendulum):
    time: float = 3.0
    output: float = 1.0
    noise: float = 0.1
"""
    (tmp_path / "timed.py").write_text(text)
    plant = f"{tmp_path}/timed.py:Timed"
    of_import = plant_parameters(["import", "log.csv", "--plant", plant], COMMANDS["import"])
    assert of_import.keys() >= {"--inertia", "--noise"}
    assert not of_import.keys() & {"--time", "--output"}
    words = ["baseline", plant, "--noise", "0.02", "--time", "4"]
    of_baseline = plant_parameters(words, COMMANDS["baseline"])
    assert take_plant_parameters(words, of_baseline) == [*words[:4], "--parameters", "time=4"]


def test_import_then_replay(tmp_path: Path, capsys: Capsys) -> None:
    log = shutil.copy(EXAMPLES / "rig_log.csv", tmp_path / "rig_log.csv")
    words = ("import", log, "--plant", "PendulumDCSC", "--columns", "angular_velocity=velocity", "--time", "time")
    assert call(*words) == 0
    told = capsys.readouterr().out
    assert "998 transitions in 2 episodes" in told
    assert "never visit" in told
    assert "exists already" in refused(capsys, *words)
    assert call("replay", tmp_path / "rig_log.h5", "--updates", 20, "--seeds", 2, "--output", tmp_path / "out") == 0
    assert "offline: DDPG, FULL[Uniform]" in capsys.readouterr().out
    told = refused(capsys, "replay", tmp_path / "rig_log.h5", "--plant", "Pendulum", "--output", tmp_path / "other")
    assert "was recorded on 'PendulumDCSC', not on Pendulum; leave --plant out" in told


def test_baseline_takes_the_plants_own_parameters(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.01)
    assert call("baseline", "Pendulum", "--inertia", "1.91e-4", "--reference", "paper", "--output", tmp_path / "b") == 0
    told = capsys.readouterr().out
    assert "synchronous" in told
    assert "on the declared 200 × 201 nodes: ‖Δθ‖∞ after each sweep\n" in told, "not broken to the table's width"
    assert "200 × 201 nodes, 15 actions, as declared" in told
    assert "DP, greedy policy" in told
    assert "no row for linear-quadratic" not in told
    assert re.search(r"^after .* s: (fuzzy Q-iteration|episodes of)", told, re.MULTILINE), "not silent for minutes"
    assert (tmp_path / "b" / "solution.png").stat().st_size > 10_000
    assert "did you mean inertia" in refused(capsys, "baseline", "Pendulum", "--parameters", "inertai=1")
    assert "must be a finite number" in refused(capsys, "baseline", "Pendulum", "--inertia", "heavy")


def test_inspect_and_verify(run: Path, capsys: Capsys) -> None:
    cell = next(run.glob("cells/*"))
    assert call("export-policy", cell / "policy.safetensors") == 0
    for path in (run, run / "results.nc", *(path for path in cell.iterdir() if path.suffix != ".h")):
        assert call("inspect", path, "--verify") == 0
        told = capsys.readouterr().out
        assert path.name in told.replace("\n", "")
        assert "verified" in told
    (cell / "policy.h").unlink()
    assert "inspect opens .h5" in refused(capsys, "inspect", run / "study.toml")
    assert call("inspect", cell / "buffer.h5", "--member", 3) == 2
    out, err = capsys.readouterr()
    assert "--member must be 0 … 2, not 3" in err
    assert not out


def test_the_interface_takes_paths_as_text(run: Path) -> None:
    assert replaybench.open_results(f"{run / 'results.nc'}").equals(replaybench.open_results(run / "results.nc"))
    assert replaybench.open_results(run).equals(replaybench.open_results(run / "results.nc"))
    assert replaybench.read_study(f"{run / 'study.toml'}") == replaybench.read_study(run / "study.toml")
    buffer = next(run.glob("cells/*/buffer.h5"))
    assert len(replaybench.load_replay(f"{buffer}").members) == len(replaybench.load_replay(buffer).members)


def test_damaged_and_foreign_files_are_one_line(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    cell = next(run.glob("cells/*"))
    for source in (cell / "buffer.h5", cell / "policy.safetensors", run / "results.nc"):
        damaged = tmp_path / source.name
        damaged.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
        assert str(damaged) in refused(capsys, "inspect", damaged)
    assert "is a scores file" in refused(capsys, "replay", cell / "scores.h5")
    for command in ("table", "report"):
        shutil.copy(cell / "buffer.h5", tmp_path / "whole.h5")
        told = refused(capsys, command, tmp_path / "whole.h5")
        assert "whole.h5 is a buffer file and no results.nc" in told
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["swep"], "did you mean sweep?\n"),
        (["baseline", "Pendulum", "--inerta", "3"], "did you mean --inertia?\n"),
        (["table", "x", "--strategy", "X"], "unknown option of table: '--strategy'; valid: --baseline"),
        (["sweep", "x.toml", "--bufers", "none"], "did you mean --buffers"),
        (["sweep", "demo", "--checkpoint-seconds", "nan"], "--checkpoint-seconds must be"),
        (["baseline", "Pendulm"], "did you mean Pendulum"),
        (["baseline", "Pendulum", "--mass", "1", "--mass=2"], "mass is given twice; leave one out"),
        (["sweep", "nowhere.toml"], "no such study file"),
        (["sweep", "."], ". is a folder; name a study file in it"),
        (["replay", "x.h5", "--updates", "0"], "--updates must be at least 1"),
        (["replay", "x.h5", "--capacity", "5"], "keeps everything"),
        (["sweep", "demo", "--workers", "0", "--dry-run"], "--workers must be at least 1"),
        (["sweep"], "name a study, as in `sweep demo`"),
        (["sweep", "x.toml", "--seeds", "abc"], "--seeds must be a whole number, not 'abc'"),
        (["sweep", "x.toml", "--buffers=zip"], "--buffers must be one of final, compressed, none, not 'zip'"),
        (["sweep", "x.toml", "--no-output"], "unknown option of sweep: '--no-output'; did you mean --output"),
        (["sweep", "x.toml", "--episodes", "9" * 5000], "--episodes must be a whole number, not"),
        (["sweep", "x.toml", "--workers", "100000"], "--workers must be at least 1 and at most 4096"),
        (["replay", "x.h5", "--root-seed=-1"], "--root-seed must be at least 0"),
        (["inspect", "x.h5", "--member", "-1"], "--member must be at least 0"),
        (["baseline", "Pendulum", "--frequency", "1e9"], "--frequency must be above 0 and at most 100000 Hz, not"),
        (["baseline", "Pendulum", "--noise", "nan"], "--noise must be at least 0 and at most 10 normalised units"),
        (["baseline", "gymnasium:..x:X-v0"], "the module ..x cannot be imported"),
        (["sweep", "demo", "--seeds", "2", "--dry-run", "--seeds=3"], "--seeds is given twice; leave one out"),
        (["replay", "x.h5", "--root-seed", "2", "--root_seed=3"], "--root-seed is given twice; leave one out"),
        (["list", "plnts"], "'plants', 'strategies', 'learners'"),
        (["import", "x.csv"], "--plant"),
        (["inspect", "x.h5", "y.h5"], "y.h5; see replaybench inspect --help"),
    ],
)
def test_mistakes_are_one_line(words: list[str], told: str, capsys: Capsys) -> None:
    assert told in refused(capsys, *words)


def test_list_names_everything_that_studies_can_name(capsys: Capsys) -> None:
    assert call("list") == 0
    told = capsys.readouterr().out
    names = (
        "Pendulum", "PendulumDCSC", "Magman", "FIFO", "FULL", "Resv", "Uniform", "PER", "IS", "DDPG", "[rad]",
        *LEARNERS, *ENTRIES, *RETENTIONS, *SAMPLINGS, *WEIGHTINGS, *REFER,
    )  # fmt: skip
    for name in names:
        assert name in told


def test_an_unwritable_folder_is_one_line(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "file").write_text("x")
    told = refused(capsys, "sweep", run.parent / "study.toml", "--output", tmp_path / "file" / "run")
    assert "cannot use" in told
    assert os.listdir(tmp_path) == ["file"]


def test_a_users_plant_is_solved_imported_and_replayed(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """In a folder whose name a shell would split; the next command of an import runs as it is printed."""
    folder = tmp_path / "my rig"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "tank.py").write_text(TANK)
    plant = f"{folder / 'tank.py'}:Tank"
    assert call("baseline", plant, "--output", tmp_path / "solved") == 0
    assert "none: a map shows two states, Tank has one" in capsys.readouterr().out
    rows = "".join(f"{10 * step},{0.5 + 0.001 * step},{step % 2}\n" for step in range(81))
    (folder / "log.csv").write_text("time,level,valve\n" + rows)
    assert call("import", folder / "log.csv", "--plant", plant, "--frequency", 0.1) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next")]
    program, *words = shlex.split(line.removeprefix("next"))
    assert program == "replaybench"
    assert call(*words, "--updates", 4, "--seeds", 2, "--output", tmp_path / "out") == 0


def test_a_cell_is_found_by_what_it_is(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    """Instead of by the id of its folder; what is still open is asked for."""
    capsys.readouterr()
    assert call("inspect", run) == 0
    told = capsys.readouterr().out
    for path in run.glob("cells/*"):
        assert path.name in told
    assert "state complete" in told
    one = ("--plant", "PendulumDCSC", "--noise", "0.0", "--frequency", "50")
    assert call("inspect", run, *one, "--strategy", "FULL[PER(0.7)]", "--seed", "2") == 0
    assert "member 2" in capsys.readouterr().out
    told = refused(capsys, "inspect", run, *one)
    assert "2 cells of" in told
    assert "--strategy 'FIFO[Uniform]' or 'FULL[PER]'" in told
    assert "no cell of seed 7; there is 0–2" in refused(capsys, "inspect", run, *one, "--seed", "7")
    assert "no cell of noise 0.02; there is 0" in refused(capsys, "inspect", run, "--noise", "0.02")
    file = next(run.glob("cells/*/buffer.h5"))
    assert "--noise, which chooses among" in refused(capsys, "inspect", file, "--noise", "0")
    assert "--member counts" in refused(
        capsys, "inspect", run, *one, "--strategy", "FULL[PER]", "--seed", 1, "--member", 1
    )


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


def test_what_shows_results_says_where_there_are_none(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    with xr.open_dataset(run / "results.nc", engine="h5netcdf") as data:
        nothing = data.load()
    nothing = nothing.drop_vars("episode_steps")
    nothing["reward"][:] = np.nan
    write_results(tmp_path / "results.nc", nothing)
    assert "holds no finished cell yet; a table needs at least one" in refused(capsys, "table", tmp_path)
    told = refused(capsys, "figures", run / "results.nc")
    assert f"is a file; figures are drawn from its run folder: replaybench figures {run}" in told


def test_replay_of_a_cell_with_changed_settings(run: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    chosen = (run, "--plant", "PendulumDCSC", "--from-strategy", "FIFO[Uniform]", "--seed", 1, "--updates", 20)
    drawn = []

    def draw_offline(scores: OfflineScores, folder: Path) -> Path:
        drawn.append(scores)
        return folder / "offline.png"

    monkeypatch.setattr("replaybench.cli.commands.draw_offline", draw_offline)
    assert call("replay", *chosen, "--seeds", 2, "--output", tmp_path / "as-it-was") == 0
    online = {"online: FIFO[Uniform]": 1, "online, exploring: FIFO[Uniform]": 1}
    assert {name: len(rewards) for name, rewards in drawn[0].online.items()} == online
    changed = ("--set", "tau=0.5", "--discount", "0.5", "--set=exploration.first_amplitude=0.5")
    assert call("replay", *chosen, "--seeds", 2, *changed, "--output", tmp_path / "changed") == 0
    before, after = (read_record(tmp_path / name / "scores.h5") for name in ("as-it-was", "changed"))
    assert after[0].facts["settings"] == {"tau": 0.5, "exploration": {"first_amplitude": 0.5}}
    assert before[0].facts["recording"] == 1
    assert not np.array_equal(before[1]["reward_greedy"], after[1]["reward_greedy"])
    np.testing.assert_array_equal(before[1]["reward_greedy"][:, 0], after[1]["reward_greedy"][:, 0])
    assert "did you mean tau" in refused(capsys, "replay", *chosen, "--set", "tua=1")
    assert "--set takes NAME=VALUE" in refused(capsys, "replay", *chosen, "--set", "tau")
    assert "--discount must be" in refused(capsys, "replay", *chosen, "--discount", "1.5")
    capsys.readouterr()
    assert call("replay", *chosen, "--evaluation-noise", "0.02", "--output", tmp_path / "noisy") == 0
    told = capsys.readouterr().out
    assert "online" not in told, "that was measured under another noise"


def test_a_run_folders_policy_is_loaded_by_what_it_is(run: Path) -> None:
    with pytest.raises(UserError, match=r"4 cells .* plant = PendulumDCSC or Magman; strategy = 'FIFO\[Uniform\]'"):
        replaybench.load_policy(run)
    policy = replaybench.load_policy(run, plant="Magman", strategy="FULL[PER]", seed=2)
    assert (policy.facts["cell"]["plant"], policy.facts["cell"]["strategy"]) == ("Magman", "FULL[PER]")
    path = run / "cells" / policy.facts["id"] / "policy.safetensors"
    seen = np.zeros(len(policy.facts["cell"]["observe"]) or policy.agent.task.observation_size, np.float32)
    np.testing.assert_array_equal(policy.predict(seen)[0], replaybench.load_policy(path, 2).predict(seen)[0])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_buffers_and_tables_are_written_for_other_programs(
    suffix: str, run: Path, buffers: Buffers, tmp_path: Path, capsys: Capsys
) -> None:
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


def test_keys_of_a_study_are_changed_by_set(tmp_path: Path, capsys: Capsys) -> None:
    words = ("sweep", "demo", "--dry-run", "--no-measure", "--output", tmp_path / "x", "--set", "noise=0.05")
    assert call(*words, "learner.DDPG.tau=0.5", "plants=Magman", "episodes=20") == 0
    told = capsys.readouterr().out
    assert "0.05" in told
    assert "Pendulum" not in told
    assert "leave one out" in refused(capsys, "sweep", "demo", "--seeds", 2, "--set", "seeds=3")
    assert "did you mean seeds" in refused(capsys, "sweep", "demo", "--set", "sceds=3")
    assert "--output" in refused(capsys, "reproduce", "debruin2018/fig12", "--set", "seeds=2")


@pytest.mark.slow
def test_curves_from_elsewhere_are_drawn_over_steps(run: Path, pendulum: Path, tmp_path: Path, capsys: Capsys) -> None:
    monitor = tmp_path / "monitor.csv"
    monitor.write_text('#{"t_start": 1}\nr,l,t\n-3e4,200,1\n-2e4,200,2\n')
    told = refused(capsys, "figures", run, "--overlay", f"SB3={monitor}")
    assert "one plant" in told
    assert "LABEL=FILE" in refused(capsys, "figures", run, "--overlay", f"{monitor}")
    assert call("figures", pendulum, "--axis", "steps", "--format", "png", "--output", tmp_path / "drawn") == 0


def test_short_options_stand_for_long_ones(tmp_path: Path, capsys: Capsys) -> None:
    words = ("sweep", "demo", "--dry-run", "--no-measure", "--set", "seeds=2")
    for short in (("-o", tmp_path / "x", "-j", 3), (f"-o={tmp_path / 'x'}", "-j3", "-q")):
        assert call(*words, *short) == 0
        told = capsys.readouterr().out
        assert "3 worker(s)" in told
        assert f"in {tmp_path / 'x'}\n" in told
    assert "--workers is given twice" in refused(capsys, *words, "-j2", "--workers", 3)
    assert "-j" in refused(capsys, "table", tmp_path, "-j", 2)
    assert call("sweep", "--help") == 0
    told = capsys.readouterr().out
    assert all(shown in told for shown in ("-o PATH, --output PATH", "-j N, --workers N", "-q, --quiet"))


def test_verbose_prints_the_traceback_of_an_error(capsys: Capsys) -> None:
    assert call("-v", "table", "nowhere") == 2
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert told.splitlines()[-1].startswith("replaybench: no such file: nowhere")


@pytest.mark.parametrize("command", ["table", "table --compare strategy", "list", "inspect", "claims"])
@pytest.mark.parametrize("form", ["json", "csv", "md"])
def test_tables_are_printed_in_formats(command: str, form: str, run: Path, capsys: Capsys) -> None:
    name, *options = command.split()
    capsys.readouterr()
    assert call(name, *([run] if name in ("table", "inspect") else []), *options, "--format", form) == 0
    told = capsys.readouterr().out
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
    assert call("claims", run, "--format", "csv", "--output", tmp_path / "claims.json") == 0
    assert capsys.readouterr().out.startswith("paper,id,")
    assert call("claims", run, "--format", "md", "--output", tmp_path / "again.json") == 0
    assert "again.json" not in capsys.readouterr().out


def test_init_writes_a_study_that_runs(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init") == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next")]
    assert call(*shlex.split(line)[2:], "--no-measure") == 0
    assert "6 cells, 6 to run" in capsys.readouterr().out
    (tmp_path / "study.toml").write_text("mine")
    assert "study.toml exists already" in refused(capsys, "init")
    assert (tmp_path / "study.toml").read_text() == "mine"


def test_sweep_needs_no_file(capsys: Capsys) -> None:
    described = ("--plant", "Magman", "PendulumDCSC", "--strategy", "FIFO[Uniform]", "FULL[PER]")
    dry = ("--dry-run", "--no-measure")
    assert call("sweep", *described, "--noise", 0, 0.02, "--frequency", 50, "--seeds", 3, "--episodes", 20, *dry) == 0
    told = capsys.readouterr().out
    assert "8 cells, 8 to run" in told
    assert "runs/Magman-PendulumDCSC" in told
    assert call("sweep", "demo", "--noise", 0.1, *dry) == 0
    assert "0.02" not in capsys.readouterr().out
    assert "--plant and --strategy" in refused(capsys, "sweep", "--plant", "Magman", *dry)
    assert "did you mean Magman" in refused(capsys, "sweep", "--plant", "Magmn", "--strategy", "FULL[PER]", *dry)
    assert "--set and an option both give" in refused(capsys, "sweep", "demo", "--noise", 0, "--set", "noise=0", *dry)


def test_a_finished_sweep_ends_with_verdict_and_next_command(run: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr("replaybench.reports.figures.all_figures.draw_figures", lambda *_: [])
    assert call("sweep", run.parent / "study.toml", "--output", run) == 0
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if line.startswith("verdict")]
    assert "FULL[PER], not significantly different: μ_final differs by" in line
    assert "n = 3, mean over 2 conditions" in line
    assert shlex.split(lines[-1]) == ["next", "replaybench", "report", str(run)]
    assert call("sweep", run.parent / "study.toml", "--output", run, "-q") == 0
    assert not capsys.readouterr().out


def test_a_verdict_names_the_best_strategy_and_its_significance(run: Path) -> None:
    data = replaybench.open_results(run).data
    many = xr.concat([data.assign_coords(seed=data["seed"] + 3 * place) for place in range(3)], "seed", data_vars="all")
    many = many.transpose(*data["mu_final"].dims, ...)
    many["mu_final"].loc[{"strategy": "FIFO[Uniform]"}] = 0.25
    many["mu_final"].loc[{"strategy": "FULL[PER]"}] = 0.5
    better = verdict(many)
    assert "FULL[PER], significantly better: μ_final differs by +0.25 (p = 0.004, n = 9, mean over 2" in better
    assert "significantly worse: μ_final differs by -0.25" in verdict(many.isel(strategy=[1, 0]))
    assert verdict(many.isel(strategy=[0])).startswith("No verdict")
    learners = many.isel(strategy=0, learner=0, drop=True).expand_dims(strategy=["FIFO[Uniform]"])
    both = xr.concat([learners, learners.assign(mu_final=learners["mu_final"] - 0.125)], "learner")
    both = both.assign_coords(learner=["DDPG", "TD3"]).transpose(*data["mu_final"].dims, ...)
    assert "learner next to DDPG is TD3, significantly worse: μ_final differs by -0.125" in verdict(both)
    many["reference_dp"][:] = np.nan
    assert "no μ_r" in verdict(many)


def test_results_show_in_notebooks(run: Path) -> None:
    found = replaybench.open_results(run)
    assert isinstance(found.data, xr.Dataset)
    assert found["mu_final"].dims == found.data["mu_final"].dims
    assert found.sizes == found.data.sizes
    html = found._repr_html_()
    assert html.count("<table>") == 4
    assert "<td>FULL[PER]</td>" in html
    assert "verdict  The best strategy" in html
    assert "verdict  The best strategy" in repr(found)
    assert found.plot(plant="Magman")._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="did you mean Magman"):
        found.plot(plant="Magmn")
    with pytest.raises(UserError, match="plant of these results"):
        found.plot()
    with pytest.raises(AttributeError):
        found.mu_finl  # noqa: B018


def test_the_interface_replays_advises_solves_and_reports(run: Path, tmp_path: Path, capsys: Capsys) -> None:
    chosen = {"strategy": "FIFO[Uniform]", "seed": 1}
    scores = replaybench.replay_offline(
        run, "FULL[PER]", tmp_path / "off", plant="PendulumDCSC", cell=chosen, updates=20, seeds=2
    )
    assert scores.reward.shape[0] == 2
    assert "offline: DDPG, FULL[PER]" in repr(scores)
    assert scores.plot()._repr_png_()
    with pytest.raises(UserError, match="did you mean strategy"):
        replaybench.replay_offline(run, cell={"strtegy": "FULL[PER]"})
    with pytest.raises(UserError, match=r"no finished runs of FULL\[Uniform\]"):
        replaybench.advise(run)
    with pytest.raises(UserError, match="did you mean seeds"):
        replaybench.advise("PendulumDCSC", sedes=3)
    advised = replaybench.advise(next(run.glob("cells/*/buffer.h5")))
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
