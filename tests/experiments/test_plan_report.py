"""What a sweep says before it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from replaybench.baselines.references import kept_at
from replaybench.data.compilation.stored import NotCompiledError
from replaybench.data.formats.run_folder import RunFolder
from replaybench.data.records.record import write_record
from replaybench.envs.registry import make_plant
from replaybench.experiments import calibration, plan_report
from replaybench.experiments.calibration import TRIAL_SECONDS, Estimate, estimate, estimate_seconds
from replaybench.experiments.plan import plan
from replaybench.experiments.plan_report import show_plan
from replaybench.experiments.plan_warnings import plan_warnings
from replaybench.experiments.study_changes import replaced
from replaybench.experiments.study_text import resolved, write_toml
from replaybench.experiments.training import study as studies
from replaybench.experiments.training.cell import CellRun
from replaybench.experiments.training.study import Cell, Study
from replaybench.replay.strategies.notation import parse

FADING = {"exploration": {"decay_episodes": 2}}


def make_study(**changes: object) -> Study:
    settings = {"name": "t", "plants": ("PendulumDCSC",), "strategies": ("FIFO[Uniform]",), "episodes": 3, "seeds": 2}
    return Study(**(settings | changes))  # type: ignore[arg-type]


def store(folder: RunFolder, study: Study) -> None:
    """Leave what a finished sweep leaves, as far as it is looked at."""
    cells = study.cells()
    folder.path.mkdir(exist_ok=True)
    folder.study.write_text(write_toml(resolved(study, cells)), encoding="utf-8")
    for cell in cells:
        write_record(folder.cell(cell.id) / "scores.h5", "scores", {}, {"reward": np.zeros(1)})


def test_a_changed_study_says_what_it_replaces(tmp_path: Path) -> None:
    folder, first = RunFolder(tmp_path / "run"), make_study()
    assert replaced(folder, first, first.cells()) is None
    store(folder, first)
    assert replaced(folder, first, first.cells()) is None
    longer = make_study(episodes=4)
    told = replaced(folder, longer, longer.cells())
    assert told is not None
    assert "episodes was 3, is 4" in told
    assert "results.nc" in told
    assert "1 finished cell(s) of it stay in cells/" in told
    wider = make_study(noise=(0.0, 0.1))
    told = replaced(folder, wider, wider.cells())
    assert told is not None
    assert "finished" not in told, "all that is there belongs to it"
    folder.study.write_text("[[[")
    told = replaced(folder, first, first.cells())
    assert told is not None
    assert "not valid TOML" in told


def test_workers_beyond_the_cores_do_not_make_it_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def estimated(cells: list[Cell], everyone: list[Cell], rule: str, workers: int, measure: bool) -> Estimate:
        asked.append(workers)
        return Estimate(60.0, {}, 0)

    monkeypatch.setattr(plan_report, "cores", lambda: 2)
    monkeypatch.setattr(plan_report, "estimate", estimated)
    for workers in (2, 8):
        show_plan(Console(quiet=True), make_study(), tmp_path / "run", workers)
    assert asked == [2, 2]
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("time")]
    assert "share" not in told[0]
    assert "8 worker(s) of this machine, which share its 2 core(s)" in told[1]


def test_cells_of_another_version_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, study = RunFolder(tmp_path / "run"), make_study()
    store(folder, study)
    folder.cell(study.cells()[0].id).rename(folder.cell("0123456789abcdef"))
    told = replaced(folder, study, study.cells())
    assert told is not None
    assert "made by another version" in told


def test_a_plan_of_many_blocks_asks_once_for_what_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plant's source is read once, not for each of 2000 blocks: of 100,000 that took 15 minutes."""
    asked = []

    def counted(name: str, **parameters: float) -> object:
        asked.append(name)
        return make_plant(name, **parameters)

    monkeypatch.setattr(studies, "make_plant", counted)
    monkeypatch.setattr("replaybench.experiments.plan.make_plant", counted)
    show_plan(Console(width=150), make_study(seeds=2000, block=1), tmp_path / "run", 2)
    told = capsys.readouterr().out
    assert "2000 cells, 2000 to run" in told
    assert "2000 blocks" in told
    assert len(told.splitlines()) < 15
    assert len(asked) < 15


def test_long_tables_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_report, "_MOST_ROWS", 2)
    show_plan(Console(width=150), make_study(noise=tuple(np.arange(5) / 10)), tmp_path / "run", 2)
    assert "… and 3 further grid points" in capsys.readouterr().out


class Compiling:
    """A run whose first episode compiles for `first` seconds; every further one takes as many as it `then` says."""

    updates_per_phase = 0.0

    def __init__(self, clock: list[float], first: float, then: float = 1.0) -> None:
        self.clock, self.first, self.then = clock, first, then

    def act(self, steps: int) -> int:
        self.clock[0] += self.first
        self.first = self.then
        return 200

    def learn(self, updates: int) -> int:
        self.clock[0] += 0.01 * updates
        return updates

    def close(self) -> None:
        pass


