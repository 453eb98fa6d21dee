"""The position control of a small DC servo with Coulomb friction, whose set point steps to random angles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.courses import Steps
from replaybench.envs.ode.plant import OdePlant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STOP: Final = math.pi  # end stops at ± this angle [rad]
ERROR_COST: Final = 10.0  # per rad between angle and set point
VELOCITY_COST: Final = 0.02  # per rad/s
VOLTAGE_COST: Final = 0.1  # per V
STOP_COST: Final = 10.0  # per step with a collision
CREEP: Final = 0.1  # speed at which friction reaches 71 % of its full torque [rad/s]


@dataclass(frozen=True, kw_only=True)
class Servo(OdePlant):
    """A DC motor that turns a disc to a set point, against friction.

    The equation of motion is `J θ̈ = (K/R) (u − K θ̇) − b θ̇ − T θ̇ / √(θ̇² + ε²)` with the voltage u. The last term is
    Coulomb friction, smoothed below ε = 0.1 rad/s. Friction needs 0.2 V to be overcome, so that a proportional
    controller stops short of its set point. A stop at ±π rad ends the motion.

    Inertia J, torque constant K and resistance R are those of a common servo for teaching, the Quanser QUBE-Servo 2
    with its disc. They are in its user manual: 8.4 Ω, 0.042 N m/A, a rotor and hub of 4.6e-6 kg m² and a disc of 53 g
    and 24.8 mm radius, 1.6e-5 kg m². The manual gives no friction. The values here are of the order of 0.2 V that such
    motors need to start.
    """

    inertia: float = 2.1e-5  # J [kg m²]
    torque_constant: float = 4.2e-2  # K [N m/A]
    resistance: float = 8.4  # R [V/A]
    damping: float = 5e-6  # b [N m s/rad]
    friction: float = 1e-3  # T [N m]

    name = "Servo"
    state_names = ("angle", "angular velocity", "set point")
    state_units = ("rad", "rad/s", "rad")
    action_names = ("voltage",)
    action_units = ("V",)

    state_center = (0.0, 0.0, 0.0)
    state_scale = (math.pi, 50.0, math.pi)
    action_low = (-3.0,)
    action_high = (3.0,)
    initial_state = (0.0, 0.0, 0.0)
    reference_state = (0.0, 0.0, 0.0)
    exogenous = {"set point": Steps(-1.5, 1.5, 1.0)}  # noqa: RUF012 (as plants declare everything)
    regulated = {"angle": "voltage"}  # noqa: RUF012
    set_points = {"angle": "set point"}  # noqa: RUF012
    limits = {"angle": (-2.0, 2.0)}  # noqa: RUF012
    positive = ("inertia", "resistance")
    reward_scale = 0.1
    max_substep = 0.00125

    # Set points are as close to each other as angles: the cost has its edge where both are equal.
    grid_nodes = (81, 41, 61)
    grid_low = (-2.0, -30.0, -1.5)
    grid_high = (2.0, 30.0, 1.5)
    action_levels = (13,)

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bounds on the absolute values of the normalised states. The speed is 1.5 times the no-load speed at most."""
        back_emf = self.damping + self.torque_constant**2 / self.resistance
        drive = self.action_high[0] * abs(self.torque_constant) / self.resistance
        fastest = drive / back_emf if drive else 1.0
        return 1.0, 1.5 * fastest / self.state_scale[1], 1.0

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, float]:
        """Return the angular velocity [rad/s] and the angular acceleration [rad/s²]."""
        J, K, R, b, T = p
        friction = T / J * x[1] / math.sqrt(x[1] * x[1] + CREEP * CREEP)
        return x[1], K / R / J * u[0] - (b + K * K / R) / J * x[1] - friction

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        """Return −(10 |θ − r| + 0.02 |θ̇| + 0.1 |u|) for the next state and the set point r that held in the step.

        A collision with a stop costs 10 more.
        """
        error = abs(x_next[0] - x_next[2])
        cost: float = ERROR_COST * error + VELOCITY_COST * abs(x_next[1]) + VOLTAGE_COST * abs(u[0])
        return -(cost + STOP_COST) if event else -cost

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        """Hold the disc at a stop that it has passed, and return whether it has."""
        if abs(x[0]) < STOP:
            return 0
        x[0], x[1] = math.copysign(STOP, x[0]), 0.0
        return 1

    def draw(self, axes: Axes, state: Vector, action: Vector) -> None:
        """Draw the disc with a mark at its angle, the set point as a triangle, the stops, and the voltage as an arc."""
        from matplotlib.patches import Arc, Circle

        def place(angle: float, radius: float) -> tuple[float, float]:
            return radius * math.sin(angle), radius * math.cos(angle)

        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        axes.axis("off")
        axes.add_patch(Circle((0, 0), 0.9, facecolor="0.93", edgecolor="0.55"))
        axes.plot(*np.transpose([place(state[0], 0.25), place(state[0], 0.9)]), color="#4c72b0", linewidth=7)
        axes.plot(*place(state[2], 1.05), marker=(3, 0, 180 - math.degrees(state[2])), color="#55a868", markersize=12)
        axes.plot(*np.transpose([place(STOP, 0.95), place(STOP, 1.15)]), color="0.3", linewidth=4)
        axes.add_patch(Circle((0, 0), 0.06, color="0.25", zorder=3))
        start, sweep = 90.0, -80.0 * float(action[0])
        first, last = (start, start + sweep) if sweep > 0 else (start + sweep, start)
        axes.add_patch(Arc((0, 0), 0.4, 0.4, theta1=first, theta2=last, color="#dd8452", linewidth=5))
