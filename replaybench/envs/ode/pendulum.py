"""The pendulum swing-up of de Bruin et al. (2018, appendix A.1), in which a weak motor swings a pendulum upright.

The motor's largest torque is 0.75 of the largest torque of gravity. Every swing-up therefore reverses at least twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.plant import OdePlant, wrap_angle
from replaybench.runtime.trigonometry import sin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ANGLE_COST: Final = 50.0  # per rad away from upright (A.1: W₁)
VELOCITY_COST: Final = 1.0  # per rad/s (A.1: W₁)
VOLTAGE_COST: Final = 10.0  # per V (A.1: W₂)


@dataclass(frozen=True, kw_only=True)
class Pendulum(OdePlant):
    """A pendulum that a weak motor has to swing upright (de Bruin et al., 2018, appendix A.1).

    The equation of motion is `J θ̈ = −M g l sin θ − (b + K²/R) θ̇ + (K/R) u` with the voltage u. At the angle θ = 0 the
    pendulum hangs down, at ±π it is upright. The reward depends on the absolute value of the angle, as in the paper.
    The rewards at the angles π and −π are therefore equal. The velocity is normalised by 30 rad/s, the paper's bound.
    """

    inertia: float = 9.41e-4  # J [kg m²]
    mass: float = 5.5e-2  # M [kg]
    gravity: float = 9.81  # g [m/s²]
    length: float = 4.2e-2  # l [m]
    damping: float = 3e-6  # b [kg m²/s]
    torque_constant: float = 5.36e-2  # K [N m/A]
    resistance: float = 9.5  # R [V/A]

    name = "Pendulum"
    state_names = ("angle", "angular velocity")
    state_units = ("rad", "rad/s")
    action_names = ("voltage",)
    action_units = ("V",)

    state_center = (0.0, 0.0)
    state_scale = (math.pi, 30.0)
    action_low = (-3.0,)
    action_high = (3.0,)
    initial_state = (0.0, 0.0)
    reference_state = (math.pi, 0.0)
    periodic = (True, False)
    positive = ("inertia", "mass", "length", "resistance")
    reward_scale = 0.01
    # De Bruin et al. (2018) name the method but not its step. The authors' public benchmark uses two steps of 10 ms in
    # each control step of 20 ms.
    max_substep = 0.01

    # The swing-up never exceeds 10.1 rad/s: a wider grid would only be coarser at lower speeds.
    grid_nodes = (200, 201)
    grid_low = (-math.pi, -15.0)
    grid_high = (math.pi, 15.0)
    action_levels = (15,)
    refine_grid = True

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bounds on the absolute values of the normalised states.

        The bound on the angle is 1. The bound on the velocity is 1.5 times the largest speed that the pendulum can
        reach. Above the no-load speed `v` the motor brakes, and the energy falls. At `v` the energy is at most `J v²/2
        + M g l` with inertia J, mass M, gravity g and length l. Gravity can therefore add at most `2 M g l` to the
        kinetic energy.
        """
        back_emf = self.damping + self.torque_constant**2 / self.resistance
        drive = self.action_high[0] * self.torque_constant / self.resistance
        no_load = drive / back_emf if drive else 0.0
        fastest = math.sqrt(no_load**2 + 4 * abs(self.mass * self.gravity * self.length) / self.inertia)
        return 1.0, 1.5 * fastest / self.state_scale[1]

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, float]:
        """Return the angular velocity [rad/s] and the angular acceleration [rad/s²]."""
        J, M, g, l, b, K, R = p  # noqa: E741
        # Factors of constants stand together, so that they are computed once for a whole population.
        return x[1], -(M * g * l / J) * sin(x[0]) - (b + K * K / R) / J * x[1] + K / R / J * u[0]

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        """Return −(50 (π − |θ|) + |θ̇| + 10 |u|) for the next state (de Bruin et al., 2018, eq. 9)."""
        upright = math.pi - abs(x_next[0])
        cost: float = ANGLE_COST * upright + VELOCITY_COST * abs(x_next[1]) + VOLTAGE_COST * abs(u[0])
        return -cost

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        """Wrap the angle in the state `x` into [−π, π), in place."""
        x[0] = wrap_angle(x[0])
        return 0

    def draw(self, axes: Axes, state: Vector, action: Vector) -> None:
        """Draw the pendulum, and the voltage as an arc around its axle."""
        from matplotlib.patches import Arc, Circle

        tip = math.sin(state[0]), -math.cos(state[0])
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        axes.axis("off")
        axes.add_patch(Circle((0, 0), 1.0, fill=False, color="0.85", linestyle=(0, (2, 4)), linewidth=1))
        axes.plot([0], [1.0], marker="v", color="#55a868", markersize=9, zorder=4)  # the reference: upright
        axes.plot([0, tip[0]], [0, tip[1]], color="#4c72b0", linewidth=7, solid_capstyle="round")
        axes.add_patch(Circle(tip, 0.13, color="#30497a", zorder=3))
        axes.add_patch(Circle((0, 0), 0.06, color="0.25", zorder=3))
        start, sweep = -90.0, 160.0 * float(action[0])
        first, last = (start, start + sweep) if sweep > 0 else (start + sweep, start)
        axes.add_patch(Arc((0, 0), 0.6, 0.6, theta1=first, theta2=last, color="#dd8452", linewidth=5))


@dataclass(frozen=True, kw_only=True)
class PendulumDCSC(Pendulum):
    """The pendulum swing-up of de Bruin et al. (2018) with the inertia of the authors' public benchmark.

    Other papers of the same laboratory use this inertia, too. The paper itself prints 9.41e-4 kg m². With 1.91e-4
    kg m², a fall from upright reaches 21.8 rad/s. This explains why the paper normalises the velocity by 30 rad/s.
    """

    inertia: float = 1.91e-4  # J [kg m²]

    name = "PendulumDCSC"
    grid_nodes = (201, 151)
    grid_low = (-math.pi, -30.0)
    grid_high = (math.pi, 30.0)
