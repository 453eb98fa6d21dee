"""Roboschool's reacher in PyBullet: an arm of two links has to bring its tip to a random target in the plane."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.engine import INTERVAL, BulletPlant, Floats, Model, Readings
from replaybench.runtime import elementwise

ELBOW: Final = 3.0  # largest angle of the elbow [rad]
SPEED_SCALE: Final = 0.1  # factor on joint speeds [s/rad], in observations and in the cost of electricity
DISTANCE: Final = -100.0  # per m
ELECTRICITY: Final = -0.1  # per torque times speed, both normalised
STALL_TORQUE: Final = -0.01  # per normalised torque
STUCK: Final = -0.1  # while the elbow is at an end of its range


@dataclass(frozen=True, kw_only=True)
class BulletReacher(BulletPlant):
    """An arm of two links of 0.1 m that has to bring its tip to a random target, without gravity (Roboschool).

    No state is terminal, and an episode has 150 control steps. Observations contain sine and cosine of the shoulder's
    angle θ. PyBullet's port has sine and cosine of 1 − 2 θ instead.
    """

    target_range: float = 0.27  # largest distance of the target from the shoulder, along x and y [m]
    start_noise: float = 3.14  # largest angle of the joints at the start [rad]

    name = "BulletReacher"
    state_names = (
        *("target x", "target y", "tip from target x", "tip from target y"),
        *("cosine of shoulder", "sine of shoulder", "shoulder speed", "elbow angle", "elbow speed"),
    )
    state_units = ("m", "m", "m", "m", "1", "1", "rad/s", "rad", "rad/s")
    state_center = (0.0,) * 9
    state_scale = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1 / SPEED_SCALE, ELBOW, 1 / SPEED_SCALE)
    action_names = ("shoulder torque", "elbow torque")
    action_units = ("N m", "N m")
    action_low = (-0.05, -0.05)
    action_high = (0.05, 0.05)

    model = Model(
        file="reacher.xml", floor=False, gravity=0.0, joints=("joint0", "joint1"), motors=2,
        placed=("target_x", "target_y"), parts=("fingertip",), still=("target",), seen=("body0", "body1"),
        camera=(0.65, 0.0, -89.0), look_at=(0.0, 0.0, 0.0),
    )  # fmt: skip
    terms = ("progress", "electricity", "stuck_joint")
    episode_seconds = 150 * INTERVAL

    @property
    def observation_limit(self) -> tuple[float, ...]:
        # Twice the reach of the arm, and Bullet's own limit of 100 rad/s.
        return (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 2.0, 10.0)

    def starts(self, uniform: Floats) -> Floats:
        spread = [self.start_noise, self.start_noise, self.target_range, self.target_range]
        return (2.0 * uniform - 1.0) * spread

    def observe(self, now: Readings) -> Floats:
        (shoulder, elbow), speed, target = now.position.T, now.velocity.T, now.place[:, 1]
        away = now.place[:, 0] - target
        states = [
            target[:, 0], target[:, 1], away[:, 0], away[:, 1], elementwise.cos(shoulder), elementwise.sin(shoulder),
            speed[0], elbow,
        ]  # fmt: skip
        return np.stack([*states, speed[1]], axis=1)

    def reward(self, before: Readings, now: Readings, action: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the three terms `[M, 3]` of each arm's reward, and False `[M]`, because no state is terminal.

        The terms are `100 (d − d′)`, `−0.1 Σ|a ω/10| − 0.01 Σ|a|` and `−0.1 s`. Here d and d′ [m] are the tip's
        distances from the target before and after the step, a are normalised torques, and ω joint speeds [rad/s]. s is
        1 while the elbow is within 1 % of an end of its range, and 0 otherwise.
        """
        power = np.abs(action * (SPEED_SCALE * now.velocity)).sum(axis=1)
        stuck = np.abs(np.abs(now.position[:, 1] / ELBOW) - 1.0) < 0.01
        terms = np.stack(
            [
                DISTANCE * (_distance(now) - _distance(before)),
                ELECTRICITY * power + STALL_TORQUE * np.abs(action).sum(axis=1),
                np.where(stuck, STUCK, 0.0),
            ],
            axis=1,
        )
        return terms, np.zeros(len(terms), np.bool_)


def _distance(now: Readings) -> Floats:
    away = now.place[:, 0] - now.place[:, 1]
    distance: Floats = np.sqrt(np.square(away).sum(axis=1))
    return distance
