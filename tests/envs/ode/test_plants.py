"""The two plants of de Bruin et al. (2018, appendix A), and what every plant owes its user when it is wrong."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from replaybench.envs.ode import rk4
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import OdePlant, try_functions, wrap_angle
from replaybench.runtime.errors import UserError


def test_parameters_are_the_printed_ones() -> None:
    assert Pendulum().params() == (9.41e-4, 5.5e-2, 9.81, 4.2e-2, 3e-6, 5.36e-2, 9.5)
    assert PendulumDCSC().params() == (1.91e-4, *Pendulum().params()[1:])
    assert Magman().params() == (3.2e-2, 1.613e-2, 5.52e-10, 1.75e-4, 0.025)


def test_right_hand_sides_by_hand() -> None:
    x, u = np.array([math.pi / 2, 2.0]), np.array([3.0])
    expected = (-0.055 * 9.81 * 0.042 - (3e-6 + 0.0536**2 / 9.5) * 2 + 0.0536 / 9.5 * 3) / 9.41e-4
    assert Pendulum.rhs(x, u, Pendulum().params()) == pytest.approx((2.0, expected), rel=1e-12)
    x, u = np.array([0.035, 0.1]), np.array([0.6, 0.0, 0.0, 0.0])
    force = -5.52e-10 * 0.01 / (0.01**2 + 1.75e-4) ** 3 * 0.6
    assert Magman.rhs(x, u, Magman().params()) == pytest.approx((0.1, (force - 1.613e-3) / 0.032), rel=1e-12)


def test_rewards_by_hand() -> None:
    x = np.zeros(2)
    reward = Pendulum.reward(x, np.array([-2.0]), np.array([-3.0, -4.0]), 0, Pendulum().params())
    assert reward == pytest.approx(-(50 * (math.pi - 3) + 4 + 20), rel=1e-12)
    for event, extra in ((0, 0.0), (1, 1.0)):
        reward = Magman.reward(x, np.ones(4), np.array([0.105, -0.01]), event, Magman().params())
        assert reward == pytest.approx(-(100 * 0.07 + 5 * 0.01 + extra), rel=1e-12)


def test_angles_are_wrapped_into_their_half_open_range() -> None:
    for angle in (0.0, 3.0, -math.pi, math.pi, 3.2, -3.2, 7.0, -100.0, 1e9, math.nextafter(-math.pi, -4)):
        wrapped = wrap_angle(angle)
        assert -math.pi <= wrapped < math.pi
        assert math.cos(wrapped - angle) == pytest.approx(1.0, abs=1e-12)
    assert math.isnan(wrap_angle(math.nan))
    after, _, _ = rk4.simulate(Pendulum(), [3.1, 10.0], [0.0], 0.02)
    assert -math.pi < after[0] < -2.9


@pytest.mark.parametrize(
    ("start", "end"), [((-0.0349, -0.3), (-0.035, 0.01)), ((0.1049, 0.3), (0.105, -0.01))], ids=["low", "high"]
)
def test_a_wall_stops_the_ball_and_costs_one(start: tuple[float, float], end: tuple[float, float]) -> None:
    plant = Magman()
    after, reward, _ = rk4.simulate(plant, start, np.zeros(4), 0.01)  # one substep
    np.testing.assert_array_equal(after, end)
    assert reward == pytest.approx(-(100 * 0.07 + 5 * 0.01 + 1), rel=1e-12)
    # A collision in the first of two substeps still counts, though the ball has left the wall since.
    after, reward, _ = rk4.simulate(plant, start, np.zeros(4), 0.02)
    assert abs(after[0] - end[0]) == pytest.approx(0.01 * 0.01, rel=0.01)
    free = -(100 * abs(after[0] - 0.035) + 5 * abs(after[1]))
    assert reward == pytest.approx(free - 1, rel=1e-12)


@pytest.mark.parametrize(
    "changed",
    [{"grid_nodes": (30, 31)}, {"grid_low": (-math.pi, -9.0), "grid_high": (math.pi, 9.0)}, {"action_levels": (7,)}],
)
def test_the_grid_of_dynamic_programming_is_no_part_of_a_fingerprint(
    changed: dict[str, tuple[float, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners never see it: what they learned stays valid when it changes."""
    before = Pendulum().fingerprint()
    for name, value in changed.items():
        monkeypatch.setattr(Pendulum, name, value)
    assert Pendulum().fingerprint() == before


def test_a_fingerprint_follows_content_and_nothing_else() -> None:
    assert Pendulum().fingerprint() == Pendulum(inertia=9.41e-4).fingerprint()
    prints = {
        plant.fingerprint()
        for plant in (Pendulum(), PendulumDCSC(), Pendulum(inertia=1.91e-4), Magman(), Magman(first_magnet_at=0))
    }
    assert len(prints) == 5
    assert replace(Magman(), first_magnet_at=0).first_magnet_at == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, "heavy", None])
def test_parameters_must_be_finite_numbers(value: object) -> None:
    with pytest.raises(UserError, match=r"^Pendulum: mass must be a finite number, not "):
        Pendulum(mass=value)  # type: ignore[arg-type]


def test_what_is_divided_by_must_be_positive() -> None:
    with pytest.raises(UserError, match=r"^Pendulum: inertia must be positive, not 0$"):
        Pendulum(inertia=0)
    with pytest.raises(UserError, match=r"^Pendulum: mass must be positive, not -1$"):
        Pendulum(mass=-1)
    with pytest.raises(UserError, match=r"^Magman: mass must be positive, not -1.0$"):
        Magman(mass=-1.0)


def test_missing_declarations_are_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Short(Pendulum):
        state_units: ClassVar[Any] = ("rad",)

    @dataclass(frozen=True, kw_only=True)
    class Nameless(OdePlant):
        gain: float = 1.0

    with pytest.raises(UserError, match=r"^plant Short: state_units has 1 entries, state_names has 2$"):
        Short()
    with pytest.raises(UserError, match=r"^plant Nameless does not declare name$"):
        Nameless()


@pytest.mark.parametrize(
    ("function", "returned", "told"),
    [
        ("reward", None, "reward returns None at the initial state where a number must be"),
        ("reward", np.zeros(2), "reward returns array([0., 0.]) at the initial state where a number must be"),
        ("rhs", None, "rhs returns None at the initial state, not a tuple of derivatives"),
        ("rhs", (0.0, "fast"), "rhs returns 'fast' at the initial state where a number must be"),
        ("rhs", (0.0,), "rhs returns 1 derivatives for 2 states"),
    ],
)
def test_wrong_return_values_are_named(function: str, returned: Any, told: str) -> None:
    plant: Any = PendulumDCSC()
    functions = {name: SimpleNamespace(py_func=getattr(plant, name).py_func) for name in rk4.FUNCTIONS}
    functions[function] = SimpleNamespace(py_func=lambda *_: returned)
    shared = {name: getattr(plant, name) for name in ("initial_state", "action_range", "params")}
    assert try_functions(cast(Any, SimpleNamespace(**functions, **shared))) == told
