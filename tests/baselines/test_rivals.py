"""Rivals of learners: the law of the PID controller, its tuning, and the store of scores."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.baselines import pid
from replaybench.baselines.controllers import run_episode, zero_control
from replaybench.baselines.pid import Pid
from replaybench.baselines.references import kept_reference, reference
from replaybench.baselines.rivals import Rivals
from replaybench.envs.interface.channel import Channel
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.ode.servo import Servo
from replaybench.envs.population import PopulationEnv


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quick(Servo):
    """A servo whose references take no time."""

    name = "Quick"
    grid_nodes, action_levels = (21, 11, 9), (3,)
    reference_episodes = 8


def test_the_law_of_the_pid_controller_by_hand() -> None:
    plant, f = Servo(), 50.0
    kp, ki, kd, filtered = 0.8, 2.0, 0.05, 0.03
    controller = Pid(plant, f, np.array([[kp, ki, kd, filtered]]))
    rng = np.random.Generator(np.random.PCG64(3))
    integral = slope = 0.0
    last, saturations = None, 0
    for _ in range(60):
        angle, goal = rng.uniform(-0.6, 0.6, 2)
        action = controller.act(np.array([[angle, 0.1, goal, 0.7]], np.float32))  # the last is a past command
        angle, goal = float(np.float32(angle)), float(np.float32(goal))
        if last is not None:
            decay = np.exp(-1 / f / filtered)
            slope = decay * slope + (1 - decay) * (angle - last) * f
        last, error = angle, goal - angle
        wanted = kp * error + integral - kd * slope
        assert action[0, 0] == pytest.approx(np.clip(wanted, -1, 1), abs=1e-6)
        winds_up = abs(wanted) > 1 and wanted * error > 0
        saturations += winds_up
        integral += 0.0 if winds_up else ki * error / f
    assert saturations > 3


def test_set_points_without_a_course_are_the_reference_state_and_angles_take_the_short_way() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Upright(PendulumDCSC):
        regulated = {"angle": "voltage"}  # noqa: RUF012

    error = pid.control_errors(Upright(), np.array([[0.9, 0.0], [-0.9, 0.0]]))
    np.testing.assert_allclose(error, [[0.1], [-0.1]], atol=1e-9)


def test_tuning_beats_no_control_and_more_episodes_beat_fewer() -> None:
    plant = Quick()
    env = PopulationEnv(plant, 50, seed=11, role="evaluation")
    scores = []
    for episodes in (1, 1500):
        gains, simulated = pid.tune(plant, 50.0, 0.0, episodes)
        assert simulated == max(128, episodes // 128 * 128)
        scores.append(float(run_episode(Pid(plant, 50.0, gains).act, env).mean()))
    assert scores[1] > scores[0] > float(run_episode(zero_control(plant), env).mean())
    assert scores[1] > -0.6


def test_candidates_meet_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def spy(controller: Any, env: PopulationEnv, first: Any) -> Any:
        started.append(first)
        return run_episode(controller, env, first)

    monkeypatch.setattr(pid, "run_episode", spy)
    pid.tune(Quick(), 50.0, 0.05, 1)
    scenarios = started[0].reshape(4, 32, 3)
    assert (scenarios == scenarios[:, :1]).all()
    assert len(np.unique(scenarios[:, 0, 2])) == 4


def test_rivals_are_computed_once_for_each_plant_condition_and_budget(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, budget = Quick(), Rivals(episodes=100)
    assert kept_reference(plant, 50.0, 0.0, None, budget) is None
    assert reference(plant, 50.0).rivals == {}
    found = reference(plant, 50.0, rivals=budget).rivals
    assert set(found) == {"PID"}
    assert "Kp = " in found["PID"].note
    assert "tuned on 128 episodes" in found["PID"].note
    monkeypatch.setattr(pid, "tune", lambda *given: pytest.fail("tuned again"))
    assert reference(plant, 50.0, rivals=budget).rivals == found
    kept = kept_reference(plant, 50.0, 0.0, None, budget)
    assert kept is not None
    assert kept.rivals == found
    delayed = plant.through(Channel(delay=0.02))
    assert budget.scores(delayed, 50.0, 0.0, compute=False) == {}
    assert Rivals(episodes=200).scores(plant, 50.0, 0.0, compute=False) == {}
    assert reference(PendulumDCSC(), 50.0, rule="paper", rivals=budget).rivals == {}
