"""Plants that take choices: tasks of Gymnasium do what they do there, and every engine gets the nearest choice."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.ode.pendulum import PendulumDCSC
from replaybench.envs.population import PopulationEnv
from replaybench.runtime.errors import UserError

Vector = NDArray[np.float64]


def random_numbers(*shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(3)).uniform(-1, 1, shape).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Valve(PythonPlant):
    """Is where it is put: shut, half open, or open."""

    name = "Valve"
    state_names, state_units, state_center, state_scale = ("opening",), ("1",), (0.0,), (1.0,)
    action_names, action_units, action_low, action_high = ("command",), ("1",), (0.0,), (1.0,)
    action_choices: ClassVar[tuple[int, ...]] = (3,)
    initial_state = (0.0,)
    frequency = 1.0
    episode_seconds = 400.0

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        return u, float(u[0]), False


@dataclasses.dataclass(frozen=True, kw_only=True)
class BangBang(PendulumDCSC):
    """The pendulum under two voltages."""

    name = "BangBang"
    action_choices = (2,)
    action_levels = (2,)


def test_actuator_noise_comes_before_the_choice() -> None:
    """Half a step from the next choice at each side, a command is lost by P(|noise| > 1/2): χ², p = 0.001."""
    members, steps, sigma = 50, 200, 0.4
    env = PopulationEnv(Valve(), members, actuator_noise=sigma)
    env.reset()
    counted = np.zeros(3)
    for _ in range(steps):
        observation, *_, infos = env.step(np.zeros((members, 1)))
        expected = np.select([infos["actuator_noise"] <= -0.5, infos["actuator_noise"] > 0.5], [0.0, 1.0], 0.5)
        np.testing.assert_array_equal(observation, expected)
        counted += [(observation == value).sum() for value in (0.0, 0.5, 1.0)]
    lost = stats.norm.sf(0.5 / sigma)
    probability = np.array([lost, 1 - 2 * lost, lost])
    assert stats.chisquare(counted, members * steps * probability).pvalue > 0.001
    assert set(observation.ravel()) <= {0.0, 0.5, 1.0}


def test_equations_get_the_nearest_choice_too() -> None:
    """Commands between the choices are those of the unrestricted plant's ends, in every way of stepping."""
    bang, free = PopulationEnv(BangBang(), 3), PopulationEnv(PendulumDCSC(), 3)
    bang.reset()
    free.reset()
    for action in random_numbers(50, 3, 1):
        np.testing.assert_array_equal(
            bang.simulate(np.zeros(2), action)[0], free.simulate(np.zeros(2), np.sign(action))[0]
        )
        for mine, theirs in zip(bang.step(action)[:4], free.step(np.sign(action))[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def wrong_plant(base: type, **facts: Any) -> None:
    made: Any = type("Wrong", (base,), facts)
    dataclasses.dataclass(frozen=True)(made)()


def test_choices_change_the_fingerprint_and_are_checked() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Free(Valve):
        action_choices = ()

    assert Free().fingerprint() != Valve().fingerprint()
    for wrong, told in (((1,), "whole number from 2"), ((2.0,), "whole number from 2"), ((2, 2), "2 entries")):
        with pytest.raises(UserError, match=f"action_choices.*{told}"):
            wrong_plant(Valve, action_choices=wrong)
    with pytest.raises(UserError, match="action_levels must equal action_choices"):
        wrong_plant(BangBang, action_levels=(3,))
