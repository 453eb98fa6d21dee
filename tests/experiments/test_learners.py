"""What studies can ask of learners: masks, ReF-ER, metrics, offline replay of whatever they stored; and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.registry import LEARNERS
from replaybench.data.errors import UserError
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.metric_plots import metric_curves
from replaybench.experiments.offline import read_recording, replay_offline
from replaybench.experiments.results import assemble
from replaybench.experiments.study import Study
from replaybench.experiments.whole_episodes import whole_episodes
from replaybench.replay.notation import parse


def study(named: str, strategy: str = "FULL[Uniform]", **changes: Any) -> Study:
    settings: dict[str, Any] = {
        "name": "t", "plants": ("PendulumDCSC",), "learners": (named,), "strategies": (strategy,), "seeds": 2,
        "episodes": 7, "capacity": 2000, "greedy_every": 3, **changes,
    }  # fmt: skip
    return Study(**settings)


def test_a_mask_makes_the_plant_partly_observed() -> None:
    run = CellRun(study("DDPG", observe=("angle",)).cells()[0])
    run.advance()
    assert run.agent.task.observation_size == 1
    assert run.replay.columns.fields["observation"] == 1
    whole = CellRun(study("DDPG").cells()[0])
    whole.advance()
    assert run.env.get_state()["state"].shape == whole.env.get_state()["state"].shape
    with pytest.raises(UserError, match=r"angel.*angle"):
        study("DDPG", observe=("angel",)).cells()
    with pytest.raises(UserError, match="Synth"):
        study("DDPG", "Synth(action=0.2)*FIFO[Uniform]", observe=("angle",)).cells()


@pytest.mark.parametrize(
    ("learner", "strategy", "changes", "told"),
    [
        ("TD3", "FIFO[Uniform+ReFER]", {}, "TD3 does not heed ReF-ER"),
        ("TD3", "FIFO[Uniform]", {"capacity": 63}, "smaller than a batch of 64"),
        ("ACER", "FIFO[Uniform]", {"capacity": 199}, "smaller than a batch of 200"),
        ("DQN", "FIFO[Uniform]", {"plants": ("Magman",)}, "levels"),
        ("ACER-discrete", "FIFO[Uniform]", {"plants": ("Magman",)}, "levels"),
        ("SAC", "FIFO[Uniform]", {"learner": {"SAC": {"temprature": 0.1}}}, "temperature"),
        ("SACC", "FIFO[Uniform]", {}, "SAC"),
        ("DDPG", "FIFO[Uniform+ReFER]", {}, "gaussian"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_computed(
    learner: str, strategy: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        study(learner, strategy, **changes).cells()


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_a_learner_stored_it_can_replay_offline(learner: str, tmp_path: Path) -> None:
    strategy = "FIFO[Uniform+ReFER]" if learner == "V-RACER" else "FULL[Uniform]"
    cell = study(learner, strategy).cells()[0]
    assert run_cell(cell, tmp_path, "final")
    recording = read_recording(tmp_path / "buffer.h5")
    stored = 2000 if "FIFO" in strategy else 200 * cell.episodes
    assert [len(order) for order in recording.orders] == [min(stored, 200 * cell.episodes)] * 2
    assert len(list(whole_episodes(recording, 0, 200))) == cell.episodes
    outcome = replay_offline(
        recording, parse(strategy), updates=4, learner=learner, learners=3, capacity=None, root_seed=0,
        progress=lambda done: None,
    )  # fmt: skip
    assert np.isfinite(outcome.reward).all()


def test_what_a_buffer_lacks_is_named(tmp_path: Path) -> None:
    assert run_cell(study("DDPG", episodes=2).cells()[0], tmp_path, "final")
    recording = read_recording(tmp_path / "buffer.h5")
    with pytest.raises(UserError, match="V-RACER replays behaviour_mean"):
        replay_offline(
            recording, parse("FULL[Uniform]"), updates=1, learner="V-RACER", learners=2, capacity=None, root_seed=0,
            progress=lambda done: None,
        )  # fmt: skip


def test_metrics_reach_the_dataset_and_a_figure(tmp_path: Path) -> None:
    cells = study("V-RACER", "FIFO[Uniform+ReFER]").cells()
    folders = {cell.id: tmp_path / cell.id for cell in cells}
    for cell in cells:
        run_cell(cell, folders[cell.id], "none")
    data = assemble(cells, {}, folders)
    kl = data["metric_kl"].squeeze()
    assert kl.sizes == {"seed": 2, "greedy_episode": 2}
    assert kl.values[:, 0] == pytest.approx(0.0)  # nothing is learned before the sixth episode
    assert (kl.values[:, 1] > 0).all()
    figure = metric_curves(data.isel(plant=0))
    assert figure is not None
    assert {axes.get_ylabel() for axes in figure.axes} == {"kl", "far", "beta", "sigma"}
