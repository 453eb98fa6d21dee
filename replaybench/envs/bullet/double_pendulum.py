"""Roboschool's inverted double pendulum in PyBullet, in which a cart has to keep two poles upright."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.engine import INTERVAL, BulletPlant, Floats, Model, Readings
from replaybench.runtime.elementwise import cos, sin

POLE: Final = 0.6  # length of each pole [m]
FASTEST: Final = 100.0  # Bullet's limit on joint speeds [rad/s, m/s]


@dataclass(frozen=True, kw_only=True)
class BulletInvertedDoublePendulum(BulletPlant):
    """A cart that has to keep two poles of 0.6 m upright on ±1 m of rail (Roboschool).

    The episode ends if the tip of the upper pole is at a height of 1 m or below.
    """

    start_noise: float = 0.1  # largest angle of the poles at the start [rad]

    name = "BulletInvertedDoublePendulum"
    state_names = (
        *("cart position", "cart velocity", "upper pole position"),
        *("cosine of lower angle", "sine of lower angle", "lower speed"),
        *("cosine of upper angle", "sine of upper angle", "upper speed"),
    )
    state_units = ("m", "m/s", "m", "1", "1", "rad/s", "1", "1", "rad/s")
    state_center = (0.0,) * 9
    state_scale = (1.0,) * 9
    action_names = ("force",)
    action_units = ("N",)
    action_low = (-200.0,)
    action_high = (200.0,)

    model = Model(
        file="inverted_double_pendulum.xml", floor=False, gravity=9.8, joints=("slider", "hinge", "hinge2"), motors=1,
        seen=("cart", "pole", "pole2"), camera=(2.6, 0.0, -10.0), look_at=(0.0, 0.0, 0.6),
    )  # fmt: skip
    terms = ("alive", "distance")
    episode_seconds = 1000 * INTERVAL

    @property
    def observation_limit(self) -> tuple[float, ...]:
        return (3.0, FASTEST, 5.0, 1.0, 1.0, FASTEST, 1.0, 1.0, FASTEST)

    def starts(self, uniform: Floats) -> Floats:
        return self.start_noise * (2.0 * uniform - 1.0) * [0.0, 1.0, 1.0]

    def observe(self, now: Readings) -> Floats:
        (cart, lower, upper), speed = now.position.T, now.velocity.T
        pole, _ = _upper_pole(now)
        return np.stack(  # the upper angle is the angle between the poles
            [cart, speed[0], pole, cos(lower), sin(lower), speed[1], cos(upper), sin(upper), speed[2]], axis=1
        )

    def reward(self, before: Readings, now: Readings, action: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the two terms `[M, 2]` of each robot's reward, and whether its poles have fallen, `[M]`.

        The terms are 10 and −0.01 x² − (y + 0.3 − 2)², where x and y [m] are the position of the upper pole's centre.
        The reward of upright poles is 9.36.
        """
        x, y = _upper_pole(now)
        tip = y + POLE / 2
        terms = np.stack([np.full(len(x), 10.0), -0.01 * x**2 - (tip - 2.0) ** 2], axis=1)
        return terms, ~(tip > 1.0)


def _upper_pole(now: Readings) -> tuple[Floats, Floats]:
    """Compute x and y `[M]` of the upper pole's centre [m]. PyBullet would need more time for this."""
    cart, lower, upper = now.position.T
    x = cart + POLE * (sin(lower) + sin(lower + upper) / 2)
    y = POLE * (cos(lower) + cos(lower + upper) / 2)
    return x, y
