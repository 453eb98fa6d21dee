"""What studies can ask of learners: observation masks, metrics, normalisation, offline replay; and refusals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replaybench.controllers.registry import LEARNERS
from replaybench.data.logs.minari_dataset import read_dataset
from replaybench.data.run_folder import RunFolder
from replaybench.exchange.minari_export import export_buffer, whole_episodes
from replaybench.exchange.offline import Outcome, offer, replay_offline
from replaybench.experiments import plan as planning
from replaybench.experiments.cell import CellRun, run_cell
from replaybench.experiments.dataset import assemble
from replaybench.experiments.plan import plan
from replaybench.experiments.recorded_buffer import Recording, read_recording
from replaybench.experiments.study import Study
from replaybench.replay.strategies.notation import parse
from replaybench.reports.figures.learning_curves import metric_curves
from replaybench.runtime.errors import UserError
from tests.helpers.cells import small_study

CART = "gymnasium:CartPole-v1"


def study(named: str, strategy: str = "FULL[Uniform]", **changes: Any) -> Study:
    usual = {"seeds": 2, "episodes": 7, "capacity": 2000, "greedy_every": 3}
    return small_study(**{"learners": (named,), "strategies": (strategy,)} | usual | changes)


def recorded(folder: Path, named: str, strategy: str = "FULL[Uniform]", **changes: Any) -> Recording:
    """Return the recording of a short run."""
    assert run_cell(study(named, strategy, **changes).cells()[0], folder, "final")
    return read_recording(folder / "buffer.h5")


def replayed(recording: Recording, learner: str, strategy: str = "FULL[Uniform]") -> Outcome:
    words: dict[str, Any] = {"updates": 4, "learner": learner, "learners": 2, "capacity": None, "root_seed": 0}
    return replay_offline(recording, parse(strategy), progress=lambda done: None, **words)


def test_a_mask_makes_the_plant_partly_observed() -> None:
    run = CellRun(study("DDPG", observe=("angle",)).cells()[0])
    run.advance()
    assert run.agent.task.observation_size == run.replay.columns.fields["observation"] == 1
    with pytest.raises(UserError, match=r"angel.*angle"):
        study("DDPG", observe=("angel",)).cells()


@pytest.mark.parametrize(
    ("learner", "strategy", "changes", "message"),
    [
        ("TD3", "FIFO[Uniform+ReFER]", {}, "TD3 does not"),
        ("DQN", "FIFO[Uniform]", {"plants": ("Magman",)}, "levels"),
        ("DQN", "FULL[PER]", {"plants": (CART,), "learner": {"DQN": {"levels": 15}}}, "levels = 15, but the plant"),
        ("SAC", "FIFO[Uniform]", {"learner": {"SAC": {"temprature": 0.1}}}, "temperature"),
    ],
)
def test_what_cannot_work_is_refused(learner: str, strategy: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study(learner, strategy, **changes).cells()


@pytest.mark.parametrize(
    ("learner", "strategy", "message"),
    [("DDPG", "FarPol[Uniform]", "V-RACER"), ("V-RACER", "Synth(action=0.1)*FIFO[Uniform]", "Synth")],
)
def test_what_a_buffer_cannot_do_is_refused_in_plans(learner: str, strategy: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        plan(study(learner, strategy), RunFolder(tmp_path), 1)


def test_the_plan_counts_what_learners_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """V-RACER's μ and σ, 4 bytes each, and six traces with two links; ACER's μ, but a serial number per 50 steps."""
    # Another test may cache the reference meanwhile, which then needs no memory.
    monkeypatch.setattr(planning, "_reference_sizes", lambda study, cells: [])

    def needed(learner: str) -> int:
        return plan(study(learner, "FIFO[Uniform]"), RunFolder(Path("nowhere")), 1).memory_bytes

    ddpg = needed("DDPG")
    # 2 members and 1400 steps, which all fit.
    assert needed("V-RACER") - ddpg == 2 * 1400 * (2 * 4 + 6 * 4 + 2 * 4)
    assert needed("ACER") - ddpg == 2 * 1400 * 4 - 2 * (1400 - 28) * 4


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_what_a_learner_stored_it_can_replay_offline(learner: str, tmp_path: Path) -> None:
    strategy = "FIFO[Uniform+ReFER]" if learner == "V-RACER" else "FULL[Uniform]"
    recording = recorded(tmp_path, learner, strategy)
    assert [len(order) for order in recording.orders] == [1400] * 2
    assert len(list(whole_episodes(recording, 0, 200))) == 7
    assert np.isfinite(replayed(recording, learner).reward).all()


def test_choices_are_replayed_offline_and_exported(tmp_path: Path) -> None:
    """A task of Gymnasium with choices and noise, which shifts them: the commanded ones are stored."""
    recording = recorded(tmp_path, "DQN", plants=(CART,), noise=(0.1,), episodes=2, update_every=100)
    assert set(np.unique(recording.arrays["action"])) == {-1.0, 1.0}
    assert (replayed(recording, "DQN", "FULL[PER]").reward >= 1).all()
    with pytest.raises(UserError, match="^TD3 acts continuously"):
        replayed(recording, "TD3")
    pytest.importorskip("minari")
    written = export_buffer(tmp_path / "buffer.h5", "cart/pole-v0", root=tmp_path / "datasets")
    assert written.steps + written.left_out == 2 * 1000
    episodes = read_dataset(written.folder)[1]
    assert len(episodes) == written.episodes
    assert set(np.unique(np.concatenate([each.actions for each in episodes]))) == {-1.0, 1.0}


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_every_learner_can_normalise_observations(learner: str) -> None:
    """Observations in other units give the same actions."""
    table = {learner: {"normalise": {"observations": True, "clip": 5.0, "rewards": True}}}
    run = CellRun(study(learner, "FIFO[Uniform]", learner=table).cells()[0])
    for _ in range(run.agent.schedule.warmup_episodes + 2):
        run.advance()
    assert np.isfinite(run.reward[:, : run.episode]).all()
    weights: Mapping[str, NDArray[Any]] = run.agent.weights()
    mean, scale = weights["observation.mean"], weights["observation.scale"]
    assert (mean != 0).all()
    states = np.random.Generator(np.random.PCG64(0)).normal(size=(2, 20, 2)).astype(np.float32)
    before = run.agent.policy(states)
    mean[:], scale[:] = 3 * mean, scale / 3
    np.testing.assert_allclose(run.agent.policy(3 * states), before, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("source", "learner", "lacks"),
    [("DDPG", "V-RACER", "V-RACER replays behaviour_mean"), ("V-RACER", "ACER", "behaviour_log_sigma")],
)
def test_what_a_recording_lacks_offline_is_named(source: str, learner: str, lacks: str, tmp_path: Path) -> None:
    """ACER, whose σ is fixed, must not take the densities of V-RACER for its own."""
    recording = recorded(tmp_path, source, episodes=2)
    with pytest.raises(UserError, match=lacks):
        replayed(recording, learner)


def test_offline_settings_are_those_that_filled_the_buffer(tmp_path: Path) -> None:
    recording = recorded(tmp_path, "DDPG", episodes=1, learner={"DDPG": {"tau": 0.5}})
    assert [recording.settings(named)["tau"] for named in ("ddpg", "DDPG:again")] == [0.5, 0.5]
    assert recording.settings("TD3") == {}


@pytest.mark.parametrize("strategy", ["Drop(0.5)*FIFO[Uniform]", "Resv[Uniform]"])
def test_steps_with_a_gap_between_them_are_not_linked_offline(strategy: str, tmp_path: Path) -> None:
    """The step before a gap is truncated: its return bootstraps from its successor."""
    recording = recorded(tmp_path, "V-RACER", strategy, capacity=500)
    run = CellRun(study("V-RACER", "FULL[Uniform]").cells()[0])
    offer(recording, run.replay, run.agent)
    traces = run.replay.traces
    assert traces is not None
    for m, order in enumerate(recording.orders):
        serial, episode = (recording.arrays[name][m][order].astype(int) for name in ("serial", "episode"))
        follows = (np.diff(serial) == 1) & (np.diff(episode) == 0)
        assert 0 < follows.sum() < follows.size
        place = np.arange(1, len(order))
        np.testing.assert_array_equal(traces.previous[m, 1 : len(order)], np.where(follows, place - 1, -1))
        np.testing.assert_array_equal(traces.view("truncated")[m, : len(order) - 1], ~follows)


def test_metrics_reach_the_dataset_and_a_figure(tmp_path: Path) -> None:
    (cell,) = study("V-RACER", "FIFO[Uniform+ReFER]").cells()
    run_cell(cell, tmp_path, "none")
    data = assemble([cell], {}, {cell.id: tmp_path})
    kl = data["metric_kl"].squeeze()
    assert kl.sizes == {"seed": 2, "greedy_episode": 2}
    assert kl.values[:, 0] == pytest.approx(0.0)  # nothing is learned before the sixth episode
    assert (kl.values[:, 1] > 0).all()
    figure = metric_curves(data.isel(plant=0))
    assert figure is not None
    labels = {axes.get_ylabel() for axes in figure.axes}
    assert labels == {"D_KL [nat]", "far-policy share", "β of ReF-ER", "σ [half the range]"}
    data["metric_kl"].values[..., -1] = np.nan
    figure = metric_curves(data.isel(plant=0))
    assert figure is not None
    assert (1,) in {np.shape(line.get_xdata()) for axes in figure.axes for line in axes.lines}, "failed learners"
