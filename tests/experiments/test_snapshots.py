"""Snapshots of buffers and policies, and stored solutions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replaybench.baselines.grid_choice import reference_solution
from replaybench.controllers.interface.agent import Task
from replaybench.data.record import read_record, write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.registry import make_plant
from replaybench.experiments import snapshots
from replaybench.experiments.cell import CellRun
from replaybench.experiments.snapshots import PIXELS, Snapshots, Solved, pixel_states, read_solved, solved_surfaces
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from tests.helpers.cells import advanced, small_cell


def finished(strategy: str) -> CellRun:
    """Three members that have learned the pendulum for ten episodes."""
    return advanced(small_cell(strategies=(strategy,), seeds=3, episodes=10))


def test_looks_are_close_at_first_and_include_every_tenth() -> None:
    assert snapshots.snapshot_rounds(500) == [5, 15, 30, *range(50, 501, 50)]
    assert snapshots.tenth_ends(500) == list(range(50, 501, 50))
    assert snapshots.snapshot_rounds(1) == [1]
    assert all(set(snapshots.tenth_ends(rounds)) <= set(snapshots.snapshot_rounds(rounds)) for rounds in range(1, 200))


def test_policies_are_kept_where_both_states_are_seen_in_order() -> None:
    plant = PendulumDCSC()
    agent: Any = SimpleNamespace(task=Task(2, 1, 0.95, 1.0), value=None)
    agent.greedy = lambda: agent
    one, other = plant.state_names
    kept = {
        seen: bool(Snapshots(plant, 50.0, agent, 1, 10, seen).policies)
        for seen in ((), (one, other), (other, one), (one,))
    }
    assert kept == {(): True, (one, other): True, (other, one): False, (one,): False}


@pytest.mark.parametrize("strategy", ["FIFO(500)[Uniform]", "Resv(500)[Uniform]", "FULL[Uniform]"])
def test_contents_are_counted_by_the_tenth_that_they_come_from(strategy: str) -> None:
    """Against the episode in which each stored experience was collected."""
    run = finished(strategy)
    replay, found = run.replay, run.snapshots.contents
    for m, count in enumerate(replay.count):
        episode = (replay.columns.serial[m, :count].astype(int) - 1) // run.env.steps_per_episode
        np.testing.assert_array_equal(found["origin"][m, -1], np.bincount(episode, minlength=10))
        mean = replay.columns.column("exploration")[m, :count].mean()
        assert found["exploration"][m, -1] == pytest.approx(mean, rel=1e-5)
    room, collected = parse(strategy).capacity_or(10**9), np.arange(1, 11) * run.env.steps_per_episode
    np.testing.assert_array_equal(found["origin"].sum(axis=2), np.tile(np.minimum(room, collected), (3, 1)))


def test_policies_are_those_of_the_run_of_median_reward(tmp_path: Path) -> None:
    run = finished("FULL[Uniform]")
    run.snapshots.write(tmp_path / "snapshots.h5", {}, run.reward, first=7)
    agent, plant = run.agent, run.snapshots.plant
    assert plant is not None
    header, arrays = read_record(tmp_path / "snapshots.h5", "snapshots")
    chosen = snapshots.median_seed(run.reward)
    assert chosen is not None
    assert header.facts["seed"] == 7 + chosen
    assert [axis["name"] for axis in header.facts["states"]] == list(plant.state_names)
    states = np.tile(pixel_states(plant, PIXELS)[5, 9].astype(np.float32), (len(run.reward), 1, 1))
    value = (1 - agent.task.discount) / agent.task.reward_scale * agent.value(states)[chosen, 0]
    assert arrays["value"][0, -1, 5, 9] == pytest.approx(value, rel=1e-5)
    action = plant.denormalise_action(agent.policy(states)[chosen, 0])
    assert arrays["action"][0, -1, 5, 9] == pytest.approx(action, rel=1e-5)
    paths = snapshots.follow(plant, run.cell.frequency, len(run.reward), agent.act)
    np.testing.assert_array_equal(arrays["path"][0, -1], paths.states[chosen].astype(np.float32))
    assert arrays["greedy"][0, -1] == paths.reward[chosen]


@pytest.fixture(scope="module")
def solved() -> Solved:
    found = solved_surfaces(PendulumDCSC(), 50.0, "paper")
    assert found is not None
    return found


def test_pixels_show_the_solution_and_the_path_is_its_episode(solved: Solved) -> None:
    assert solved_surfaces(make_plant("MujocoHopper"), 50.0, None) is None, "it has no two states"
    plant = PendulumDCSC()
    solution = reference_solution(plant, 50.0, "paper").solution
    state = pixel_states(plant, PIXELS)[7, 30][None]
    assert solved.value[7, 30] == (1 - solution.discount) * solution.value(state)[0]
    assert np.array_equal(solved.action[7, 30], plant.denormalise_action(solution.greedy(state))[0])
    assert np.array_equal(solved.path[0], plant.initial_state)
    assert abs(abs(solved.path[-1, 0]) - plant.reference_state[0]) < 0.1  # upright from either side


def test_a_run_keeps_it_by_plant_and_rate(tmp_path: Path, solved: Solved) -> None:
    folder = RunFolder(tmp_path)
    snapshots.write_solved(folder, "ab" * 32, 50.0, solved)
    found = read_solved(folder, "ab" * 32, 50.0)
    assert found is not None
    for ours, theirs in zip(found, solved, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for plant, rate in (("ab" * 32, 100.0), ("cd" * 32, 50.0), ("../../etc", 50.0)):
        assert read_solved(folder, plant, rate) is None


def test_files_that_hold_something_else_are_refused(tmp_path: Path, solved: Solved) -> None:
    sound = {"value": solved.value, "action": solved.action, "path": solved.path}
    without_action = {name: array for name, array in sound.items() if name != "action"}
    for arrays, reward in (
        (sound | {"value": solved.value[1:]}, -1.0),
        (sound | {"path": solved.path[:, :1]}, -1.0),
        (sound, "much"),
        (without_action, -1.0),
    ):
        write_record(tmp_path / "solved" / "abcd-50Hz.h5", "solved", {"reward": reward}, arrays)
        with pytest.raises(UserError, match="abcd-50Hz.h5 does not hold a policy over two states"):
            read_solved(RunFolder(tmp_path), "abcd", 50.0)