@pytest.mark.parametrize("first", [1.0, 25.0])
def test_an_estimate_of_time_leaves_out_what_is_compiled_at_first(
    first: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold dry run once printed 817,181 minutes: its only round was the one that compiled."""
    clock = [0.0]
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", lambda cell: Compiling(clock, first))
    monkeypatch.setattr("replaybench.experiments.calibration.time.process_time", lambda: clock[0])
    cells = make_study(episodes=100, seeds=2, block=2).cells()
    assert estimate_seconds(cells, 1) == pytest.approx(100.0)


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
    assert estimate_seconds([cell], 1) < 0.3 * cell.episodes


def test_an_estimate_of_time_tries_each_kind_of_cell_once_and_keeps_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One learner's time was once taken for all."""
    clock, tried = [0.0], list[str]()

    def run(cell: Cell) -> Compiling:
        tried.append(cell.learner)
        return Compiling(clock, 1.0) if cell.learner == "DDPG" else Compiling(clock, 1.0, 3.0)

    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", run)
    monkeypatch.setattr("replaybench.experiments.calibration.time.process_time", lambda: clock[0])
    cells = make_study(learners=("DDPG", "NAF"), noise=(0.0, 0.1), episodes=100, seeds=4, block=2).cells()
    assert len(cells) == 8
    for workers in (1, 2):
        assert estimate_seconds(cells, workers) == pytest.approx((4 * 100 + 4 * 300) / workers)
    assert sorted(tried) == ["DDPG", "NAF"]


def test_the_memory_of_a_plan_counts_references_that_are_not_known_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_plan_cuts_no_names_and_counts_as_people_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_report, "estimate", lambda *asked: Estimate(3936 * 60.0, {}, 0))
    strategy = "Drop(0.5)*Synth(action=0.25)*FIFO(5000)[PERprop(0.65)+IS(0.45→0.95)]"
    for width in (80, 120):
        study = make_study(strategies=(strategy, "FIFO[Uniform]"), update_every=1)
        show_plan(Console(width=width), study, tmp_path / "run", 2)
        told = capsys.readouterr().out
        assert "2 days 18 h" in told
        assert str(parse(strategy)) in told, "in one piece"
        assert "every step" in told


def test_a_plan_for_a_cluster_does_not_take_its_workers_for_those_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        plan_report, "estimate", lambda cells, everyone, rule, workers, measure: Estimate(120.0 / workers, {}, 0)
    )
    show_plan(Console(width=80), make_study(), tmp_path / "run", 2, "tcp://host:8786")
    assert "time    about 2 min on one worker; those of tcp://host:8786 share it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"learners": ("TD3",), "learner": {"TD3": {"warmup_episodes": 3}}},
            "it warms up for 3 episodes, the run has 3",
        ),
        (
            {"learners": ("TD3+BC",), "learner": {"TD3+BC": {"warmup_episodes": 3}}},
            'lower warmup_episodes in [learner."TD3+BC"]',
        ),
        ({"learner": {"DDPG": {"batch_size": 601}}}, "gives 600 experiences in 3 episodes, a batch has 601"),
        ({"learner": {"DDPG": {"replays_per_experience": 0.02}}}, "600 steps are followed by no update"),
        ({"noise": (0.0, 1.5), "learner": {"DDPG": FADING}}, "noise 1.5: that is more than half the range"),
        ({}, "set decay_episodes in [learner.DDPG.exploration] to 1, a third"),
        (
            {"learners": ("DQN:own",), "strategies": ("FIFO[Uniform]",), "episodes": 249},
            'that fades over 500 episodes, the run has 249; set decay_episodes in [learner."DQN:own"] to 83',
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


def test_what_continues_is_not_said_to_begin(tmp_path: Path) -> None:
    folder, study = RunFolder(tmp_path / "run"), make_study(episodes=30)
    (cell,) = study.cells()
    write_record(folder.cell(cell.id) / "checkpoint.h5", "checkpoint", {"episode": 7}, {})
    console = Console(record=True, width=200)
    show_plan(console, study, folder.path, 1)
    assert "to run, at 7 of 30" in console.export_text()


def test_a_dry_run_compiles_nothing_and_says_that_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first one once compiled for minutes, without a word."""
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    study = make_study()

    def needs_kernels(cell: Cell) -> float:
        raise NotCompiledError

    monkeypatch.setattr(calibration, "_tried", needs_kernels)
    show_plan(Console(width=150), study, tmp_path / "run", 1)
    told = capsys.readouterr().out
    assert "measuring the speed of 1 kind of cells" in told
    assert "compiling" in told
    assert "a guess for 1 kind" in told
    monkeypatch.setattr(calibration, "_tried", lambda cell: pytest.fail("it was told not to measure"))
    show_plan(Console(width=150), study, tmp_path / "run", 1, measure=False)
    assert "measuring" not in capsys.readouterr().out


def test_nothing_is_compiled_where_only_stored_kernels_are_wanted(tmp_path: Path) -> None:
    fresh = textwrap.dedent(
        """
        from replaybench.data.compilation.stored import NotCompiledError, stored_kernels_only
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


def test_a_trial_ends_in_time_however_slow_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of a large learner takes minutes; its speed is known after some steps and updates."""
    clock = [0.0]

    class Slow(Compiling):
        updates_per_phase = 1000.0

        def act(self, steps: int) -> int:
            self.clock[0] += 0.02 * steps
            return steps

        def learn(self, updates: int) -> int:
            self.clock[0] += 0.2 * updates
            return updates

    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", lambda cell: Slow(clock, 0.0))
    monkeypatch.setattr("replaybench.experiments.calibration.time.process_time", lambda: clock[0])
    cells = make_study(update_every=1000, episodes=1000).cells()
    assert estimate_seconds(cells, 1) == pytest.approx(200 * 1000 * 0.22)
    assert clock[0] < TRIAL_SECONDS


def test_an_estimate_counts_the_references_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
