"""Recurrent learners in cells and offline: what they replay is linked as it was collected, whatever was kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.exchange.offline import offer, replay_offline
from replaybench.exchange.recorded_buffer import read_recording
from replaybench.experiments.cell import CellRun, make_agent, run_cell
from replaybench.experiments.study import Cell, Study, read_study
from replaybench.experiments.study_record import resolved, write_toml
from replaybench.replay.buffer import Replay, step_fields
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError

NAME = "DDPG:memory"


def cell(strategy: str, **memory: object) -> Cell:
    return Study(
        name="t", plants=("PendulumDCSC",), learners=(NAME,), strategies=(strategy,), seeds=2, episodes=3,
        capacity=300, observe=("angle",), learner={NAME: {"memory": {"units": 4, "window": 4, **memory}}},
    ).cells()[0]  # fmt: skip


@pytest.mark.parametrize(("start", "steps"), [("stored", 4), ("burn-in", 7)])
def test_a_recording_with_gaps_is_replayed_offline(tmp_path: Path, start: str, steps: int) -> None:
    """A reservoir keeps some steps only; of the others, predecessors and successors are not linked."""
    made = cell("Resv[Uniform]", start=start, burn_in=3)
    assert run_cell(made, tmp_path, "final")
    recording = read_recording(tmp_path / "buffer.h5")
    agent = make_agent(made, made.make_plant())
    assert agent.window == steps
    fields = {**step_fields(1, 1), **agent.fields}
    replay = Replay(parse("FULL[Uniform]"), fields, 300, 0, range(2), 16, window=agent.window)
    offer(recording, replay, agent)
    assert replay.traces is not None
    previous = replay.traces.previous
    member, slot = np.nonzero(previous >= 0)
    assert 0 < len(slot) < 2 * 299
    columns = {name: replay.columns.column(name) for name in ("observation", "next_observation")}
    came_from = columns["next_observation"][member, previous[member, slot]]
    np.testing.assert_array_equal(columns["observation"][member, slot], came_from)
    words: dict[str, Any] = {"updates": 2, "learner": "DDPG", "learners": 2, "capacity": None, "root_seed": 0}
    words["progress"] = lambda done: None
    assert np.isfinite(replay_offline(recording, parse("FULL[Uniform]"), **words).reward).all()
    streamed = read_recording(tmp_path / "buffer.h5", whole=False)
    with pytest.raises(UserError, match="follows experiences along their episodes, which --stream tears apart"):
        replay_offline(streamed, parse("FULL[Uniform]"), **words)


def test_the_example_compares_learners_with_and_without_memory(tmp_path: Path) -> None:
    study = read_study(Path(__file__).parents[3] / "replaybench" / "studies" / "partial.toml")
    cells = study.cells()
    assert {c.learner: c.settings["memory"] is not None for c in cells} == {
        "V-RACER:memory": True, "V-RACER:none": False, "DDPG:memory": True, "NAF:memory": True,
    }  # fmt: skip
    (tmp_path / "again.toml").write_text(write_toml(resolved(study, cells)), encoding="utf-8")
    assert [c.id for c in read_study(tmp_path / "again.toml").cells()] == [c.id for c in cells]
    run = CellRun(cells[0])
    assert run.replay.window == 16
    assert run.replay.columns.fields["memory"] == 128
