"""Plants on which advice is tried, none of which its rules were made on: `benchmarks/advice_plants.py:Furnace`.

They differ in what the rules look at: a slow one (0.1 Hz), a fast one (200 Hz), tanks with noisy sensors, a mass that
may come to rest on either of two sides, and a pole to be swung up either way round.
"""

import math
from dataclasses import dataclass

from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.plant import OdePlant, wrap_angle


@dataclass(frozen=True, kw_only=True)
class Furnace(OdePlant):
    """A heater warms a workpiece that loses heat to the room, by conduction and by radiation; 0.1 Hz."""

    heater: float = 400.0  # heat capacity [J/K]
    piece: float = 2000.0  # heat capacity [J/K]
    between: float = 4.0  # conductance from heater to piece [W/K]
    loss: float = 1.0  # conductance from piece to room [W/K]
    radiation: float = 2.0e-10  # of the heater [W/K⁴]

    name = "Furnace"
    state_names = ("heater", "piece")
    state_units = ("K above room", "K above room")
    action_names = ("power",)
    action_units = ("W",)
    state_center = (150.0, 100.0)
    state_scale = (150.0, 100.0)
    action_low = (0.0,)
    action_high = (400.0,)
    zero_action = (0.0,)
    initial_state = (0.0, 0.0)
    reference_state = (187.5, 150.0)
    positive = ("heater", "piece")
    episode_seconds = 2000.0
    frequency = 0.1
    max_substep = 5.0
    discount = 0.95
    reward_scale = 0.02
    grid_nodes = (81, 81)
    grid_low = (0.0, 0.0)
    grid_high = (400.0, 320.0)
    action_levels = (15,)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        C, c, k, g, s = p
        across = k * (x[0] - x[1])
        radiated = s * ((x[0] + 293.0) ** 4 - 293.0**4)
        return (u[0] - across - radiated) / C, (across - g * x[1]) / c

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -abs(x_next[1] - 150.0) - 0.02 * u[0]


@dataclass(frozen=True, kw_only=True)
class Tanks(OdePlant):
    """A pump fills a tank that drains into a second one, whose level is to be kept (Torricelli's law); 0.2 Hz."""

    area: float = 1.5e-2  # of either bottom [m²]
    outlet: float = 5e-5  # area of either outlet [m²]

    name = "Tanks"
    state_names = ("first level", "second level")
    state_units = ("m", "m")
    action_names = ("inflow",)
    action_units = ("m³/s",)
    state_center = (0.2, 0.2)
    state_scale = (0.2, 0.2)
    action_low = (0.0,)
    action_high = (1.5e-4,)
    initial_state = (0.02, 0.02)
    reference_state = (0.15, 0.15)
    positive = ("area",)
    episode_seconds = 500.0
    frequency = 0.2
    max_substep = 2.5
    discount = 0.95
    reward_scale = 20.0
    grid_nodes = (81, 81)
    grid_low = (0.0, 0.0)
    grid_high = (0.5, 0.5)
    action_levels = (15,)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        A, a = p
        first = a * math.sqrt(19.62 * max(x[0], 0.0))
        second = a * math.sqrt(19.62 * max(x[1], 0.0))
        return (u[0] - first) / A, (first - second) / A

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        x[0] = min(max(x[0], 0.0), 0.5)
        x[1] = min(max(x[1], 0.0), 0.5)
        return 0

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -abs(x_next[1] - 0.15)


