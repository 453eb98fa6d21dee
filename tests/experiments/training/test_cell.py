"""One cell: resumed equals uninterrupted bit for bit, files hold what they should, dead plants are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import assert_equal_files, until
from scipy import stats

from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.learner import Learner
from replaybench.data.errors import UserError
from replaybench.data.records.record import read_record
from replaybench.experiments.progress.round import Round
from replaybench.experiments.results.dataset import assemble
from replaybench.experiments.training.cell import CellRun, run_cell
from replaybench.experiments.training.study import Cell, Study


def make_cell(strategy: str = "FULL[PER+IS]", plant: str = "PendulumDCSC", **changes: object) -> Cell:
    settings = {"name": "t", "plants": (plant,), "strategies": (strategy,), "noise": (0.02,), "seeds": 3,
                "episodes": 10, "capacity": 700, "greedy_every": 3} | changes  # fmt: skip
    return Study(**settings).cells()[0]  # type: ignore[arg-type]


NORMALISED = {"normalise": {"observations": True, "clip": 5.0, "rewards": True}}


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("FIFO[Uniform]", {}),
        ("FULL[PER+IS]", {"exploration": {"form": "gaussian", "last_sigma": 0.1, "truncate": 3.0}}),
        ("Resv[PER]", {}),
        ("Synth(state=0.2)*FIFO[Uniform]", {"exploration": {"form": "parameter"}, **NORMALISED}),
    ],
)
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, strategy: str, settings: dict[str, Any]) -> None:
    cell = make_cell(strategy, learner={"DDPG": settings})
    assert run_cell(cell, tmp_path / "whole", buffers="final")
    for stop in (2, 3, 8):
        assert not run_cell(cell, tmp_path / "parts", "final", report=until(stop))
        assert (tmp_path / "parts" / "checkpoint.h5").exists()
    assert run_cell(cell, tmp_path / "parts", buffers="final")
    assert_equal_files(tmp_path / "whole", tmp_path / "parts")
    assert not (tmp_path / "parts" / "checkpoint.h5").exists()


def test_checkpoints_are_written_while_running(tmp_path: Path) -> None:
    seen = []

    def report(told: Round) -> bool:
        seen.append((tmp_path / "checkpoint.h5").exists())
        return True

    run_cell(make_cell(episodes=4), tmp_path, "none", 0.0, report)
    assert seen == [False, True, True, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.safetensors", "scores.h5", "snapshots.h5"]


def test_a_checkpoint_of_another_cell_is_refused(tmp_path: Path) -> None:
    run_cell(make_cell(), tmp_path, "none", report=lambda episode: False)
    with pytest.raises(UserError, match="checkpoint"):
        run_cell(make_cell(root_seed=5), tmp_path, "none")


@pytest.mark.parametrize("every", [0, 50])
def test_schedules_run_over_as_many_steps_as_asked(every: int) -> None:
    """A run of 4 episodes whose schedules take 6 is the beginning of a run of 6; beyond them they stay at their end."""
    changes: dict[str, Any] = {"strategies": ("FIFO[AER(4, 1)]",), "learners": ("TD3",), "update_every": every}
    told = {}
    for episodes, horizon in ((6, 0), (4, 1200), (4, 0), (6, 600)):
        run = CellRun(make_cell(episodes=episodes, horizon_steps=horizon, **changes))
        while run.episode < episodes:
            run.advance()
        told[episodes, horizon] = run.reward
    assert np.array_equal(told[4, 1200], told[6, 0][:, :4])
    assert not np.array_equal(told[4, 0], told[6, 0][:, :4])
    assert np.isfinite(told[6, 600]).all()


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FIFO[Uniform+ReFER]"])
def test_the_size_of_a_buffer_that_is_never_full_changes_nothing(strategy: str) -> None:
    told = []
    for capacity in (1000, 5000):
        cell = make_cell(strategies=(strategy,), learners=("V-RACER",), capacity=capacity, episodes=5)
        run = CellRun(cell)
        while run.episode < 5:
            run.advance()
        told.append(run.reward)
    assert np.array_equal(told[0], told[1])


def test_evaluations_are_stored_and_change_no_training(tmp_path: Path) -> None:
    """Each is the mean of its episodes, and those that a stopped run has had are there when it goes on."""
    asked: dict[str, Any] = {"evaluate_every_steps": 500, "evaluation_episodes": 4}
    plain, cell = make_cell(episodes=6), make_cell(episodes=6, **asked)
    told = {}
    for name, each in (("plain", plain), ("whole", cell)):
        assert run_cell(each, tmp_path / name, "final")
        told[name] = read_record(tmp_path / name / "scores.h5", "scores")[1]
    assert not run_cell(cell, tmp_path / "parts", "final", report=until(4))
    assert run_cell(cell, tmp_path / "parts", "final")
    assert_equal_files(tmp_path / "whole", tmp_path / "parts")
    assert np.array_equal(told["plain"]["reward"], told["whole"]["reward"])
    assert "reward_evaluation" not in told["plain"]
    evaluations = assemble([cell], {}, {cell.id: tmp_path / "whole"})["reward_evaluation"]
    assert evaluations["evaluation_step"].values.tolist() == [500, 1000]
    assert np.array_equal(evaluations.values.squeeze(), told["whole"]["reward_evaluation"])
    assert (told["whole"]["reward_evaluation"] != told["whole"]["reward"][:, [2, 4]]).all()


@pytest.mark.parametrize("every", [199, 10**6])
def test_evaluations_more_often_than_episodes_end_or_never_are_refused(every: int) -> None:
    with pytest.raises(UserError, match="evaluate_every_steps"):
        make_cell(evaluate_every_steps=every)


def test_every_experience_is_replayed_as_often_as_asked() -> None:
    """200 steps × 8 replays / batch 16 = 100 updates per episode; at 33.25 Hz (133 steps) 66.5, carried over."""
    for frequency, updates in ((50.0, 1000), (33.25, 665)):
        run = CellRun(make_cell(frequency=(frequency,)))
        while run.episode < 10:
            run.advance()
        assert run.agent.state_dict()["steps"][0] == updates


@pytest.mark.parametrize(
    ("learner", "frequency", "settings"),
    [("ACER", 10.0, {}), ("ACER-discrete", 12.5, {"segment": 40}), ("ACER", 50.0, {"segment": 150, "batch_size": 2})],
)
def test_segments_that_end_with_their_episode_are_replayed_as_often(
    learner: str, frequency: float, settings: dict[str, Any]
) -> None:
    """Episodes have 40, 50 and 200 steps. With updates for whole segments there were too few: 12.8 in place of 16."""
    learners = {learner: {**settings, "on_policy": False}}
    cell = make_cell(strategies=("FULL[Uniform]",), learners=(learner,), frequency=(frequency,), learner=learners)
    run, replayed = CellRun(cell), 0
    update = run.agent.update

    def counted(batch: Any) -> Any:
        nonlocal replayed
        replayed += int(batch.length.astype(int).sum())
        return update(batch)

    run.agent.update = counted  # type: ignore[method-assign]
    while run.episode < cell.episodes:
        run.advance()
    stepped = cell.members * cell.episodes * run.env.steps_per_episode
    assert replayed / stepped == pytest.approx(run.agent.replays_per_experience, rel=0.1)


def test_a_learner_need_not_say_what_form_its_policy_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only exports ask for it, and altered actions where there are choices."""
    monkeypatch.setattr(DDPG, "policy_form", Learner.policy_form)
    CellRun(make_cell(strategies=("Synth(action=0.5)*FIFO[Uniform]",))).advance()


