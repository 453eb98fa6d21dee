"""Rivals of learners: the law of the PID controller, its tuning, and the store of scores."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replaybench.baselines import mppi, pid, rivals
from replaybench.baselines.controllers import RandomController, run_episode, zero_control
from replaybench.baselines.fuzzy_q_iteration import solve
from replaybench.baselines.lqi import Lqi, lqi_gains
from replaybench.baselines.mppi import Mppi
from replaybench.baselines.pid import Pid
from replaybench.baselines.references import kept_reference, reference
from replaybench.baselines.rivals import Rivals
from replaybench.envs.interface.channel import Channel
from replaybench.envs.measures import MEASURES
from replaybench.envs.ode import rk4
from replaybench.envs.ode.courses import Steps
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.ode.servo import Servo
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.streams import Stream
from tests.helpers.declared import declared
from tests.helpers.refusals import refuses


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
    for episodes, due in ((1, 32), (1500, 1408)):  # 32 candidates, and then 11 generations with 4 episodes of each
        gains, simulated = pid.tune(plant, 50.0, 0.0, episodes)
        assert simulated == due
        scores.append(float(run_episode(Pid(plant, 50.0, gains).act, env).mean()))
    assert scores[1] > scores[0] > float(run_episode(zero_control(plant), env).mean())
    assert scores[1] > -0.6


def test_candidates_meet_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def spy(controller: Any, env: PopulationEnv, first: Any) -> Any:
        started.append(first)
        return run_episode(controller, env, first)

    monkeypatch.setattr(pid, "run_episode", spy)
    monkeypatch.setattr(pid, "_GENERATIONS", 1)
    pid.tune(Quick(), 50.0, 0.05, 128)
    scenarios = started[0].reshape(4, 32, 3)
    assert (scenarios == scenarios[:, :1]).all()
    assert len(np.unique(scenarios[:, 0, 2])) == 4


def test_the_integral_and_the_derivative_have_the_sign_of_the_proportional_gain() -> None:
    values = np.random.Generator(np.random.PCG64(2)).uniform(-1, 1, (500, 8))
    gains = pid.gains_of(values, 50.0)
    assert gains.shape == (500, 2, 4)
    assert (np.sign(gains[..., 1:3]) == np.sign(gains[..., :1])).all()
    assert (gains[..., 0] < 0).any()


def test_rivals_are_computed_once_for_each_plant_condition_and_budget(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, every = Quick(), Rivals()
    monkeypatch.setattr(rivals, "TUNING_EPISODES", 100)
    assert kept_reference(plant, 50.0, 0.0, None, every) is None
    assert reference(plant, 50.0).rivals == {}
    found = reference(plant, 50.0, rivals=every).rivals
    assert set(found) == {"PID", "LQI", "MPPI"}
    assert all(set(rival.measures) == set(MEASURES) for rival in found.values())
    assert 0 < found["PID"].measures["settling time"] < 1
    assert re.search(r"Kp = \S+ V/rad, Ki = \S+ V/\(rad·s\), Kd = \S+ V·s/rad, filter \S+ s", found["PID"].note)
    assert "tuned on 96 episodes" in found["PID"].note
    monkeypatch.setattr(pid, "tune", lambda *given: pytest.fail("tuned again"))
    assert reference(plant, 50.0, rivals=every).rivals == found
    kept = kept_reference(plant, 50.0, 0.0, None, every)
    assert kept is not None
    assert kept.rivals == found
    delayed = plant.through(Channel(delay=0.02))
    assert every.scores(delayed, 50.0, 0.0, compute=False) == {}
    monkeypatch.setattr(rivals, "TUNING_EPISODES", 200)
    assert set(every.scores(plant, 50.0, 0.0, compute=False)) == {"MPPI"}


def test_lqi_removes_the_error_of_a_constant_load() -> None:
    plant = declared(Quick, exogenous={"set point": Steps(-1.5, 1.5, 100.0)}, episode_seconds=20.0)()
    env = PopulationEnv(plant, 3)
    controller, (_, integral) = Lqi(plant, 50.0), lqi_gains(plant, 50.0)
    observation, _ = env.reset()
    for step in range(1000):
        observation, *_ = env.step(controller.act(observation) + np.float32(0.2))
        if step == 40:  # a proportional controller stays 0.2 / 2.3 away
            assert np.abs(pid.control_errors(plant, observation.astype(np.float64))).max() > 0.03
    assert np.abs(pid.control_errors(plant, observation.astype(np.float64))).max() < 0.003
    assert integral[0, 0] < 0
    refuses("Upright has no set points", lqi_gains, declared(PendulumDCSC, name="Upright")(), 50.0)


class Naive:
    """MPPI for one copy of a plant, one sample and one step after the other."""

    def __init__(self, plant: OdePlant, frequency: float, member: int, samples: int, steps: int) -> None:
        self.plant, self.f, self.samples = plant, frequency, samples
        self.stream = Stream(2018, [member], "sampled control")
        self.plan = [np.zeros(1) for _ in range(steps)]

    def act(self, observation: Any) -> float:
        discount = self.plant.discount ** (self.plant.frequency / self.f)
        hold = max(1, round(mppi.HOLD * self.f))
        for _ in range(mppi.ITERATIONS):
            held = -(-len(self.plan) // hold)
            noise = iter(self.stream.normal(self.samples * held)[0])
            trials, returns = [], []
            for k in range(self.samples):
                spread = 1.0 * (0.02 / 1.0) ** (k / (self.samples - 1))
                drawn = [next(noise) for _ in range(held)]
                trial = [float(np.clip(a[0] + spread * drawn[t // hold], -1, 1)) for t, a in enumerate(self.plan)]
                trial = trial if k else [float(a[0]) for a in self.plan]
                x, total = self.plant.denormalise_state(observation), 0.0
                for t, action in enumerate(trial):
                    x, reward, _ = rk4.simulate(self.plant, x, self.plant.denormalise_action([action]), 1 / self.f)
                    total += discount**t * float(reward)
                trials.append(trial)
                returns.append(total)
            weights = np.exp((np.array(returns) - max(returns)) / (mppi.TEMPERATURE * np.std(returns)))
            self.plan = [
                np.array([sum(w * trial[t] for w, trial in zip(weights, trials, strict=True)) / weights.sum()])
                for t in range(len(self.plan))
            ]
        first = float(self.plan[0][0])
        self.plan = [*self.plan[1:], self.plan[-1]]
        return first


def test_mppi_equals_a_naive_version() -> None:
    plant = PendulumDCSC()
    controller = Mppi(plant, 50.0, [4, 7], horizon=0.1, samples=6)
    naive = [Naive(plant, 50.0, member, 6, 5) for member in (4, 7)]
    observation = np.array([[0.1, -0.2], [0.8, 0.1]], np.float32)
    for _ in range(3):
        action = controller.act(observation)
        np.testing.assert_allclose(
            action[:, 0], [each.act(row) for each, row in zip(naive, observation, strict=True)], atol=1e-6
        )
        observation = (0.9 * observation).astype(np.float32)


def test_mppi_swings_the_pendulum_up_nearly_as_well_as_dynamic_programming() -> None:
    plant = PendulumDCSC()
    env = PopulationEnv(plant, 2, role="evaluation")
    score = run_episode(Mppi(plant, 50.0, env.members).act, env).mean()
    best = run_episode(solve(plant, 50.0).greedy, env).mean()
    random = run_episode(RandomController(plant, env.members).act, env).mean()
    assert score - random > 0.98 * (best - random)


OWN = """
import numpy as np
from replaybench.extend import ReferenceController

