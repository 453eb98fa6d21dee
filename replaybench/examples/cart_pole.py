"""A plant of your own, given by equations: a cart swings up a pole. Run `python examples/cart_pole.py`.

Studies name the plant by its file: `examples/cart_pole.py:CartPole`.
"""

import math
from dataclasses import dataclass

import numpy as np

from replaybench.extend import OdePlant, Params, Vector, wrap_angle


@dataclass(frozen=True, kw_only=True)
class CartPole(OdePlant):
    """A cart that has to swing up a pole, which is a point mass on a massless rod."""

    cart: float = 0.5  # mass [kg]
    pole: float = 0.2  # mass [kg]
    length: float = 0.3  # length of the pole [m]
    friction: float = 0.1  # friction of the cart [N s/m]

    name = "CartPole"
    state_names = ("position", "velocity", "angle", "angular velocity")  # the angle is 0 hanging, ±π upright
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

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:
        M, m, l, b = p  # noqa: E741
        sin, cos = math.sin(x[2]), math.cos(x[2])
        push = u[0] - b * x[1] + m * sin * (l * x[3] ** 2 + 9.81 * cos)
        acceleration = push / (M + m * sin**2)
        return x[1], acceleration, x[3], -(acceleration * cos + 9.81 * sin) / l

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return -float(abs(x_next[0]) + 1 + math.cos(x_next[2]) + 0.01 * u[0] ** 2)

    @staticmethod
    def project(x: Vector, p: Params) -> int:
        x[2] = wrap_angle(x[2])
        return 0

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return bool(abs(x_next[0]) > 2.4)  # the cart has left its track


def main() -> None:
    """Swing up 1000 poles with noisy sensors, by adding energy up to that of the upright position."""
    from replaybench import PopulationEnv

    plant = CartPole()
    env = PopulationEnv(plant, 1000, frequency=100, sensor_noise=0.01)
    observation, _ = env.reset(seed=1)
    observation += 0.02  # from exact rest the controller would not start
    highest = np.zeros(env.num_envs)
    for _ in range(env.steps_per_episode):
        position, velocity, angle, spin = plant.denormalise_state(observation).T
        missing = 9.81 * (1 + np.cos(angle)) - plant.length * spin**2 / 2
        force = -missing * spin * np.cos(angle) - 3.0 * position - 0.5 * velocity
        observation, _, terminated, _, _ = env.step(plant.normalise_action(force[:, None]))
        highest = np.maximum(highest, abs(angle))
    print(f"{np.mean(highest > 3):.0%} came within 0.14 rad of upright, {terminated.mean():.0%} left the track")


if __name__ == "__main__":
    main()
