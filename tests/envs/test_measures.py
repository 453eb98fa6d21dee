"""Measures of the signals of an episode, by hand."""

import dataclasses

import numpy as np

from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.measures import MEASURES
from replaybench.envs.ode.courses import Steps
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from tests.helpers.declared import declared
from tests.helpers.refusals import refuses

NAMES = list(MEASURES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moved(OdePlant):
    """A place that moves at the speed of the action, and its goal."""

    name = "Moved"
    state_names, state_units, state_center, state_scale = ("place", "goal"), ("m", "m"), (0.0,) * 2, (1.0,) * 2
    action_names, action_units, action_low, action_high = ("speed",), ("m/s",), (-10.0,), (10.0,)
    initial_state, reference_state = (0.0, 0.0), (0.0, 0.0)
    exogenous, regulated, set_points = {"goal": Steps(1.0, 2.0, 0.5)}, {"place": "speed"}, {"place": "goal"}
    limits = {"place": (-0.1, 1.2)}  # noqa: RUF012
    frequency, max_substep, episode_seconds = 10.0, 0.1, 1.0

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        return (u[0],)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return 0.0


def test_measures_equal_values_by_hand() -> None:
    env = PopulationEnv(Moved(), 3)
    first, _ = env.reset()
    goals = first[:, 1].astype(np.float64)
    start = places = np.zeros(3)
    targets, reached, actions = [], [], []
    # In each step of the goal: 1.5 times the way, back to 0.9 of it, to 1.01 of it, and rest there.
    for step in range(10):
        start = places if step % 5 == 0 else start
        way = (1.5, 0.9, 1.01, 1.01, 1.01)[step % 5]
        action = np.clip((start + way * (goals - start) - places) / 1.0, -1, 1)
        targets.append(goals)
        observation, *_ = env.step(action[:, None])
        places = observation[:, 0].astype(np.float64)
        reached.append(places)
        actions.append(np.float32(action).astype(np.float64))
        goals = observation[:, 1].astype(np.float64)
    act, reach, goal = np.array(actions), np.array(reached), np.array(targets)
    found = dict(zip(NAMES, env.measures().T, strict=True))
    np.testing.assert_allclose(found["action variation"], np.abs(np.diff(act, axis=0)).mean(axis=0) * 10, rtol=1e-5)
    np.testing.assert_allclose(found["sign reversals"], (act[1:] * act[:-1] < 0).mean(axis=0) * 10, rtol=1e-6)
    np.testing.assert_allclose(found["saturated steps"], (np.abs(act) >= 1).mean(axis=0))
    outside = (reach < -0.1) | (reach > 1.2)
    np.testing.assert_allclose(found["steps outside limits"], outside.mean(axis=0))
    np.testing.assert_allclose(found["mean absolute error"], np.abs(goal - reach).mean(axis=0), rtol=1e-5)
    overshoot, settling, steady = np.zeros((3, 3))
    for begin in (0, 5):
        start = np.zeros(3) if begin == 0 else reach[begin - 1]
        size = goal[begin] - start
        past = (reach[begin : begin + 5] - goal[begin]) * np.sign(size)
        overshoot += np.maximum(past.max(axis=0), 0) / np.abs(size) / 2
        beyond = np.abs(past) > 0.02 * np.abs(size)
        settling += np.array([max(np.flatnonzero(column), default=-1) + 1 for column in beyond.T]) * 0.1 / 2
        steady += np.abs(past[-1]) / 2
    np.testing.assert_allclose(found["overshoot"], overshoot, rtol=1e-4)
    np.testing.assert_allclose(found["settling time"], settling, rtol=1e-6)
    np.testing.assert_allclose(found["steady-state error"], steady, rtol=1e-3, atol=1e-6)
    assert overshoot.max() > 0.2  # something was measured
    assert outside.any()
    assert (np.abs(act) >= 1).any()


def test_measures_that_a_plant_does_not_have_are_unknown() -> None:
    env = PopulationEnv(PendulumDCSC(), 2)
    env.reset()
    env.step(np.array([[1.0], [0.5]]))
    assert np.isnan(env.measures()[:, [0, 1, 3, 4, 5, 6, 7]]).all()  # no change yet, no limits, no set point
    assert env.measures()[:, 2].tolist() == [1.0, 0.0]
    env.step(np.array([[-1.0], [0.5]]))
    assert env.measures()[:, :3].tolist() == [[100.0, 50.0, 1.0], [0.0, 0.0, 0.0]]


def test_wrong_limits_are_refused() -> None:
    refuses("limits of angle must be", declared(PendulumDCSC, limits={"angle": (1.0, -1.0)}))
    refuses("angel", declared(PendulumDCSC, limits={"angel": (-1.0, 1.0)}))