class Mine(ReferenceController):
    _seen = 0

    def act(self, observation):
        self._seen += 1
        angle, speed, goal = self.plant.denormalise_state(observation).T
        return self.plant.normalise_action((6.0 * (goal - angle) - 0.2 * speed)[:, None])

class Idle(ReferenceController):
    def act(self, observation):
        return 0 * observation[:, :1]

class Failing(ReferenceController):
    def act(self, observation):
        return observation[:, 99]
"""


def test_own_controllers_are_rivals(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own_controllers.py"
    file.write_text(OWN)
    name = f"{file}:Mine"
    monkeypatch.setattr(rivals, "_names", lambda *given: ())
    assert Rivals(own=(name,)).scores(Quick(), 50.0, 0.0, compute=False) == {}
    found = Rivals(own=(name,)).scores(Quick(), 50.0, 0.0)
    assert found[name].score > -1.0
    idle = f"{file}:Idle"
    assert Rivals(own=(idle,)).scores(Quick(), 50.0, 0.0)[idle].measures["action variation"] == 0
    assert Rivals(own=(name,)).scores(Quick(), 50.0, 0.0, compute=False) == found
    refuses("own_controllers.py, line .*IndexError", Rivals(own=(f"{file}:Failing",)).scores, Quick(), 50.0, 0.0)
    refuses("unknown controller .*Other", Rivals(own=(f"{file}:Other",)).scores, Quick(), 50.0, 0.0)
