"""What users type: help, completion, options, one-line errors with exit status 2, studies and plants of their own."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from replaybench.cli.main import COMMANDS
from replaybench.cli.options import _SHARED, plant_parameters, signature_of, take_plant_parameters
from replaybench.controllers.registry import LEARNERS
from replaybench.envs.registry import PLANTS
from replaybench.experiments import progress as plain_lines
from replaybench.replay.strategies.notation import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS
from tests.helpers.commands import Capsys, Patch, call, printed, refused

DRY = ("--dry-run", "--no-measure")
TANK = """
from dataclasses import dataclass
from replaybench.envs.ode.plant import OdePlant

@dataclass(frozen=True, kw_only=True)
class Tank(OdePlant):
    area: float = 2.0
    name = "Tank"
    state_names, state_units, action_names, action_units = ("level",), ("m",), ("valve",), ("1",)
    state_center = state_scale = action_high = reference_state = (1.0,)
    action_low = initial_state = grid_low = (0.0,)
    episode_seconds, frequency, discount, max_substep = 400.0, 0.1, 0.9, 1.0
    grid_nodes, grid_high, action_levels = (21,), (3.0,), (5,)

    @staticmethod
    def rhs(x, u, p):
        return ((0.05 * u[0] - 0.02 * max(x[0], 0.0) ** 0.5) / p[0],)

    @staticmethod
    def reward(x, u, x_next, event, p):
        return -abs(x_next[0] - 1.0)
"""
"""A plant of one's own, of one state."""


