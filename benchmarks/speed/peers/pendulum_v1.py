"""Gymnasium's Pendulum-v1 as a plant of equations, with what RLtools' own pendulum shows and where it starts."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from replaybench.envs.interface.engine import Engine
from replaybench.envs.ode.plant import OdePlant, RungeKutta


class AnywhereStart(RungeKutta):
    """Members begin at any angle, at up to 1 rad/s either way."""

    def restart(self, chosen: Any, draws: Any) -> None:
        """Draw angle and velocity of the chosen members from their own streams."""
        drawn = 2 * draws.uniform(2, chosen) - 1
        angle = math.pi * drawn[:, 0]
        self.observed[chosen] = np.stack([np.cos(angle), np.sin(angle), drawn[:, 1]], axis=1)


@dataclass(frozen=True, kw_only=True)
class PendulumV1(OdePlant):
    """A rod on an axle, angle 0 upright: θ̈ = 3g / (2l) sin θ + 3 / (m l²) u, |θ̇| ≤ 8 rad/s.

    Its state is what is observed, (cos θ, sin θ, θ̇). One Runge-Kutta step of 50 ms stands where Gymnasium takes one of
    Euler's; the reward −(θ² + 0.1 θ̇² + 0.001 u²) is that of the state before the step, as there.
    """

    mass: float = 1.0  # m [kg]
    length: float = 1.0  # l [m]
    gravity: float = 10.0  # g [m/s²]

    name = "PendulumV1"
    state_names = ("cosine", "sine", "angular velocity")
    state_units = ("", "", "rad/s")
    action_names = ("torque",)
    action_units = ("N m",)

    state_center = (0.0, 0.0, 0.0)
    state_scale = (1.0, 1.0, 1.0)
    action_low = (-2.0,)
    action_high = (2.0,)
    initial_state = (-1.0, 0.0, 0.0)  # of what asks for one: hanging
    reference_state = (1.0, 0.0, 0.0)
    max_substep = 0.05
    positive = ("mass", "length")

    episode_seconds = 10.0
    frequency = 20.0
    discount = 0.99
    episode_metric = "return"

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return the engine that starts anywhere."""
        return AnywhereStart(self, num_envs, frequency)

    @staticmethod
    def rhs(x: Any, u: Any, p: Any) -> tuple[float, float, float]:
        """Return the rates of cosine, sine and velocity."""
        m, l, g = p  # noqa: E741
        return -x[1] * x[2], x[0] * x[2], 3 * g / (2 * l) * x[1] + 3 / (m * l * l) * u[0]

    @staticmethod
    def reward(x: Any, u: Any, x_next: Any, event: int, p: Any) -> float:
        """Return −(θ² + 0.1 θ̇² + 0.001 u²)."""
        angle = math.atan2(x[1], x[0])
        return -(angle * angle + 0.1 * x[2] * x[2] + 0.001 * u[0] * u[0])

    @staticmethod
    def project(x: Any, p: Any) -> int:
        """Bring cosine and sine back to the unit circle and the velocity within its bound."""
        norm = math.sqrt(x[0] * x[0] + x[1] * x[1])
        x[0] /= norm
        x[1] /= norm
        x[2] = min(max(x[2], -8.0), 8.0)
        return 0
