"""Plants' declarations, choices, rates and threads."""

import dataclasses
import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from replaybench.envs.bullet.reacher import BulletReacher
from replaybench.envs.bullet.walkers import BulletHopper
from replaybench.envs.foreign.dm_suite import AcerCartpole, AcerWalker
from replaybench.envs.foreign.python_plant import PythonPlant
from replaybench.envs.interface.engine import thread_count
from replaybench.envs.interface.plant import Plant
from replaybench.envs.mujoco.locomotion import MujocoHopper, MujocoHumanoid
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from replaybench.envs.population import PopulationEnv
from tests.helpers.declared import declared
from tests.helpers.refusals import refuses

Vector = NDArray[np.float64]


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


BangBang = declared(PendulumDCSC, action_choices=(2,), action_levels=(2,))


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
    for action in np.random.default_rng(3).uniform(-1, 1, (50, 3, 1)).astype(np.float32):
        one, other = bang.simulate(np.zeros(2), action)[0], free.simulate(np.zeros(2), np.sign(action))[0]
        np.testing.assert_array_equal(one, other)
        for mine, theirs in zip(bang.step(action)[:4], free.step(np.sign(action))[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_choices_change_the_fingerprint_and_units_may_be_empty() -> None:
    assert declared(Valve, action_choices=())().fingerprint() != declared(Valve)().fingerprint()
    assert declared(PendulumDCSC, state_units=("", ""))().state_units == ("", "")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("action_levels", 9, "action_levels must be a tuple, as in (9,), not 9"),
        ("action_levels", (9.5,), "each entry of action_levels must be a whole number from 2, not 9.5"),
        ("action_levels", (1,), "each entry of action_levels must be a whole number from 2, not 1"),
        ("action_levels", (), "action_levels has 0 entries, action_names has 1"),
        ("action_levels", (3,), "action_levels must equal action_choices"),
        ("action_choices", (1,), "each entry of action_choices must be a whole number from 2, not 1"),
        ("action_choices", (2.0,), "each entry of action_choices must be a whole number from 2, not 2.0"),
        ("action_choices", (2, 2), "action_choices has 2 entries, action_names has 1"),
        ("grid_nodes", 41, "grid_nodes must be a tuple, as in (41, 41), not 41"),
        ("grid_nodes", (41, True), "each entry of grid_nodes must be a whole number from 2, not True"),
        ("grid_low", (4.0, -30.0), "grid_low must be below grid_high"),
        ("action_names", "voltage", "action_names must be a tuple, as in ('voltage',), not 'voltage'"),
        ("action_low", -3.0, "action_low must be a tuple, as in (-3.0,), not -3.0"),
        ("action_low", (3.0,), "action_low must be below action_high, but they are (3.0,) and (3.0,)"),
        ("state_scale", (1.0, 0.0), "each entry of state_scale must be a positive number, not 0.0"),
        ("observation_limit", (0.0, 1.0), "each entry of observation_limit must be a positive number, not 0.0"),
        ("state_units", ("rad",), "state_units has 1 entries, state_names has 2"),
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
        ("observed", ("angel",), "did you mean angle?"),
        ("observed", "angle", "observed must be a tuple, as in ('angle',), not 'angle'"),
        ("observed", ("angle", "angle"), "observe names a state of Declared twice"),
        ("depends_on_rate", 1, "depends_on_rate must be True or False, not 1"),
        ("positive", "mass", "positive must be a tuple of its parameters"),
        ("positive", ("weight",), "positive must be a tuple of its parameters"),
    ],
)
def test_invalid_declarations_are_named(name: str, value: Any, told: str) -> None:
    refuses(f"Declared.*{re.escape(told)}|{re.escape(told)}", declared(BangBang, **{name: value}))


def test_missing_declarations_are_named() -> None:
    refuses(r"^plant Declared does not declare name$", declared(OdePlant))


@pytest.mark.parametrize(
    ("plant", "parameter", "value", "told"),
    [
        *((Pendulum, "mass", value, "a finite number, not ") for value in (math.nan, math.inf, "heavy", None)),
        (Pendulum, "inertia", 0, "positive, not 0$"),
        (Pendulum, "mass", -1, "positive, not -1$"),
        (Magman, "mass", -1.0, "positive, not -1.0$"),
    ],
)
def test_parameters_are_finite_divisors_positive(plant: type[OdePlant], parameter: str, value: Any, told: str) -> None:
    refuses(f"^{plant.__name__}: {parameter} must be {told}", plant, **{parameter: value})


@pytest.mark.parametrize(
    ("plant", "rate", "told"),
    [
        (MujocoHopper(), 110, "physics steps of 0.002 s, .* use 100 or 125 Hz"),
        (MujocoHopper(), 600, "use 500 Hz"),
        (MujocoHopper(), 0.01, "use 0.125 Hz"),
        (BulletHopper(), 100, "use 60.6060606061 or 121.212121212 Hz"),
        (BulletHopper(), 1e4, "use 242.424242424 Hz"),
        (BulletReacher(), 100, "use 60.6060606061 Hz"),
        (AcerWalker(), 80.5, "AcerWalker takes physics steps of 0.0025 s, 5000 to an episode; 80.5 Hz does not cut"),
        (AcerWalker(), 60, "60 Hz does not cut it into equal whole numbers of them: use 50 or 80 Hz"),
        (AcerCartpole(), 200, "use 100 Hz"),
    ],
)
def test_rates_that_cut_physics_steps_are_refused_with_the_nearest(plant: Plant, rate: float, told: str) -> None:
    refuses(told, plant.steps_per_episode, rate)
    assert MujocoHumanoid().steps_per_episode(83.3333333333) == 1250


def test_one_thread_by_default_and_invalid_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLAYBENCH_THREADS", raising=False)
    assert thread_count() == 1
    monkeypatch.setenv("REPLAYBENCH_THREADS", " 12 ")
    assert thread_count() == 12
    for text in ("", "0", "-1", "two", "1.5", "²"):
        monkeypatch.setenv("REPLAYBENCH_THREADS", text)
        refuses("^REPLAYBENCH_THREADS is .*; give a whole number of 1 or more", thread_count)


def test_observed_states_are_normalised_by_their_names() -> None:
    plant, state = PendulumDCSC(), np.array([[1.0, 2.0], [-3.0, 40.0]])
    normalised = plant.normalise_state(state)
    for names, columns in ((("angle",), [0]), (("angular velocity", "angle"), [1, 0])):
        np.testing.assert_array_equal(plant.normalise_state(state[:, columns], names), normalised[:, columns])
        np.testing.assert_allclose(plant.denormalise_state(normalised[:, columns], names), state[:, columns])
    refuses(
        r"2 states of PendulumDCSC are expected .* \(2, 1\); .*observe=\('angle',\)",
        plant.denormalise_state,
        state[:, :1],
    )