def test_altered_actions_are_those_that_a_learner_can_take() -> None:
    """All 15 of DQN's, as often; drawn from the box and put down to the nearest, both ends came half as often."""
    cell = make_cell(strategies=("Synth(action=1.0)*FULL[Uniform]",), learners=("DQN",))
    run = CellRun(cell)
    while run.episode < cell.episodes:
        run.advance()
    stored = run.replay.columns.column("action")[:, : int(run.replay.count.max()), 0].ravel()
    values, counts = np.unique(stored, return_counts=True)
    np.testing.assert_array_equal(values, np.linspace(-1, 1, 15, dtype=np.float32))
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_member_is_the_same_in_any_block() -> None:
    """Bit for bit, whatever runs beside it: seed 2 of a block of 3 equals seed 2 alone."""
    together = CellRun(make_cell())
    alone = CellRun(make_cell(block=1, seeds=3))
    single = CellRun(Study(name="t", plants=("PendulumDCSC",), strategies=("FULL[PER+IS]",), noise=(0.02,), seeds=3,
                           block=1, episodes=10, capacity=700, greedy_every=3).cells()[2])  # fmt: skip
    for run in (together, alone, single):
        for _ in range(4):
            run.advance()
    np.testing.assert_array_equal(together.reward[2], single.reward[0])
    np.testing.assert_array_equal(together.reward[0], alone.reward[0])