def next_words(told: str) -> list[str]:
    """Return the words of the command that was proposed, after `replaybench`."""
    [line] = [line for line in told.splitlines() if line.startswith("next")]
    program, *words = shlex.split(line.removeprefix("next"))
    assert program == "replaybench"
    return words


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_names_every_command(words: list[str], capsys: Capsys) -> None:
    lines = printed(capsys, *words).splitlines()
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
    assert not imported & {*slow, "xarray"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_describes_its_options(command: str, capsys: Capsys) -> None:
    """Nothing of Python's: no types in capitals, no None, no negated flags."""
    out = " ".join(printed(capsys, command, "--help").split())
    assert "usage: replaybench" in out
    for name in signature_of(COMMANDS[command]).parameters:
        assert name in _SHARED or f"    {name}: " in str(COMMANDS[command].__doc__), name
    assert not re.search(r"\b(INT|STR|FLOAT|None|--no-\w+)\b", out.replace("--no-measure", "")), out
    if command == "sweep":
        for shown in ("[SWEEP OPTIONS] [STUDY]", "--checkpoint-seconds S", "(default: 60.0)"):
            assert shown in out
        for shown in ("-o PATH, --output PATH", "-j N, --workers N", "-q, --quiet"):
            assert shown in out


def test_bash_completes(capsys: Capsys, tmp_path: Path) -> None:
    """The script is given to a shell, which then completes a command and an option."""
    script = printed(capsys, "--tyro-print-completion", "zsh")
    assert all(word in script for word in (*COMMANDS, "checkpoint-seconds"))
    (tmp_path / "completion").write_text(printed(capsys, "--tyro-print-completion", "bash"))
    for line, completed in (
        ("replaybench swe", "sweep"),
        ("replaybench sweep --che", "--checkpoint-seconds"),
        ("replaybench import rig.csv --mi", "--missing"),
        ("replaybench import rig.csv --missing d", "drop"),
    ):
        program = (
            f"source {tmp_path / 'completion'}; COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}; "
            f"COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; "
            "spec=$(complete -p replaybench); f=${spec##*-F }; ${f%% *}; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [completed], done


@pytest.mark.parametrize(("command", "written"), [("examples", "examples/cart_pole.py"), ("init", "study.toml")])
def test_files_are_written_once(command: str, written: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    told = printed(capsys, command)
    if command == "init":
        assert "6 cells, 6 to run" in printed(capsys, *next_words(told), "--no-measure")
    else:
        assert (tmp_path / "examples" / "rig_log.csv").is_file()
    (tmp_path / written).write_text("mine")
    assert "exists already" in refused(capsys, command)
    assert (tmp_path / written).read_text() == "mine"


def test_a_study_that_comes_along_runs_by_its_name(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """Unless there is a file of that name; a folder is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert "demo: 12 cells" in printed(capsys, "sweep", "DEMO", *DRY)
    (tmp_path / "demo").rmdir()
    (tmp_path / "demo").write_text('plants = ["Magman"]\nstrategies = ["FULL[PER]"]\n')
    assert "demo: 1 cell," in printed(capsys, "sweep", "demo", *DRY)
    assert "demo, partial" in refused(capsys, "sweep", "dmeo", "--dry-run")


def test_a_sweep_that_cannot_fit_is_refused_at_once(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    huge = ("sweep", "--plant", "Magman", "--strategy", "FULL[PER]", "--seeds", 50, "--output", tmp_path / "run")
    for further in ((), ("--dry-run",)):
        assert "on disk" in refused(capsys, *huge, "--episodes", 10**8, *further)
    monkeypatch.setattr("replaybench.experiments.plan.available_memory", lambda: 10**9)
    assert "of memory" in refused(capsys, *huge, "--episodes", 3000, "--buffers", "none")
    assert not (tmp_path / "run").exists()


def test_a_plants_parameter_takes_no_option_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "timed.py").write_text(
        "from dataclasses import dataclass\nfrom replaybench.envs.ode.pendulum import Pendulum\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Timed(Pendulum):\n"
        "    time: float = 3.0\n    output: float = 1.0\n    noise: float = 0.1\n"
    )
    plant = f"{tmp_path}/timed.py:Timed"
    of_import = plant_parameters(["import", "log.csv", "--plant", plant], COMMANDS["import"])
    assert of_import.keys() >= {"--inertia", "--noise"}
    assert not of_import.keys() & {"--time", "--output"}
    words = ["baseline", plant, "--noise", "0.02", "--time", "4"]
    of_baseline = plant_parameters(words, COMMANDS["baseline"])
    assert take_plant_parameters(words, of_baseline) == [*words[:4], "--parameters", "time=4"]


def test_a_users_plant_is_solved_imported_and_replayed(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """In a folder whose name a shell would split; the next command of an import runs as it is printed."""
    folder = tmp_path / "my rig"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "tank.py").write_text(TANK)
    plant = f"{folder / 'tank.py'}:Tank"
    told = printed(capsys, "baseline", plant, "--output", tmp_path / "solved")
    assert "none: a map shows two states, Tank has one" in told
    rows = "".join(f"{10 * step},{0.5 + 0.001 * step},{step % 2}\n" for step in range(81))
    (folder / "log.csv").write_text("time,height,valve\n" + rows)
    words = ("import", folder / "log.csv", "--plant", plant, "--frequency", 0.1, "--columns", "level=height")
    told = printed(capsys, *words)
    assert call(*next_words(told), "--updates", 4, "--seeds", 2, "--output", tmp_path / "out") == 0


def test_baseline_takes_the_plants_own_parameters(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(plain_lines, "LINE_SECONDS", 0.01)
    words = ("baseline", "Pendulum", "--inertia", "1.91e-4", "--reference", "paper", "--output", tmp_path / "b")
    told = printed(capsys, *words)
    assert "on the declared 200 × 201 nodes: ‖Δθ‖∞ after each sweep\n" in told, "not broken to the table's width"
    for shown in ("synchronous", "200 × 201 nodes, 15 actions, as declared", "DP, greedy policy"):
        assert shown in told
    assert "no row for linear-quadratic" not in told
    assert re.search(r"^after .* s: (fuzzy Q-iteration|episodes of)", told, re.MULTILINE), "not silent for minutes"
    assert (tmp_path / "b" / "solution.png").stat().st_size > 10_000
    assert "did you mean inertia" in refused(capsys, "baseline", "Pendulum", "--parameters", "inertai=1")
    assert "must be a finite number" in refused(capsys, "baseline", "Pendulum", "--inertia", "heavy")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["swep"], "did you mean sweep?\n"),
        (["baseline", "Pendulum", "--inerta", "3"], "did you mean --inertia?\n"),
        (["table", "x", "--strategy", "X"], "unknown option of table: '--strategy'; did you mean --strategies?"),
        (["table", "x", "-j", "2"], "-j"),
        (["sweep", "x.toml", "--bufers", "none"], "did you mean --buffers"),
        (["sweep", "demo", "--checkpoint-seconds", "nan"], "--checkpoint-seconds must be"),
        (["baseline", "Pendulum", "--mass", "1", "--mass=2"], "mass is given twice; leave one out"),
        (["sweep", "nowhere.toml"], "no such study file"),
        (["sweep", "."], ". is a folder; name a study file in it"),
        (["replay", "x.h5", "--updates", "0"], "--updates must be at least 1"),
        (["replay", "x.h5", "--capacity", "5"], "keeps everything"),
        (["sweep", "demo", "--workers", "0", "--dry-run"], "--workers must be at least 1"),
        (["sweep"], "name a study, as in `sweep demo`"),
        (["sweep", "--plant", "Magman"], "--plant and --strategy"),
        (["sweep", "x.toml", "--seeds", "abc"], "--seeds must be a whole number, not 'abc'"),
        (["sweep", "x.toml", "--buffers=zip"], "--buffers must be one of final, compressed, none, not 'zip'"),
        (["sweep", "x.toml", "--no-output"], "unknown option of sweep: '--no-output'; did you mean --output"),
        (["sweep", "x.toml", "--episodes", "9" * 5000], "--episodes must be a whole number, not"),
        (["sweep", "x.toml", "--workers", "100000"], "--workers must be at least 1 and at most 4096"),
        (["replay", "x.h5", "--root-seed=-1"], "--root-seed must be at least 0"),
        (["inspect", "x.h5", "--member", "-1"], "--member must be at least 0"),
        (["baseline", "Pendulum", "--noise", "nan"], "--noise must be at least 0 and at most 10 normalised units"),
        (["baseline", "gymnasium:..x:X-v0"], "the module ..x cannot be imported"),
        (["sweep", "demo", "--seeds", "2", "--dry-run", "--seeds=3"], "--seeds is given twice; leave one out"),
        (["sweep", "demo", "--dry-run", "-j2", "--workers", "3"], "--workers is given twice"),
        (["replay", "x.h5", "--root-seed", "2", "--root_seed=3"], "--root-seed is given twice; leave one out"),
        (["sweep", "demo", "--seeds", "2", "--set", "seeds=3"], "leave one out"),
        (["sweep", "demo", "--noise", "0", "--set", "noise=0"], "--set and an option both give"),
        (["reproduce", "debruin2018/fig12", "--set", "seeds=2"], "--output"),
        (["list", "plnts"], "'plants', 'strategies', 'learners'"),
        (["import", "x.csv"], "--plant"),
        (["inspect", "x.h5", "y.h5"], "y.h5; see replaybench inspect --help"),
    ],
)
def test_mistakes_are_one_line(words: list[str], told: str, capsys: Capsys) -> None:
    assert told in refused(capsys, *words)


def test_list_names_everything_that_studies_can_name(capsys: Capsys) -> None:
    told = printed(capsys, "list")
    parts = (*ENTRIES, *RETENTIONS, *SAMPLINGS, *WEIGHTINGS, *REFER)
    for name in (*PLANTS.own, *LEARNERS, *parts, "[rad]"):
        assert name in told


def test_keys_of_a_study_are_changed_by_set(tmp_path: Path, capsys: Capsys) -> None:
    words = ("sweep", "demo", *DRY, "--output", tmp_path / "x", "--set", "noise=0.05")
    told = printed(capsys, *words, "learner.DDPG.tau=0.5", "plants=Magman", "episodes=20")
    assert "0.05" in told
    assert "Pendulum" not in told


def test_short_options_stand_for_long_ones(tmp_path: Path, capsys: Capsys) -> None:
    for short in (("-o", tmp_path / "x", "-j", 3), (f"-o={tmp_path / 'x'}", "-j3", "-q")):
        told = printed(capsys, "sweep", "demo", *DRY, "--set", "seeds=2", *short)
        assert "3 worker(s)" in told
        assert f"in {tmp_path / 'x'}\n" in told


def test_verbose_prints_the_traceback_of_an_error(capsys: Capsys) -> None:
    assert call("-v", "table", "nowhere") == 2
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert told.splitlines()[-1].startswith("replaybench: no such file: nowhere")


def test_sweep_needs_no_file(capsys: Capsys) -> None:
    described = ("--plant", "Magman", "PendulumDCSC", "--strategy", "FIFO[Uniform]", "FULL[PER]", "--frequency", 50)
    told = printed(capsys, "sweep", *described, "--noise", 0, 0.02, "--seeds", 3, "--episodes", 20, *DRY)
    assert "8 cells, 8 to run" in told
    assert "runs/Magman-PendulumDCSC" in told
    assert "0.02" not in printed(capsys, "sweep", "demo", "--noise", 0.1, *DRY)
    words = ("sweep", "--plant", "Pendulum", "--strategy", "FIFO[Uniform]", "--learner", "DDPG:a:b", "--episodes", 2)
    assert "warning: DDPG:a:b explores" in printed(capsys, *words, *DRY), "names are no pictures, as :a: would be"
