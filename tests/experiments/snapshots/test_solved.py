"""Dynamic programming as a run keeps it: what is drawn of it is its own, and files that hold something else say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replaybench.baselines.grid_choice import reference_solution
from replaybench.data.record import write_record
from replaybench.data.run_folder import RunFolder
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.registry import make_plant
from replaybench.experiments.snapshots import PIXELS, Solved, pixel_states, read_solved, solved_surfaces, write_solved
from replaybench.runtime.errors import UserError


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
    write_solved(folder, "ab" * 32, 50.0, solved)
    found = read_solved(folder, "ab" * 32, 50.0)
    assert found is not None
    assert found.reward == solved.reward
    assert np.array_equal(found.value, solved.value)
    assert np.array_equal(found.action, solved.action)
    assert np.array_equal(found.path, solved.path)
    assert read_solved(folder, "ab" * 32, 100.0) is None
    assert read_solved(folder, "cd" * 32, 50.0) is None
    assert read_solved(folder, "../../etc", 50.0) is None


@pytest.mark.parametrize("change", ["pixels", "path", "reward", "missing"])
def test_files_that_hold_something_else_are_refused(tmp_path: Path, solved: Solved, change: str) -> None:
    arrays = {"value": solved.value, "action": solved.action, "path": solved.path}
    facts: dict[str, object] = {"reward": solved.reward}
    if change == "pixels":
        arrays["value"] = arrays["value"][1:]
    elif change == "path":
        arrays["path"] = arrays["path"][:, :1]
    elif change == "reward":
        facts["reward"] = "much"
    else:
        del arrays["action"]
    write_record(tmp_path / "solved" / "abcd-50Hz.h5", "solved", facts, arrays)
    with pytest.raises(UserError, match="abcd-50Hz.h5 does not hold a policy over two states"):
        read_solved(RunFolder(tmp_path), "abcd", 50.0)
