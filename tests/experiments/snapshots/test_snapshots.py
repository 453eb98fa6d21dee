"""Snapshots say what buffers held and policies did, against what is counted and computed from scratch."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replaybench.controllers.interface.agent import Task
from replaybench.data.record import read_record
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.experiments.cell import CellRun
from replaybench.experiments.snapshots import (
    PIXELS,
    Snapshots,
    follow,
    median_seed,
    pixel_states,
    snapshot_rounds,
    tenth_ends,
)
from replaybench.experiments.study import Cell, Study
from replaybench.replay.buffer import Replay
from replaybench.replay.strategies.notation import parse


def make_cell(strategy: str = "FULL[Uniform]", learner: str = "DDPG", **settings: object) -> Cell:
    """Three members that learn the pendulum for ten episodes."""
    study = Study(
        name="t", plants=("PendulumDCSC",), learners=(learner,), strategies=(strategy,), seeds=3, episodes=10,
        learner={learner: settings} if settings else {},
    )  # fmt: skip
    return study.cells()[0]


def test_looks_are_close_at_first_and_include_every_tenth() -> None:
    assert snapshot_rounds(500) == [5, 15, 30, *range(50, 501, 50)]
    assert tenth_ends(500) == list(range(50, 501, 50))
    assert snapshot_rounds(1) == [1]
    assert all(set(tenth_ends(rounds)) <= set(snapshot_rounds(rounds)) for rounds in range(1, 200))


def test_policies_are_kept_where_both_states_are_seen_in_order_and_values_are_told() -> None:
    plant = PendulumDCSC()
    agent: Any = SimpleNamespace(task=Task(2, 1, 0.95, 1.0), value=None)
    agent.greedy = lambda: agent
    one, other = plant.state_names
    kept = {
        seen: Snapshots(plant, 50.0, agent, 1, 10, seen).surfaces is not None
        for seen in ((), (one, other), (other, one), (one,))
    }
    assert kept == {(): True, (one, other): True, (other, one): False, (one,): False}
    del agent.value
    assert Snapshots(plant, 50.0, agent, 1, 10).surfaces is None


@pytest.mark.parametrize("strategy", ["FIFO(500)[Uniform]", "Resv(500)[Uniform]", "FULL[Uniform]"])
def test_contents_are_counted_by_the_tenth_that_they_come_from(strategy: str) -> None:
    """Against the episode in which each stored experience was collected."""
    with contextlib.closing(CellRun(make_cell(strategy))) as run:
        for _ in range(10):
            run.advance()
        replay: Replay = run.replay
        found = run.snapshots.contents
        for m, count in enumerate(replay.count):
            episode = (replay.columns.serial[m, :count].astype(int) - 1) // run.env.steps_per_episode
            np.testing.assert_array_equal(found.origin[m, -1], np.bincount(episode, minlength=10))
            mean = replay.columns.column("exploration")[m, :count].mean()
            assert found.exploration[m, -1] == pytest.approx(mean, rel=1e-5)
        room, collected = parse(strategy).capacity_or(10**9), np.arange(1, 11) * run.env.steps_per_episode
        np.testing.assert_array_equal(found.origin.sum(axis=2), np.tile(np.minimum(room, collected), (3, 1)))


def test_policies_are_those_of_the_run_of_median_reward(tmp_path: Path) -> None:
    with contextlib.closing(CellRun(make_cell())) as run:
        for _ in range(10):
            run.advance()
        run.snapshots.write(tmp_path / "snapshots.h5", {}, run.reward, first=7)
        agent, plant = run.agent, run.snapshots.plant
        assert plant is not None
        header, arrays = read_record(tmp_path / "snapshots.h5", "snapshots")
        chosen = median_seed(run.reward)
        assert chosen is not None
        assert header.facts["seed"] == 7 + chosen
        assert [axis["name"] for axis in header.facts["states"]] == list(plant.state_names)
        states = np.tile(pixel_states(plant, PIXELS)[5, 9].astype(np.float32), (len(run.reward), 1, 1))
        value = (1 - agent.task.discount) / agent.task.reward_scale * agent.value(states)[chosen, 0]
        assert arrays["value"][0, -1, 5, 9] == pytest.approx(value, rel=1e-5)
        action = plant.denormalise_action(agent.policy(states)[chosen, 0])
        assert arrays["action"][0, -1, 5, 9] == pytest.approx(action, rel=1e-5)
        paths = follow(plant, run.cell.frequency, len(run.reward), agent.act)
        np.testing.assert_array_equal(arrays["path"][0, -1], paths.states[chosen].astype(np.float32))
        assert arrays["greedy"][0, -1] == paths.reward[chosen]
