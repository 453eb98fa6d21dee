"""A plant of your own, given by a Python function: the level of two tanks. Run `python examples/two_tank.py`.

Studies name the plant by its file: `examples/two_tank.py:TwoTank`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from replaybench.extend import PythonPlant, Vector

WANTED = 0.15  # desired level of the second tank [m]


@dataclass(frozen=True, kw_only=True)
class TwoTank(PythonPlant):
    """Two tanks in series, which a pump fills and which drain by Torricelli's law.

    The first tank drains into the second one.
    """

    area: float = 1.5e-2  # area of each tank's bottom [m²]
    outlet: float = 5e-5  # area of each outlet [m²]
    rim: float = 0.4  # height of the tanks [m]

    name = "TwoTank"
    state_names = ("first level", "second level")
    state_units = ("m", "m")
    action_names = ("inflow",)
    action_units = ("m³/s",)
    state_center = (0.2, 0.2)
    state_scale = (0.2, 0.2)
    action_low = (0.0,)
    action_high = (1.5e-4,)
    initial_state = (0.1, 0.05)
    positive = ("area",)
    episode_seconds = 300.0
    frequency = 0.2
    discount = 0.97

    def start(self, uniform: Vector) -> Vector:
        return 0.05 + 0.2 * uniform  # levels between 5 and 25 cm

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
        def rates(_: float, level: Vector) -> Vector:
            out = self.outlet * np.sqrt(2 * 9.81 * np.maximum(level, 0.0))
            return np.array([u[0] - out[0], out[0] - out[1]]) / self.area

        after = np.maximum(solve_ivp(rates, (0.0, dt), x, rtol=1e-6).y[:, -1], 0.0)
        overflows = bool(after.max() > self.rim)
        return after, -abs(after[1] - WANTED) - 10.0 * overflows, overflows


def main() -> float:
    """Fill 10 pairs of tanks by a proportional controller, and return the mean error of the level at the end [m]."""
    from replaybench import PopulationEnv

    plant = TwoTank()
    env = PopulationEnv(plant, 10)
    observation, _ = env.reset(seed=1)
    holds = plant.outlet * np.sqrt(2 * 9.81 * WANTED)
    for _ in range(env.steps_per_episode):
        level = plant.denormalise_state(observation)[:, 1:]
        observation, reward, _, _, _ = env.step(plant.normalise_action(holds + 5e-4 * (WANTED - level)))
    error = float(-reward.mean())
    print(f"after {plant.episode_seconds:g} s the level is {1000 * error:.1f} mm off")
    return error


if __name__ == "__main__":
    main()
