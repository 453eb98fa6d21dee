"""Learning from a recording, apart from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replaybench.controllers.ddpg import DDPG
from replaybench.experiments.cell import run_cell
from replaybench.experiments.offline import read_recording, replay_offline
from replaybench.experiments.study import Study
from replaybench.replay.notation import parse


def test_statistics_come_from_what_is_replayed(tmp_path: Path) -> None:
    """From the whole recording and from its stream: as many observations as were drawn, their mean the recording's."""
    settings = {"DDPG": {"normalise": {"observations": True, "rewards": True}, "exploration": {"form": "parameter"}}}
    study = Study(
        name="t", plants=("Pendulum",), strategies=("FULL[Uniform]",), seeds=2, episodes=3, learner=settings
    )  # fmt: skip
    assert run_cell(study.cells()[0], tmp_path, buffers="final")
    for whole in (True, False):
        recording = read_recording(tmp_path / "buffer.h5", whole=whole)
        outcome = replay_offline(
            recording, parse("FULL[Uniform]"), updates=100, learner="DDPG", learners=2, capacity=None, root_seed=0,
            progress=lambda _: None,
        )  # fmt: skip
        agent = outcome.agent
        assert isinstance(agent, DDPG)
        np.testing.assert_array_equal(agent.observations.count, 1600)
        stored = read_recording(tmp_path / "buffer.h5").arrays["observation"][:, :600]
        # 1600 draws: six standard errors.
        error = np.abs(agent.observations.mean - stored.mean(axis=1)) / stored.std(axis=1)
        assert error.max() < 6 / 40
        assert np.isfinite(outcome.reward).all()
