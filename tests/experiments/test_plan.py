"""Plan of a sweep: its report, warnings, and estimates of time and memory."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Capsys, Patch
from rich.console import Console

from replaybench.baselines.references import kept_at
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import make_plant
from replaybench.experiments import calibration
from replaybench.experiments import study as studies
from replaybench.experiments.calibration import TRIAL_SECONDS, Estimate, estimate
from replaybench.experiments.cell import CellRun
from replaybench.experiments.plan import plan, plan_warnings
from replaybench.experiments.study import Cell, Study
from replaybench.experiments.study_record import replaced, resolved, write_toml
from replaybench.replay.strategies.notation import parse
from replaybench.reports import cell_table as plan_report
from replaybench.reports.cell_table import show_plan
from replaybench.runtime.kernel import NotCompiledError

FADING = {"exploration": {"decay_episodes": 2}}


def make_study(**changes: object) -> Study:
    settings = {"name": "t", "plants": ("PendulumDCSC",), "strategies": ("FIFO[Uniform]",), "episodes": 3, "seeds": 2}
    return Study(**(settings | changes))  # type: ignore[arg-type]


def test_a_changed_study_says_what_it_replaces(tmp_path: Path) -> None:
    folder, first = RunFolder(tmp_path / "run"), make_study()
    (cell,) = first.cells()
    assert replaced(folder, first, [cell]) is None
    folder.path.mkdir()
    folder.study.write_text(write_toml(resolved(first, [cell])), encoding="utf-8")
    write_record(folder.cell(cell.id) / "scores.h5", "scores", {}, {"reward": np.zeros(1)})
    assert replaced(folder, first, [cell]) is None
    longer, wider = make_study(episodes=4), make_study(noise=(0.0, 0.1))
    notice = str(replaced(folder, longer, longer.cells()))
    assert "episodes was 3, is 4" in notice
    assert "1 finished cell(s) of it stay in cells/" in notice
    assert "finished" not in str(replaced(folder, wider, wider.cells())), "all that is there belongs to it"
    folder.cell(cell.id).rename(folder.cell("0123456789abcdef"))
    assert "made by another version" in str(replaced(folder, first, [cell]))
    folder.study.write_text("[[[")
    assert "not valid TOML" in str(replaced(folder, first, [cell]))


def test_what_a_plan_prints(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """Whole names, times in days, cores rather than workers, where a cell continues, and what is left out."""
    asked: list[int] = []

    def estimated(cells: list[Cell], everyone: list[Cell], rule: str, workers: int, measure: bool) -> Estimate:
        asked.append(workers)
        return Estimate(3936 * 60.0, {}, 0)

    monkeypatch.setattr(plan_report, "cores", lambda: 2)
    monkeypatch.setattr(plan_report, "estimate", estimated)
    monkeypatch.setattr(plan_report, "_PLAN_ROWS", 2)
    strategy = "Drop(0.5)*Synth(action=0.25)*FIFO(5000)[PERprop(0.65)+IS(0.45→0.95)]"
    study = make_study(strategies=(strategy, "FIFO[Uniform]", "FULL[PER]"), update_every=1)
    checkpoint = RunFolder(tmp_path / "run").cell(study.cells()[0].id) / "checkpoint.h5"
    write_record(checkpoint, "checkpoint", {"episode": 2}, {})
    for width, workers, cluster, who in (
        (80, 2, None, "2 worker(s) of this machine\n"),
        (120, 8, None, "8 worker(s) of this machine, which share its 2 core(s)"),
        (200, 8, "tcp://host:8786", "one worker; those of tcp://host:8786 share it"),
    ):
        show_plan(Console(width=width), study, tmp_path / "run", workers, cluster)
        printed = capsys.readouterr().out
        for part in (f"about 2 days 18 h on {who}", str(parse(strategy)), "every step", "… and 1 further grid points"):
            assert part in printed
    assert "to run, at 2 of 3" in printed
    assert asked == [2, 2, 1]


def test_a_plan_of_many_blocks_asks_once_for_them(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """A plant's source is read once, not for each of 2000 blocks."""
    asked = []

    def counted(name: str, **parameters: float) -> object:
        asked.append(name)
        return make_plant(name, **parameters)

    monkeypatch.setattr(studies, "make_plant", counted)
    show_plan(Console(width=150), make_study(seeds=2000, block=1), tmp_path / "run", 2)
    told = capsys.readouterr().out
    assert "2000 cells, 2000 to run" in told
    assert "2000 blocks" in told
    assert len(told.splitlines()) < 15
    assert len(asked) < 15


class Timed:
    """A run on a clock: the first step and update take `first` seconds, later ones `step` and `update` seconds each."""

    def __init__(
        self, clock: list[float], first: float, step: float, update: float = 0.01, updates: float = 0.0
    ) -> None:
        self.clock, self.first, self.step, self.update, self.updates_per_phase = clock, first, step, update, updates

    def act(self, steps: int) -> int:
        self.clock[0] += self.first or self.step * steps
        self.first = 0.0
        return steps

    def learn(self, updates: int) -> int:
        self.clock[0] += self.update * updates
        return updates

    def close(self) -> None:
        pass


