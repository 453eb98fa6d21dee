"""Plants' declarations, choices and threads."""

import dataclasses
import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.interface.engine import thread_count
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


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("action_levels", 9, "action_levels must be a tuple, as in (9,), not 9"),
        ("action_levels", (9.5,), "each entry of action_levels must be a whole number from 2, not 9.5"),
        ("action_levels", (1,), "each entry of action_levels must be a whole number from 2, not 1"),
        ("action_levels", (), "action_levels has 0 entries, action_names has 1"),
        ("grid_nodes", 41, "grid_nodes must be a tuple, as in (41, 41), not 41"),
        ("grid_nodes", (41, True), "each entry of grid_nodes must be a whole number from 2, not True"),
        ("grid_low", (4.0, -30.0), "grid_low must be below grid_high"),
        ("action_names", "voltage", "action_names must be a tuple, as in ('voltage',), not 'voltage'"),
        ("action_low", -3.0, "action_low must be a tuple, as in (-3.0,), not -3.0"),
        ("action_low", (3.0,), "action_low must be below action_high, but they are (3.0,) and (3.0,)"),
        ("state_scale", (1.0, 0.0), "each entry of state_scale must be a positive number, not 0.0"),
        ("state_units", ("rad", 2), "each entry of state_units must be a unit, empty where there is none, not 2"),
        ("initial_state", (0.0, math.nan), "each entry of initial_state must be a finite number, not nan"),
        ("periodic", True, "periodic must be a tuple, as in (True, True), not True"),
        ("frequency", "50", "frequency must be a positive number, not '50'"),
        ("max_substep", 0, "max_substep must be a positive number, not 0"),
        ("episode_seconds", -1.0, "episode_seconds must be a positive number, not -1.0"),
        ("reward_scale", math.inf, "reward_scale must be a positive number, not inf"),
        ("discount", 1.5, "discount must be a number from 0 to 1, not 1.5"),
        ("reference_episodes", 1, "reference_episodes must be a whole number from 2, not 1"),
        ("reference_episodes", 2.5, "reference_episodes must be a whole number from 2, not 2.5"),
        ("zero_action", (4.0,), "must lie within -3 … 3, not 4; declare zero_action = (…,)"),
        ("grid_low", (-1.0, -30.0), "the grid of angle, which is periodic, goes from -1 to 3.14159"),
        ("update_every", 1.5, "update_every must be a whole number from 0, not 1.5"),
        ("episode_metric", "sum", "valid: mean reward, return"),
        ("name", 3, "name must be a name, not 3"),
        ("positive", "mass", "positive must be a tuple of its parameters"),
        ("positive", ("weight",), "positive must be a tuple of its parameters"),
    ],
)
def test_invalid_declarations_are_named(name: str, value: Any, told: str) -> None:
    made: Any = type("Wrong", (PendulumDCSC,), {name: value})
    with pytest.raises(UserError, match=re.escape(told)) as refusal:
        dataclasses.dataclass(frozen=True, kw_only=True)(made)()
    assert "Wrong" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_units_may_be_empty() -> None:
    made: Any = type("Unitless", (PendulumDCSC,), {"state_units": ("", "")})
    assert dataclasses.dataclass(frozen=True, kw_only=True)(made)().state_units == ("", "")


def test_one_thread_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLAYBENCH_THREADS", raising=False)
    assert thread_count() == 1
    monkeypatch.setenv("REPLAYBENCH_THREADS", " 12 ")
    assert thread_count() == 12


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "²"])
def test_invalid_thread_counts_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("REPLAYBENCH_THREADS", text)
    with pytest.raises(UserError, match="^REPLAYBENCH_THREADS is .*; give a whole number of 1 or more"):
        thread_count()