def test_members_whose_episodes_end_early_depend_on_nobody() -> None:
    """Cart-poles leave their track at different times; each is the same alone, its stored count too."""
    plant = str(Path(__file__).parents[3] / "replaybench" / "examples" / "cart_pole.py") + ":CartPole"
    common = {
        "name": "t",
        "plants": (plant,),
        "strategies": ("FIFO[PER]",),
        "noise": (0.02,),
        "seeds": 4,
        "episodes": 4,
    }
    together = CellRun(Study(**common).cells()[0])  # type: ignore[arg-type]
    singles = [CellRun(cell) for cell in Study(**common, block=1).cells()]  # type: ignore[arg-type]
    for run in (together, *singles):
        while run.episode < 4:
            run.advance()
    assert len(set(together.replay.count.tolist())) > 1
    for m, single in enumerate(singles):
        assert together.replay.count[m] == single.replay.count[0]
        np.testing.assert_array_equal(together.reward[m], single.reward[0])


def test_statistics_are_those_of_what_each_member_collected() -> None:
    """Cart-poles again: the buffer holds every step, and nothing of it is counted twice or left out."""
    plant = str(Path(__file__).parents[3] / "replaybench" / "examples" / "cart_pole.py") + ":CartPole"
    run = CellRun(make_cell(plant=plant, strategy="FIFO[Uniform]", capacity=10_000, learner={"DDPG": NORMALISED}))
    for _ in range(2):
        run.advance()
    count, column = run.replay.count, run.replay.columns.column
    assert len(set(count.tolist())) > 1
    weights = run.agent.weights()
    np.testing.assert_array_equal(weights["observation.count"], count)
    np.testing.assert_array_equal(weights["reward.count"], count)
    for m, stored in enumerate(count):
        np.testing.assert_allclose(
            weights["observation.mean"][m], column("observation")[m, :stored].mean(axis=0, dtype=np.float64), rtol=1e-6
        )
        mean_square = np.square(column("reward")[m, :stored], dtype=np.float64).mean()
        np.testing.assert_allclose(weights["reward.mean_square"][m], mean_square, rtol=1e-6)


def test_a_failed_member_fails_alone() -> None:
    healthy, ill = CellRun(make_cell()), CellRun(make_cell())
    for run in (healthy, ill):
        run.advance()
    ill.agent.state_dict()["actor"][1] = np.nan
    for run in (healthy, ill):
        run.advance()
        run.advance()
    assert np.isnan(ill.reward[1, 1:3]).all()
    np.testing.assert_array_equal(healthy.reward[[0, 2]], ill.reward[[0, 2]])


def test_stored_successors_are_true_and_time_limits_are_not_terminal() -> None:
    """Within an episode each successor is the next observation; at its end it is not the next episode's first."""
    run = CellRun(make_cell("FULL[Uniform]", episodes=3))
    for _ in range(2):
        run.advance()
    columns, steps = run.replay.columns, run.env.steps_per_episode
    now, after = columns.column("observation")[:, : 2 * steps], columns.column("next_observation")[:, : 2 * steps]
    inside = np.arange(2 * steps - 1) != steps - 1
    np.testing.assert_array_equal(after[:, :-1][:, inside], now[:, 1:][:, inside])
    assert (after[:, steps - 1] != now[:, steps]).any(axis=1).all()
    assert not columns.column("terminated")[:, : 2 * steps].any()


def test_horizon_discount_keeps_the_horizon_and_the_scale_of_values() -> None:
    fixed, horizon = (CellRun(make_cell(discount=kind, frequency=(100.0,))).agent.task for kind in ("fixed", "horizon"))
    assert fixed.discount == 0.95
    assert horizon.discount == pytest.approx(0.9747, abs=5e-5)
    assert horizon.reward_scale == fixed.reward_scale / 2
