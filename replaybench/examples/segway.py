"""A plant of your own, given by equations: a two-wheeled robot must not fall. Run `python examples/segway.py`.

Studies name the plant by its file: `examples/segway.py:Segway`.
"""

import math
from dataclasses import dataclass

import numpy as np

from replaybench.extend import OdePlant, Params, Vector


@dataclass(frozen=True, kw_only=True)
class Segway(OdePlant):
    """A body on two wheels, driven by the torque between the body and the axle.

    The tilt is 0 when the body is upright, and positive when it leans forwards.
    """

    body: float = 1.0  # mass of the body [kg]
    wheels: float = 0.3  # mass, including the inertia of their rotation [kg]
    height: float = 0.2  # height of the body's centre of mass above the axle [m]
    inertia: float = 0.02  # moment of inertia of the body about its centre of mass [kg m²]
    radius: float = 0.05  # radius of the wheels [m]
    friction: float = 0.5  # rolling friction [N s/m]

    name = "Segway"
    state_names = ("position", "velocity", "tilt", "tilt rate")
    state_units = ("m", "m/s", "rad", "rad/s")
    action_names = ("torque",)
    action_units = ("N m",)
    state_center = (0.0, 0.0, 0.0, 0.0)
    state_scale = (1.0, 2.0, 0.5, 5.0)
    action_low = (-0.4,)
    action_high = (0.4,)
    initial_state = (0.0, 0.0, 0.1, 0.0)
    reference_state = (0.0, 0.0, 0.0, 0.0)
    positive = ("body", "wheels", "height", "inertia", "radius")

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        M, m, l, J, r, b = p  # noqa: E741
        sin, cos = math.sin(x[2]), math.cos(x[2])
        push = u[0] / r - b * x[1] + M * l * sin * x[3] ** 2
        topple = M * 9.81 * l * sin - u[0]
        mass, coupling, turning = M + m, M * l * cos, J + M * l**2
        determinant = mass * turning - coupling**2
        acceleration = (turning * push - coupling * topple) / determinant
        return x[1], acceleration, x[3], (mass * topple - coupling * push) / determinant

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return 1.0 - float(x_next[0] ** 2 + 4 * x_next[2] ** 2 + u[0] ** 2)  # positive near the upright position

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return bool(abs(x_next[2]) > 0.6 or abs(x_next[0]) > 1.0)  # the robot has fallen, or has driven away


def main() -> float:
    """Balance 1000 robots with noisy sensors by state feedback, and return the share that stands at the end."""
    from replaybench import PopulationEnv

    plant = Segway()
    env = PopulationEnv(plant, 1000, frequency=100, sensor_noise=0.01)
    observation, _ = env.reset(seed=1)
    for _ in range(env.steps_per_episode):
        torque = plant.denormalise_state(observation) @ np.array([0.15, 0.3, 2.5, 0.35])
        observation, _, terminated, _, _ = env.step(plant.normalise_action(torque[:, None]))
    standing = float(1 - terminated.mean())
    print(f"{standing:.0%} of 1000 robots stand after {plant.episode_seconds:g} s")
    return standing


if __name__ == "__main__":
    main()
