"""On which grid a reference is solved: one rule at every rate, and what was used is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episodes import episode_rewards

from replaybench.baselines import grid_choice
from replaybench.baselines.controllers import GreedyController, RandomController
from replaybench.baselines.fuzzy_q_iteration import solve
from replaybench.baselines.grid_choice import CLOSE, reference_solution
from replaybench.baselines.references import reference
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.runtime.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Small(PendulumDCSC):
    name = "Small"
    grid_nodes = (41, 31)
    action_levels = (3,)
    refine_grid = True
    reference_episodes = 40


def greedy_reward(solution: Any) -> float:
    return float(episode_rewards(GreedyController(solution), Small(), solution.frequency)[0])


@pytest.mark.parametrize("frequency", [25.0, 50.0, 100.0])
def test_every_rate_is_refined_until_the_return_stands_still(frequency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def noted(*arguments: Any, **settings: Any) -> Any:
        tried.append(solve(*arguments, **settings))
        return tried[-1]

    monkeypatch.setattr(grid_choice, "solve", noted)
    monkeypatch.setattr(grid_choice, "_load", lambda path: None)
    found = reference_solution(Small(), frequency, "converged")
    rewards = [greedy_reward(solution) for solution in tried]
    members = range(Small.reference_episodes)
    random = episode_rewards(RandomController(Small(), members, 2018), Small(), frequency, members=members).mean()
    assert [solution.grid.nodes for solution in tried[:2]] == [(41, 31), (57, 43)]
    assert greedy_reward(found.solution) == max(rewards)
    assert found.change == pytest.approx(abs(rewards[-1] - rewards[-2]) / (max(rewards) - random), abs=1e-4)
    highest = np.maximum.accumulate(rewards)
    changes = np.abs(np.diff(rewards)) / (highest[1:] - random)
    assert found.change < CLOSE
    assert (changes[:-1] >= CLOSE).all()
    told = reference(Small(), frequency, rule="converged")
    assert (told.rule, told.nodes, told.change) == ("converged", found.solution.grid.nodes, found.change)
    assert "converged (last change" in told.grid


def test_refinement_stops_at_the_work_limit(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_choice, "MOST_PAIRS", 10_000)
    found = reference(Small(), rule="converged")
    assert found.nodes == (57, 43)
    assert found.change > CLOSE
    assert found.grid == f"57 × 43 nodes, 3 actions, not converged (last change {100 * found.change:.2g} %)"


def test_refinement_without_a_solution_has_not_converged(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them give the same return, that of hanging down."""
    monkeypatch.setattr(grid_choice, "MOST_PAIRS", 20_000)
    found = reference(Small(torque_constant=0.0), rule="converged")
    assert found.dp == pytest.approx(-157.08, abs=0.01)
    assert found.grid.endswith("3 actions, not converged")


def test_refinement_keeps_the_best_solution(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = iter((-160.0, -40.0, -30.0, -35.0, -35.1))
    monkeypatch.setattr(grid_choice, "_reward", lambda *arguments: next(rewards))
    found = reference_solution(Small(), 50.0, "converged")
    assert found.solution.grid.nodes == (57, 43)
    assert found.change == pytest.approx(0.1 / 130.0)
    again = reference_solution(Small(), 50.0, "converged")
    assert (again.solution.grid, again.change) == (found.solution.grid, found.change)


def test_the_declared_grid_is_used_by_default(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "refine_grid", False)
    found = reference(Small())
    assert (found.nodes, found.rule) == ((41, 31), "paper")
    assert found.grid == "41 × 31 nodes, 3 actions, as declared"
    assert reference(Small(), rule="converged").nodes != (41, 31)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean converged"):
        reference(Small(), rule="convergd")  # type: ignore[arg-type]
