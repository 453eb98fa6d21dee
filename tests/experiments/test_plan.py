"""Plan of a sweep: its report, warnings, and estimates of time and memory."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console

from replaybench.baselines.references import kept_at
from replaybench.baselines.rivals import Rivals
from replaybench.cli import plan as plan_report
from replaybench.cli.plan import show_plan
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.registry import make_plant
from replaybench.experiments import calibration
from replaybench.experiments import study as studies
from replaybench.experiments.calibration import TRIAL_SECONDS, Estimate, estimate
from replaybench.experiments.plan import check_room, plan, plan_warnings
from replaybench.experiments.study import Study
from replaybench.experiments.study_record import replaced, resolved, write_toml
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import NotCompiledError
from tests.helpers.cells import small_study
from tests.helpers.commands import Capsys, Patch

FADING = {"exploration": {"decay_episodes": 2}}


def make_study(**changes: object) -> Study:
    return small_study(**{"episodes": 3, "seeds": 2} | changes)


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
    estimated = Mock(return_value=Estimate(3936 * 60.0, {}, 0))
    monkeypatch.setattr(plan_report, "cores", lambda: 2)
    monkeypatch.setattr(plan_report, "estimate", estimated)
    monkeypatch.setattr(plan_report, "_MOST_ROWS", 2)
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
    assert [asked.args[3] for asked in estimated.call_args_list] == [2, 2, 1]


def test_little_disk_space_refuses_only_what_has_not_begun(tmp_path: Path, monkeypatch: Patch) -> None:
    """The need is an upper limit, so that a run that has begun may fit."""
    run, study = RunFolder(tmp_path / "run"), small_study(seeds=1, episodes=4)
    needs = plan(study, run, 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=needs.most_disk_bytes - 1))
    with pytest.raises(UserError, match="on disk, .* free; use --buffers none, fewer episodes"):
        check_room(needs, run)
    run.cell(needs.cells[0].id).mkdir(parents=True)
    assert "free; use --buffers none" in check_room(needs, run)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=needs.most_disk_bytes))
    assert not check_room(needs, run)


def test_a_plan_of_many_blocks_asks_once_for_them(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """A plant's source is read once, not for each of 200 blocks."""
    counted = Mock(wraps=make_plant)
    monkeypatch.setattr(studies, "make_plant", counted)
    show_plan(Console(width=150), make_study(seeds=200, block=1), tmp_path / "run", 2)
    told = capsys.readouterr().out
    assert all(part in told for part in ("200 cells, 200 to run", "200 blocks"))
    assert len(told.splitlines()) < 15
    assert 0 < counted.call_count < 15


class Timed:
    """A run on a clock: the first step and update take `first` seconds, later ones `step` and `update` seconds each."""

    def __init__(self, clock: list[float], first: float, step: float, update: float = 0.01, updates: float = 0) -> None:
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


class Filling(Timed):
    """A run whose steps take longer when the buffer is full."""

    replay = SimpleNamespace(count=np.zeros(1, np.int64), slots=3000)

    def act(self, steps: int) -> int:
        self.step = 0.08 if self.replay.count[0] == self.replay.slots else 0.01
        self.replay.count[0] = min(self.replay.slots, self.replay.count[0] + steps)
        return super().act(steps)


def test_an_estimate_tries_a_strategy_of_ones_own_with_a_full_buffer(tmp_path: Path, monkeypatch: Patch) -> None:
    clock = [0.0]
    source = "from replaybench.replay.strategies.retention import FIFO\nclass Mine(FIFO):\n    in_turn = True\n"
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", lambda cell: Filling(clock, 0.0, 0.01))
    monkeypatch.setattr("replaybench.experiments.calibration.time.process_time", lambda: clock[0])
    strategies = (f"{tmp_path / 'mine.py'}:Mine[Uniform]",)
    steps = make_study().cells()[0].steps_per_episode
    for episodes, seconds in ((10, 0.01), (60, 0.5 * 0.01 + 0.5 * 0.08)):
        (cell,) = make_study(strategies=strategies, episodes=episodes, seeds=1, capacity=30 * steps).cells()
        expected = steps * episodes * seconds
        assert estimate([cell], (), None, 1, compiles=True).seconds == pytest.approx(expected)