@dataclass(frozen=True, kw_only=True)
class Servo(OdePlant):
    """A motor turns a load with dry friction to an angle, sampled so fast that single actions hardly matter; 200 Hz."""

    inertia: float = 2e-4  # [kg m²]
    damping: float = 1e-3  # back electromotive force included [N m s/rad]
    torque: float = 2e-2  # per volt [N m/V]
    dry: float = 5e-3  # friction [N m]

    name = "Servo"
    state_names = ("angle", "speed")
    state_units = ("rad", "rad/s")
    action_names = ("voltage",)
    action_units = ("V",)
    state_center = (0.0, 0.0)
    state_scale = (2.0, 20.0)
    action_low = (-1.0,)
    action_high = (1.0,)
    initial_state = (-2.0, 0.0)
    reference_state = (0.0, 0.0)
    positive = ("inertia",)
    episode_seconds = 1.0
    frequency = 200.0
    discount = 0.98
    reward_scale = 0.2
    grid_nodes = (101, 101)
    grid_low = (-4.0, -25.0)
    grid_high = (4.0, 25.0)
    action_levels = (15,)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        J, d, k, f = p
        return x[1], (k * u[0] - d * x[1] - f * math.tanh(10.0 * x[1])) / J

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -(abs(x_next[0]) + 0.02 * abs(x_next[1]) + 0.05 * abs(u[0]))


@dataclass(frozen=True, kw_only=True)
class TwoRests(OdePlant):
    """A mass starts on top of a low hill and may come to rest in either of two places, which are worth the same."""

    mass: float = 1.0  # [kg]
    friction: float = 0.4  # [N s/m]
    slope: float = 1.5  # of the hill [N/m]

    name = "TwoRests"
    state_names = ("position", "velocity")
    state_units = ("m", "m/s")
    action_names = ("force",)
    action_units = ("N",)
    state_center = (0.0, 0.0)
    state_scale = (2.0, 4.0)
    action_low = (-2.0,)
    action_high = (2.0,)
    initial_state = (0.0, 0.0)
    reference_state = (1.0, 0.0)
    positive = ("mass",)
    episode_seconds = 8.0
    frequency = 25.0
    max_substep = 0.04
    discount = 0.95
    reward_scale = 1.0
    grid_nodes = (101, 101)
    grid_low = (-3.0, -6.0)
    grid_high = (3.0, 6.0)
    action_levels = (15,)

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        m, b, k = p
        return x[1], (u[0] - b * x[1] + k * x[0] * (1.0 - 0.6 * x[0] ** 2)) / m

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        if abs(x[0]) > 3.0:
            x[0], x[1] = math.copysign(3.0, x[0]), 0.0
        return 0

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -(abs(abs(x_next[0]) - 1.0) + 0.2 * abs(x_next[1]) + 0.05 * abs(u[0]))


@dataclass(frozen=True, kw_only=True)
class CartPole(OdePlant):
    """A pole on a driven cart, hanging at first, to be swung up and held; the track ends in walls.

    Unlike in `examples/cart_pole.py` no episode ends early: leaving the track would end the costs as well.
    """

    cart: float = 0.5  # mass [kg]
    pole: float = 0.2  # point mass [kg]
    length: float = 0.3  # [m]
    friction: float = 0.1  # of the cart [N s/m]

    name = "CartPole"
    state_names = ("position", "velocity", "angle", "angular velocity")
    state_units = ("m", "m/s", "rad", "rad/s")
    action_names = ("force",)
    action_units = ("N",)
    state_center = (0.0, 0.0, 0.0, 0.0)
    state_scale = (1.0, 3.0, math.pi, 15.0)
    action_low = (-5.0,)
    action_high = (5.0,)
    initial_state = (0.0, 0.0, 0.0, 0.0)
    reference_state = (0.0, 0.0, math.pi, 0.0)
    periodic = (False, False, True, False)
    reward_scale = 0.2

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        M, m, l, b = p  # noqa: E741
        sin, cos = math.sin(x[2]), math.cos(x[2])
        push = u[0] - b * x[1] + m * sin * (l * x[3] ** 2 + 9.81 * cos)
        acceleration = push / (M + m * sin**2)
        return x[1], acceleration, x[3], -(acceleration * cos + 9.81 * sin) / l

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        x[2] = wrap_angle(x[2])
        if abs(x[0]) > 1.5:
            x[0], x[1] = math.copysign(1.5, x[0]), 0.0
            return 1
        return 0

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -(0.5 * abs(x_next[0]) + 1.0 + math.cos(x_next[2]) + 0.01 * u[0] ** 2)
