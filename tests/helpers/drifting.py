"""A plant whose episodes end early and often: a mass on a table, which may fall off."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from replaybench.envs.interface.plant import Params, Vector
from replaybench.envs.ode.plant import OdePlant


@dataclass(frozen=True, kw_only=True)
class Drifting(OdePlant):
    """A pushed mass in the middle of a table; told by its return, updated every 7 steps unless asked otherwise."""

    drag: float = 1.0  # [1/s]

    name = "Drifting"
    state_names = ("position", "velocity")
    state_units = ("m", "m/s")
    action_names = ("push",)
    action_units = ("m/s²",)
    state_center = (0.0, 0.0)
    state_scale = (1.0, 1.0)
    action_low = (-3.0,)
    action_high = (3.0,)
    initial_state = (0.0, 0.0)
    reference_state = (0.0, 0.0)
    episode_seconds = 2.0
    frequency = 10.0
    discount = 0.9
    update_every = 7
    episode_metric: ClassVar[Literal["return", "mean reward"]] = "return"
    reference_episodes = 20

    @staticmethod
    def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, float]:
        return x[1], u[0] - p[0] * x[1]

    @staticmethod
    def reward(x: Vector, u: Vector, x_next: Vector, event: int, p: Params) -> float:
        return float(1.0 - x_next[0] ** 2 - 0.01 * u[0] ** 2)

    @staticmethod
    def terminated(x_next: Vector, event: int, p: Params) -> bool:
        return bool(abs(x_next[0]) > 0.3)
