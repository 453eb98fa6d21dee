"""Learning from a recording, apart from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.algorithms.ddpg import DDPG
from replaybench.controllers.learner import Learner
from replaybench.data.logs.log import Log
from replaybench.data.record import write_record
from replaybench.envs.registry import make_plant
from replaybench.exchange import offline as replaying
from replaybench.exchange.logs_to_buffer import convert
from replaybench.exchange.offline import Changes, Outcome, offer, replay_offline
from replaybench.exchange.recorded_buffer import Recording, read_recording
from replaybench.experiments.cell import run_cell
from replaybench.experiments.study import Study
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.configuration import merged
from replaybench.runtime.errors import UserError


def replayed(recording: Recording, strategy: str, updates: int = 3, learner: str = "DDPG", **options: Any) -> Outcome:
    shared: dict[str, Any] = {"learners": 1, "capacity": None, "root_seed": 0, "progress": lambda _: None}
    return replay_offline(recording, parse(strategy), updates=updates, learner=learner, **shared | options)


def recorded(folder: Path, **study: Any) -> Recording:
    """Return the buffer of a cell that ran: of one seed and one episode of FULL[Uniform] if not given."""
    plain: dict[str, Any] = {"plants": ("Pendulum",), "strategies": ("FULL[Uniform]",), "seeds": 1, "episodes": 1}
    assert run_cell(Study(name="t", **plain | study).cells()[0], folder, buffers="final")
    return read_recording(folder / "buffer.h5")


def test_statistics_are_the_recordings(tmp_path: Path) -> None:
    """Of all that was recorded, whatever is kept of it; a stream, which is not read through, is refused."""
    settings = {"DDPG": {"normalise": {"observations": True, "rewards": True}, "exploration": {"form": "parameter"}}}
    recording = recorded(tmp_path, seeds=2, episodes=2, learner=settings)
    agent = replayed(recording, "FIFO[PER]", learners=2, capacity=100).agent
    assert isinstance(agent, DDPG)
    observations, rewards = agent.normaliser.observations, agent.normaliser.rewards
    np.testing.assert_array_equal(observations.count, 400)
    arrays = {name: recording.arrays[name][:, :400].astype(np.float64) for name in ("observation", "reward")}
    np.testing.assert_allclose(observations.mean, arrays["observation"].mean(axis=1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rewards.mean_square, np.square(arrays["reward"]).mean(axis=(1, 2)), rtol=1e-9)
    with pytest.raises(UserError, match="normalises by all that was collected"):
        replayed(read_recording(tmp_path / "buffer.h5", whole=False), "FIFO[PER]", learners=2, capacity=100)


def test_ere_without_a_phase_is_refused(tmp_path: Path) -> None:
    """Phases are those after an episode, here of a single update; named ones hold offline too."""
    recording = recorded(tmp_path, learner={"DDPG": {"replays_per_experience": 0.1}})
    with pytest.raises(UserError, match=r"^FIFO\[ERE\] narrows .* 200 steps are followed by 1\.2; name the length"):
        replayed(recording, "FIFO[ERE]")
    assert np.isfinite(replayed(recording, "FIFO[ERE(phase=2)]").reward).all()


@pytest.mark.parametrize("whole", [True, False])
def test_actions_that_are_no_choices_are_refused(whole: bool, tmp_path: Path) -> None:
    plant = make_plant("gymnasium:CartPole-v1")
    columns = {name: np.zeros(9) for name in (*plant.state_names, "reward")} | {"action 0": np.arange(9.0) % 2}
    arrays, facts, _ = convert(Log(tmp_path / "x.npz", columns, {}, None, None), plant, frequency=50.0)
    write_record(tmp_path / "sound.h5", "buffer", facts, arrays)
    assert read_recording(tmp_path / "sound.h5", whole=whole).plant.name == plant.name
    arrays["action"][0, 3] = 0.37
    write_record(tmp_path / "odd.h5", "buffer", facts, arrays)
    with pytest.raises(UserError, match=r"experience 3: action 0 is 0.37, .* none of its choices \(0, 1 "):
        read_recording(tmp_path / "odd.h5", whole=whole)


@pytest.mark.parametrize("strategy", ["FIFO(5)[Uniform]", "Drop(0.9999)*FULL[Uniform]"])
def test_less_than_a_batch_is_refused(strategy: str, tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    with pytest.raises(UserError, match=r"keeps \d experiences of .* a batch has 16: keep more, or"):
        replayed(recording, strategy)


def test_another_form_of_a_table_keeps_nothing_of_the_old() -> None:
    settings = {"tau": 0.1, "exploration": {"form": "process", "diffusion": 5.0}}
    assert merged(settings, {"exploration": {"form": "gaussian"}})["exploration"] == {"form": "gaussian"}
    same = merged(settings, {"exploration": {"form": "process", "friction": 0.2}, "tau": 0.2})
    assert same == {"tau": 0.2, "exploration": {"form": "process", "diffusion": 5.0, "friction": 0.2}}


@pytest.mark.parametrize("strategy", ["FULL[Uniform]", "FIFO[Uniform]"])
def test_every_experience_is_kept_in_segments_of_another_length(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What retention dropped leaves gaps, at which segments end: there are more of them than episodes let expect."""
    recording = recorded(
        tmp_path, plants=("PendulumDCSC",), learners=("ACER",), strategies=("Resv[Uniform]",), seeds=2, episodes=40,
        capacity=2000,
    )  # fmt: skip
    filled: list[Replay] = []

    def watched(recording: Recording, replay: Replay, agent: Learner) -> None:
        filled.append(replay)
        offer(recording, replay, agent)

    monkeypatch.setattr(replaying, "offer", watched)
    replayed(recording, strategy, 1, "ACER", learners=2, changes=Changes(settings={"segment": 49}))
    assert (filled[0].count == filled[0].offers).all()
    assert (filled[0].count > 2000 / 49).all()
