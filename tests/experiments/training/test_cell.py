"""One cell: resumption, checkpoints, schedules, evaluations, segments, synthetic actions, statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import advanced, assert_equal_files, until
from scipy import stats

from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.learner import Learner
from replaybench.data.record import read_record
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.dataset import assemble
from replaybench.experiments.progress import Round
from replaybench.experiments.study import Cell, Study


def make_cell(strategy: str = "FULL[PER+IS]", plant: str = "PendulumDCSC", **changes: object) -> Cell:
    settings = {"name": "t", "plants": (plant,), "strategies": (strategy,), "noise": (0.02,), "seeds": 3,
                "episodes": 10, "capacity": 700, "greedy_every": 3} | changes  # fmt: skip
    return Study(**settings).cells()[0]  # type: ignore[arg-type]


NORMALISED = {"normalise": {"observations": True, "clip": 5.0, "rewards": True}}


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("FULL[PER+IS]", {"exploration": {"form": "gaussian", "last_sigma": 0.1, "truncate": 3.0}}),
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


@pytest.mark.parametrize("every", [0, 50])
def test_schedules_run_over_as_many_steps_as_asked(every: int) -> None:
    """A run of 4 episodes whose schedules take 6 is the beginning of a run of 6; beyond them they stay at their end."""
    changes: dict[str, Any] = {"strategies": ("FIFO[AER(4, 1)]",), "learners": ("TD3",), "update_every": every}
    rewards = {
        (episodes, horizon): advanced(make_cell(episodes=episodes, horizon_steps=horizon, **changes)).reward
        for episodes, horizon in ((6, 0), (4, 1200), (4, 0), (6, 600))
    }
    assert np.array_equal(rewards[4, 1200], rewards[6, 0][:, :4])
    assert not np.array_equal(rewards[4, 0], rewards[6, 0][:, :4])
    assert np.isfinite(rewards[6, 600]).all()


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
    run = advanced(cell)
    stored = run.replay.columns.column("action")[:, : int(run.replay.count.max()), 0].ravel()
    values, counts = np.unique(stored, return_counts=True)
    np.testing.assert_array_equal(values, np.linspace(-1, 1, 15, dtype=np.float32))
    assert stats.chisquare(counts).pvalue > 1e-4


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


def test_horizon_discount_keeps_the_horizon_and_the_scale_of_values() -> None:
    fixed, horizon = (CellRun(make_cell(discount=kind, frequency=(100.0,))).agent.task for kind in ("fixed", "horizon"))
    assert fixed.discount == 0.95
    assert horizon.discount == pytest.approx(0.9747, abs=5e-5)
    assert horizon.reward_scale == fixed.reward_scale / 2