def test_an_estimate_tries_each_class_of_cells_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """Compilation at the beginning does not count; a slow class is tried for some steps and updates only."""
    clock, tried = [0.0], list[str]()
    runs = {
        "DDPG": Timed(clock, 25.0, 0.005),
        "NAF": Timed(clock, 1.0, 0.015),
        "SAC": Timed(clock, 0.0, 0.02, 0.2, 200.0),
    }

    def run(cell: Cell) -> Timed:
        tried.append(cell.learner)
        return runs[cell.learner]

    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", run)
    monkeypatch.setattr("replaybench.experiments.calibration.time.process_time", lambda: clock[0])
    cells = make_study(learners=("DDPG", "NAF"), noise=(0.0, 0.1), episodes=100, seeds=4, block=2).cells()
    assert len(cells) == 8
    for workers in (1, 2):
        assert estimate(cells, (), None, workers, compiles=True).seconds == pytest.approx((4 * 100 + 4 * 300) / workers)
    assert sorted(tried) == ["DDPG", "NAF"]
    before = clock[0]
    slow = make_study(learners=("SAC",), episodes=100).cells()
    assert estimate(slow, (), None, 1, compiles=True).seconds == pytest.approx(200 * 100 * 0.22)
    assert clock[0] - before < TRIAL_SECONDS


def test_an_estimate_of_time_does_not_count_what_others_do_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("replaybench.experiments.calibration.cache_dir", lambda: tmp_path)
    act = CellRun.act

    def held_up(run: CellRun, steps: int) -> int:
        time.sleep(0.3)
        return act(run, steps)

    monkeypatch.setattr("replaybench.experiments.calibration.CellRun.act", held_up)
    (cell,) = make_study(learner={"DDPG": {"replays_per_experience": 0.01}}).cells()
    assert estimate([cell], (), None, 1, compiles=True).seconds < 0.3 * cell.episodes


def test_the_memory_of_a_plan_counts_references_that_are_not_known_yet(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    study = make_study(plants=("Pendulum",), reference="converged")
    missing = plan(study, RunFolder(tmp_path / "run"), 1).memory_bytes
    paper = plan(make_study(plants=("Pendulum",), reference="paper"), RunFolder(tmp_path / "run"), 1).memory_bytes
    assert missing - paper > 4e8
    [cell] = study.cells()
    kept = kept_at(make_plant("Pendulum"), cell.frequency, cell.noise, "converged")
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert plan(study, RunFolder(tmp_path / "run"), 1).memory_bytes < paper


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"learners": ("TD3+BC",), "learner": {"TD3+BC": {"warmup_episodes": 3}}},
            'warmup_episodes in [learner."TD3+BC"]',
        ),
        ({"learner": {"DDPG": {"batch_size": 601}}}, "gives 600 experiences in 3 episodes, a batch has 601"),
        ({"learner": {"DDPG": {"replays_per_experience": 0.02}}}, "600 steps are followed by no update"),
        ({"noise": (0.0, 1.5), "learner": {"DDPG": FADING}}, "noise 1.5: that is more than half the range"),
        ({}, "set decay_episodes in [learner.DDPG.exploration] to 1, a third"),
        (
            {"learners": ("DQN:own",), "episodes": 249},
            'the run has 249; set decay_episodes in [learner."DQN:own"] to 83',
        ),
    ],
)
def test_a_study_that_cannot_teach_anything_is_told_of(changes: dict[str, Any], told: str) -> None:
    [warning] = plan_warnings(make_study(**changes).cells())
    assert told in warning


def test_a_study_that_can_teach_something_is_not(tmp_path: Path) -> None:
    just = {"batch_size": 600, "replays_per_experience": 1.0}
    assert not plan_warnings(make_study(learner={"DDPG": just | FADING}, noise=(1.0,)).cells())
    assert not plan_warnings(make_study(learners=("V-RACER", "SAC"), episodes=60).cells()), "theirs does not fade"
    assert not plan_warnings(make_study(learners=("DQN",), episodes=250).cells())


def test_a_dry_run_compiles_nothing_and_measures(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """A first one once compiled for minutes, without a word."""
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    study = make_study()

    def needs_kernels(cell: Cell) -> float:
        raise NotCompiledError

    monkeypatch.setattr(calibration, "_time_cell", needs_kernels)
    show_plan(Console(width=150), study, tmp_path / "run", 1)
    told = capsys.readouterr().out
    assert "measuring the speed of 1 type of cells" in told
    assert "compiling" in told
    assert "a guess for 1 type" in told
    monkeypatch.setattr(calibration, "_time_cell", lambda cell: pytest.fail("it was told not to measure"))
    show_plan(Console(width=150), study, tmp_path / "run", 1, measure=False)
    assert "measuring" not in capsys.readouterr().out


def test_nothing_is_compiled_where_only_stored_kernels_are_wanted(tmp_path: Path) -> None:
    fresh = textwrap.dedent(
        """
        from replaybench.runtime.kernel import NotCompiledError, stored_kernels_only
        from replaybench.envs.ode.plant import wrap_angle
        try:
            with stored_kernels_only():
                wrap_angle(4.0)
        except NotCompiledError:
            wrap_angle(4.0)
            print("compiled afterwards")
        """
    )
    command = [sys.executable, "-c", fresh]
    env = {**os.environ, "REPLAYBENCH_CACHE": str(tmp_path)}
    runs = [subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert runs == ["compiled afterwards\n", ""]


def test_an_estimate_counts_the_references_that_are_not_there(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    cells = make_study(noise=(0.02,)).cells()
    needed = estimate(cells, cells, None, 1, measure=False)
    assert needed.parts["references"] > 1
    assert needed.seconds == pytest.approx(sum(needed.parts.values()))
    [cell] = cells
    kept = kept_at(cell.make_plant(), cell.frequency, cell.noise, None)
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert estimate(cells, cells, None, 1, measure=False).parts["references"] == 0
    assert estimate([], cells, None, 1).seconds == 0
