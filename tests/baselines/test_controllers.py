"""The linear-quadratic regulator: it holds what can be held, and refuses what cannot."""

import dataclasses
import math

import numpy as np
import pytest

from replaybench.baselines.controllers import linear_quadratic_regulator
from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode import rk4
from replaybench.envs.ode.magman import Magman
from replaybench.envs.ode.pendulum import Pendulum, PendulumDCSC
from replaybench.envs.ode.plant import OdePlant
from tests.helpers.declared import declared
from tests.helpers.refusals import refuses

PLANTS = [Pendulum(), PendulumDCSC(), Magman()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutOfReach(OdePlant):
    """An unstable state that no action moves."""

    name = "OutOfReach"
    state_names, state_units = ("place",), ("m",)
    action_names, action_units = ("speed",), ("m/s",)
    state_center, state_scale = (0.0,), (1.0,)
    action_low, action_high = (-1.0,), (1.0,)
    initial_state, reference_state = (1.0,), (0.0,)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        return (x[0],)

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -x_next[0] * x_next[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
@pytest.mark.parametrize("frequency", [10.0, 50.0, 200.0])
def test_the_closed_loop_is_stable_and_returns_from_a_small_push(plant: OdePlant, frequency: float) -> None:
    regulator = linear_quadratic_regulator(plant, frequency)
    loop = regulator.A - regulator.B @ regulator.gain
    assert np.abs(np.linalg.eigvals(loop)).max() < 0.99
    assert np.abs(np.linalg.eigvals(regulator.A)).max() > 1.0  # by itself it falls
    pushed = regulator.reference + np.array([[0.005, 0.0], [-0.005, 0.0], [0.0, 0.005], [0.0, -0.005]])
    state = plant.denormalise_state(pushed)
    for _ in range(int(4 * frequency)):
        action = regulator.act(plant.normalise_state(state).astype(np.float32))
        state, _, _ = rk4.simulate(plant, state, plant.denormalise_action(action), 1 / frequency)
    error = plant.normalise_state(state) - regulator.reference
    error -= np.round(error / 2) * 2 * np.array(plant.periodic)  # an angle of 2π is 2 when normalised
    np.testing.assert_allclose(error, 0.0, atol=1e-4)


def test_the_pendulum_needs_no_voltage_and_magman_the_smallest_change_from_half_current() -> None:
    np.testing.assert_allclose(linear_quadratic_regulator(Pendulum()).equilibrium, 0.0, atol=1e-9)
    plant = Magman()
    balance = linear_quadratic_regulator(plant).equilibrium
    p = np.array([plant.first_magnet_at + 0.025 * j for j in range(4)])
    d = 0.035 - p
    force = -plant.force_constant * d / (d**2 + plant.force_width) ** 3
    assert force @ plant.denormalise_action(balance) == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(balance, force * (-force.sum() / (force @ force)), atol=1e-6)


def test_actions_are_clipped_and_angles_go_the_short_way() -> None:
    regulator = linear_quadratic_regulator(Pendulum())
    across = regulator.act(np.array([[0.99, 0.0], [-0.99, 0.0], [0.0, 0.0], [-0.2, 1.0]], np.float32))
    assert across.dtype == np.float32
    assert across[0, 0] == pytest.approx(-across[1, 0], abs=1e-5)
    assert 0.0 < across[0, 0] < 0.2
    assert np.abs(across).max() <= 1.0


SIDEWAYS, WALL = (math.pi / 2, 0.0), (0.105, 0.0)  # the first takes 4 V of the motor's 3


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (declared(PendulumDCSC, name="OnOff", action_choices=(2,), action_levels=(2,)), "OnOff takes choices"),
        (declared(Pendulum, name="Sideways", reference_state=SIDEWAYS), "no action holds Sideways"),
        (declared(Magman, name="AtTheWall", reference_state=WALL), "AtTheWall"),
        (OutOfReach, "cannot be stabilised"),
    ],
    ids=["choices", "sideways", "at the wall", "out of reach"],
)
def test_what_cannot_be_regulated_is_refused(plant: type[OdePlant], message: str) -> None:
    refuses(message, linear_quadratic_regulator, plant())
