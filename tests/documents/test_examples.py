"""Every example runs."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from replaybench.experiments.plan import plan_warnings
from replaybench.experiments.study import read_study
from replaybench.runtime.user_file import import_file
from tests.helpers.cells import run_here
from tests.helpers.commands import Capsys, Patch, call

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "replaybench" / "examples"


def load(name: str, folder: Path = EXAMPLES) -> ModuleType:
    return import_file(folder / f"{name}.py", "Python", name)


def test_the_notebook_has_its_outputs_and_teaches_something() -> None:
    """It shows what its code printed, without errors and without places on the machine that ran it."""
    text = (EXAMPLES / "from_python.ipynb").read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    shown = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in shown} <= {"execute_result", "display_data", "stream"}
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert "significantly better" in text
    assert all("Warning" not in "".join(output.get("text", "")) for output in shown)
    assert not re.search(r"/(?:tmp|home|root|work)/|widget-view", text)


def test_from_python_learns(capsys: Capsys) -> None:
    assert np.isfinite(load("from_python").main(episodes=20, members=2))
    assert capsys.readouterr().out.count("episode") == 2


def test_stable_baselines3_learns_from_our_buffers(capsys: Capsys) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small are slower on more
    try:
        returns = load("with_sb3").main(steps=60)
    finally:
        torch.set_num_threads(threads)
    assert len(returns) == 4
    assert np.isfinite(list(returns.values())).all()
    assert capsys.readouterr().out.count("return after 60 steps") == 4


def test_studies_that_come_along_are_not_warned_of(monkeypatch: Patch) -> None:
    monkeypatch.chdir(ROOT / "replaybench")
    studies = [*Path("studies").glob("*.toml"), Path("examples/own_plant.toml")]
    assert {str(path): told for path in studies if (told := plan_warnings(read_study(path).cells()))} == {}


def test_a_study_of_an_own_plant(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(ROOT / "replaybench")
    monkeypatch.setattr("replaybench.experiments.sweep.run_locally", run_here)
    monkeypatch.setattr("replaybench.reports.figures.all_figures.draw_figures", lambda *_: [])
    words = ["sweep", "examples/own_plant.toml", "--seeds", "2", "--episodes", "4", "--workers", "1"]
    assert call(*words, "--output", tmp_path / "run") == 0
    assert (tmp_path / "run" / "results.nc").is_file()


def test_the_segway_stands_and_its_equations_keep_energy() -> None:
    """Without friction and torque the energy ½(M + m)v² + M l v φ̇ cos φ + ½(J + M l²)φ̇² + M g l cos φ stays."""
    module = load("segway")
    assert module.main() > 0.99
    plant = module.Segway(friction=0.0)
    M, m, l, J = plant.body, plant.wheels, plant.height, plant.inertia  # noqa: E741

    def energy(x: np.ndarray) -> float:
        _, v, tilt, rate = x
        moving = (M + m) * v**2 / 2 + M * l * v * rate * np.cos(tilt) + (J + M * l**2) * rate**2 / 2
        return float(moving + M * 9.81 * l * np.cos(tilt))

    x, dt = np.array([0.0, 0.3, 0.2, -0.5]), 1e-4
    start = energy(x)
    for _ in range(5000):  # the midpoint rule
        half = x + dt / 2 * np.array(plant.rhs.py_func(x, np.zeros(1), plant.params()))
        x = x + dt * np.array(plant.rhs.py_func(half, np.zeros(1), plant.params()))
    assert abs(x[2]) > 1.0  # it has fallen
    assert energy(x) == pytest.approx(start, abs=1e-6)


def test_the_tanks_keep_their_water() -> None:
    """What flows in and does not flow out stays: at the wanted level, inflow and outflow are equal."""
    module = load("two_tank")
    assert module.main() < 1e-3
    plant = module.TwoTank(outlet=0.0)
    after, _, _ = plant.step(np.array([0.1, 0.05]), np.array([1e-4]), 5.0)
    np.testing.assert_allclose(after, [0.1 + 5e-4 / plant.area, 0.05], rtol=1e-6)
    assert plant.step(np.array([0.3999, 0.1]), np.array([1e-4]), 5.0)[2]


def test_the_example_log_is_what_its_script_makes(tmp_path: Path, monkeypatch: Patch) -> None:
    script = tmp_path / "make_rig_log.py"
    shutil.copyfile(EXAMPLES / "make_rig_log.py", script)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / "rig_log.csv").read_bytes() == (EXAMPLES / "rig_log.csv").read_bytes()


@pytest.mark.slow
def test_an_ellipse_drafts_in_moving_pictures(tmp_path: Path) -> None:
    """It stays, for less than half of what it would spend in the free stream, and the file holds every frame."""
    path = tmp_path / "drafting.webp"
    assert 0 < load("drafting_animation", ROOT / "benchmarks/flow").main(str(path), seconds=6.0) < 0.5 * 0.258
    with Image.open(path) as animation:
        assert animation.size == (480, 240)
        assert getattr(animation, "n_frames", 0) == 30


@pytest.mark.slow
def test_own_parts_run_on_two_workers_and_resume(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """Named in a study and on the command line; legends and tables leave out the paths."""
    monkeypatch.chdir(ROOT / "replaybench")
    study, run = tmp_path / "own.toml", tmp_path / "run"
    study.write_text(
        'plants = ["PendulumDCSC"]\nlearners = ["examples/own_learner.py:ActorCritic"]\nnoise = [0.0]\n'
        'strategies = ["FIFO[Uniform]", "FIFO[examples/newest_first.py:NewestFirst(0.5)]"]\n'
        "seeds = 2\nepisodes = 2\ngreedy_every = 1\ncapacity = 400\n"
    )

    def command(*words: object) -> str:
        assert call(*words) == 0, capsys.readouterr().err
        return " ".join(capsys.readouterr().out.split())

    sweep = ("sweep", study, "--workers", 2, "--output", run)
    assert "FIFO[NewestFirst(0.5)]" in command(*sweep)
    scores = {path: path.stat().st_mtime_ns for path in run.glob("cells/*/scores.h5")}
    assert len(scores) == 2
    command(*sweep)
    assert {path: path.stat().st_mtime_ns for path in run.glob("cells/*/scores.h5")} == scores
    (buffer, *_) = (path for path in run.glob("cells/*/buffer.h5") if b"NewestFirst" in path.read_bytes())
    assert "NewestFirst(0.5)" in command("inspect", buffer)
    command("inspect", run)
    named = ("--strategy", "FULL[examples/newest_first.py:NewestFirst]")
    words = ("--updates", 20, "--seeds", 2, "--learner", "examples/own_learner.py:ActorCritic")
    assert "NewestFirst]" in command("replay", buffer, *named, *words, "--output", tmp_path / "offline")
