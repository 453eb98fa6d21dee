"""The contract of every learner: all that is registered, as cells run them and by itself.

A new learner is picked up from the registry. What is checked holds for learners of single steps, of segments and with
traces alike: members know nothing of each other, a resumed run is the uninterrupted one, a failed member fails alone
and visibly, and nobody draws a random number whose turn it is not.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import advanced, arrays_of, assert_equal_files

from replaybench.controllers.registry import LEARNERS, load_learner
from replaybench.data.errors import UserError
from replaybench.data.formats.policy_file import read_policy
from replaybench.experiments.training.cell import CellRun, run_cell
from replaybench.experiments.training.study import Cell, Study
from replaybench.replay.buffer import Replay

MEMBERS = 3
STRATEGIES = ("FIFO[ERE]", "FIFO[AER]", "Resv[ERE+PER]", "TDE[Uniform+FIS]", "Expl[PERprop+IS]")
MEMORY = {"layers": 1, "units": 4, "window": 4}
VARIANTS = {
    "DDPG:normalised": {"layer_norm": True, "output_bound": 3e-3},
    "DDPG:stored": {"memory": MEMORY},
    "NAF:burn-in": {"memory": {**MEMORY, "start": "burn-in", "burn_in": 2}},
    "V-RACER:stored": {"memory": MEMORY},
    "V-RACER:zero": {"memory": {**MEMORY, "start": "zero"}, "sigma": "network"},
}
"""Learners of other networks, and learners that remember."""
every_learner = pytest.mark.parametrize("learner", [*LEARNERS, *VARIANTS])


def make_cell(learner: str, strategy: str = "FULL[PER+IS]", updating: int = 3) -> Cell:
    """Return a cell of a few members, `updating` of whose episodes are followed by updates."""

    def cell(episodes: int) -> Cell:
        return Study(
            name="t", plants=("PendulumDCSC",), learners=(learner,), strategies=(strategy,), noise=(0.02,),
            seeds=MEMBERS, episodes=episodes, capacity=700, greedy_every=episodes,
            learner={name: table for name, table in VARIANTS.items() if name == learner},
        ).cells()[0]  # fmt: skip

    return cell(CellRun(cell(updating)).agent.warmup_episodes + updating)


@pytest.mark.parametrize("learner", LEARNERS.own)
def test_a_plant_that_takes_choices_is_learned_or_refused_before_compute(learner: str) -> None:
    """The refusal names learner, plant, and those that fit, which are all that choose."""
    plant = "gymnasium:CartPole-v1"
    study = Study(
        name="t", plants=(plant,), learners=(learner,), strategies=("FIFO[Uniform]",), seeds=2, episodes=1,
        update_every=250, capacity=600, noise=(0.01,),
    )  # fmt: skip
    choosing = [name for name in LEARNERS.own if load_learner(name)[0].discrete]
    if learner in choosing:
        run = CellRun(study.cells()[0])
        run.advance()
        assert np.isfinite(run.reward).all()
        states = np.random.Generator(np.random.PCG64(0)).normal(size=(2, 500, 4)).astype(np.float32)
        assert set(np.unique(run.agent.policy(states))) == {-1.0, 1.0}
    else:
        with pytest.raises(UserError, match=f"^{re.escape(learner)} .*{plant}.*{'.*'.join(choosing)}$"):
            study.cells()


@every_learner
def test_a_resumed_cell_equals_an_uninterrupted_one(learner: str, tmp_path: Path) -> None:
    cell = make_cell(learner)
    assert run_cell(cell, tmp_path / "whole", "final")
    assert not run_cell(cell, tmp_path / "parts", "final", report=lambda told: told.done < cell.episodes - 1)
    assert run_cell(cell, tmp_path / "parts", "final")
    assert_equal_files(tmp_path / "whole", tmp_path / "parts")
    whole = arrays_of(tmp_path / "whole")
    run = CellRun(cell)
    assert all(np.isfinite(whole[f"scores/metric_{name}"]).all() for name in run.agent.metric_names)
    start, end = run.agent.weights(), read_policy(tmp_path / "whole" / "policy.safetensors")[1]
    assert any(not np.array_equal(array, end[name]) for name, array in start.items()), "nothing was learned"


@every_learner
def test_a_member_is_the_same_bit_for_bit_in_any_population(learner: str) -> None:
    cell = make_cell(learner)
    together = advanced(cell)
    alone = advanced(dataclasses.replace(cell, first_member=2, members=1))
    np.testing.assert_array_equal(together.reward[2:], alone.reward)
    np.testing.assert_array_equal(together.reward_greedy[2:], alone.reward_greedy)
    theirs = alone.agent.weights()
    for name, array in together.agent.weights().items():
        np.testing.assert_array_equal(array[2:], theirs[name], err_msg=name)


@every_learner
def test_a_failed_member_fails_alone_and_visibly(learner: str) -> None:
    cell = make_cell(learner, "FULL[PER]")
    healthy, ill = CellRun(cell), CellRun(cell)
    for array in ill.agent.weights().values():
        if array.dtype.kind == "f":  # numbers of experiences are none
            array[1] = np.nan
    for _ in range(cell.episodes):
        healthy.advance()
        ill.advance()
    others = [0, 2]
    np.testing.assert_array_equal(healthy.reward[others], ill.reward[others])
    weights = ill.agent.weights()
    for name, array in healthy.agent.weights().items():
        np.testing.assert_array_equal(array[others], weights[name][others], err_msg=name)
    assert np.isnan(ill.reward[1, -1])
    states = np.zeros((MEMBERS, 4, ill.agent.task.observation_size), np.float32)
    failed = np.isnan(ill.agent.policy(states)).all(axis=(1, 2))
    np.testing.assert_array_equal(failed, [False, True, False])


@every_learner
def test_every_kind_of_sampling_can_feed_it(learner: str) -> None:
    for strategy in STRATEGIES:
        run = advanced(make_cell(learner, strategy, updating=2))
        assert np.isfinite(run.reward).all(), strategy
        for name, array in run.agent.weights().items():
            assert np.isfinite(array).all() or name == "observation.bound", (strategy, name)


@pytest.mark.parametrize("learner", [name for name in LEARNERS if load_learner(name)[0].several_at_once])
def test_updates_done_at_once_are_those_done_one_by_one(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell(learner, "FULL[Uniform]", updating=2)
    many = advanced(cell)
    monkeypatch.setattr(Replay, "at_once", 1)
    one = advanced(cell)
    np.testing.assert_array_equal(many.reward, one.reward)
    theirs = one.agent.state_dict()
    for name, array in many.agent.state_dict().items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def explored(agent: Any, observation: np.ndarray, active: np.ndarray) -> np.ndarray:
    return np.asarray(agent.explore(observation, active).action).copy()


@every_learner
def test_members_that_wait_draw_nothing(learner: str) -> None:
    cell = make_cell(learner)
    waited, fresh = CellRun(cell).agent, CellRun(cell).agent
    observation, everyone = np.full((MEMBERS, fresh.task.observation_size), 0.1, np.float32), np.ones(MEMBERS, np.bool_)
    waited.start_episode(0, everyone)
    for _ in range(3):
        explored(waited, observation, np.array([True, False, True]))
    waited.start_episode(0, everyone)
    fresh.start_episode(0, everyone)
    late, early = explored(waited, observation, everyone), explored(fresh, observation, everyone)
    np.testing.assert_array_equal(late[1], early[1])
    assert not np.array_equal(late, early)


@every_learner
def test_what_is_explored_can_be_asked_again(learner: str) -> None:
    """The same answer for the same observation, everything that is to be stored, and no draw."""
    agent = CellRun(make_cell(learner)).agent
    observation = np.full((MEMBERS, agent.task.observation_size), 0.1, np.float32)
    agent.start_episode(0, np.ones(MEMBERS, np.bool_))
    first = agent.explore(observation, np.ones(MEMBERS, np.bool_))
    before = {name: array.copy() for name, array in agent.state_dict().items()}
    agent.re_explore(-observation)
    again = agent.re_explore(observation)
    for name, array in agent.state_dict().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    np.testing.assert_array_equal(first.action, again.action)
    np.testing.assert_array_equal(first.deviation, again.deviation)
    assert first.action.shape == (MEMBERS, agent.task.action_size)
    assert first.deviation.shape == (MEMBERS,)
    assert first.action.dtype == first.deviation.dtype == np.float32
    stored = {**agent.fields, **dict.fromkeys(agent.traces.names if agent.traces else (), 1)}
    for name, array in first.extras.items():
        assert array.shape == (MEMBERS, stored[name]), name
        np.testing.assert_array_equal(array, again.extras[name], err_msg=name)


@every_learner
def test_greedy_actions_are_bounded_and_weights_carry_them(learner: str) -> None:
    cell = make_cell(learner)
    run, other = advanced(cell), CellRun(cell)
    states = np.random.Generator(np.random.PCG64(0)).normal(size=(MEMBERS, 50, run.agent.task.observation_size))
    states = states.astype(np.float32)
    actions = run.agent.policy(states)
    assert actions.shape == (MEMBERS, 50, run.agent.task.action_size)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_array_equal(run.agent.act(states[:, 0]), run.agent.policy(states[:, :1])[:, 0])
    values = run.agent.value(states)
    assert values.shape == (MEMBERS, 50)
    assert np.isfinite(values).all()
    assert not np.array_equal(other.agent.policy(states), actions)
    other.agent.load_weights({name: array.copy() for name, array in run.agent.weights().items()})
    np.testing.assert_array_equal(other.agent.policy(states), actions)
    np.testing.assert_array_equal(other.agent.value(states), values)