def test_an_estimate_tries_each_class_of_cells_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """In processor time without that of compilation; a slow class is tried for some steps and updates only."""
    clock = [0.0]
    times = {"DDPG": (25.0, 0.005), "NAF": (1.0, 0.015), "SAC": (0.0, 0.02, 0.2, 200.0)}
    runs = {learner: Timed(clock, *seconds) for learner, seconds in times.items()}
    tried = Mock(side_effect=lambda cell: runs[cell.learner])
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("replaybench.experiments.calibration.CellRun", tried)
    monkeypatch.setattr("replaybench.experiments.calibration.time.process_time", lambda: clock[0])
    cells = make_study(learners=("DDPG", "NAF"), noise=(0.0, 0.1), episodes=100, seeds=4, block=2).cells()
    assert len(cells) == 8
    for workers in (1, 2):
        assert estimate(cells, (), None, workers, compiles=True).seconds == pytest.approx((4 * 100 + 4 * 300) / workers)
    assert sorted(each.args[0].learner for each in tried.call_args_list) == ["DDPG", "NAF"]
    before = clock[0]
    slow = make_study(learners=("SAC",), episodes=100).cells()
    assert estimate(slow, (), None, 1, compiles=True).seconds == pytest.approx(200 * 100 * 0.22)
    assert clock[0] - before < TRIAL_SECONDS


def test_references_that_are_not_known_yet_take_time_and_memory(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("REPLAYBENCH_CACHE", str(tmp_path))
    study, folder = make_study(plants=("Pendulum",), noise=(0.02,), reference="converged"), RunFolder(tmp_path / "run")
    cells, paper = study.cells(), plan(dataclasses.replace(study, reference="paper"), folder, 1).memory_bytes
    needed = estimate(cells, cells, "converged", 1, measure=False)
    assert needed.parts["references"] > 1
    assert needed.seconds == pytest.approx(sum(needed.parts.values()))
    assert plan(study, folder, 1).memory_bytes - paper > 4e8
    kept = kept_at(cells[0].make_plant(), cells[0].frequency, cells[0].noise, "converged")
    kept.parent.mkdir(parents=True)
    kept.touch()
    rivals = Rivals().seconds(cells[0].make_plant(), cells[0].frequency, cells[0].noise)
    assert 0 < rivals < needed.parts["references"]
    assert estimate(cells, cells, "converged", 1, measure=False).parts["references"] == rivals
    assert estimate([], cells, None, 1).seconds == 0
    assert plan(study, folder, 1).memory_bytes < paper


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"learners": ("TD3+BC",), "learner": {"TD3+BC": {"warmup_episodes": 3}}}, 'warmup_episodes in [learner."TD3'),
        ({"learner": {"DDPG": {"batch_size": 601}}}, "gives 600 experiences in 3 episodes, a batch has 601"),
        ({"learner": {"DDPG": {"replays_per_experience": 0.02}}}, "600 steps are followed by no update"),
        ({"noise": (0.0, 1.5), "learner": {"DDPG": FADING}}, "noise 1.5: that is more than half the range"),
        ({}, "set decay_episodes in [learner.DDPG.exploration] to 1, a third"),
        ({"replay_volume": 0.02}, "600 steps are followed by no update; raise episodes, or replay_volume"),
        ({"replay_volume": 2.0, "discount": 0.9}, "set decay_episodes in [learner.DDPG.exploration] to 1, a third"),
        ({"learners": ("DQN:own",), "episodes": 249}, 'has 249; set decay_episodes in [learner."DQN:own"] to 83'),
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
    monkeypatch.setattr(calibration, "_time_cell", Mock(side_effect=NotCompiledError))
    show_plan(Console(width=150), study, tmp_path / "run", 1)
    told = capsys.readouterr().out
    for part in ("measuring the speed of 1 type of cells", "compiling", "a guess for 1 type"):
        assert part in told
    monkeypatch.setattr(calibration, "_time_cell", lambda cell: pytest.fail("it was told not to measure"))
    show_plan(Console(width=150), study, tmp_path / "run", 1, measure=False)
    assert "measuring" not in capsys.readouterr().out


FRESH = """
from replaybench.runtime.kernel import NotCompiledError, stored_kernels_only
from replaybench.envs.ode.plant import wrap_angle
try:
    with stored_kernels_only():
        wrap_angle(4.0)
except NotCompiledError:
    wrap_angle(4.0)
    print("compiled afterwards")
"""


@pytest.mark.slow
def test_nothing_is_compiled_where_only_stored_kernels_are_wanted(tmp_path: Path) -> None:
    env = {**os.environ, "REPLAYBENCH_CACHE": str(tmp_path)}
    for printed in ("compiled afterwards\n", ""):
        assert subprocess.check_output([sys.executable, "-c", FRESH], env=env, text=True) == printed
