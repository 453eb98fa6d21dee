"""MuJoCo tasks with a fixed base: Reacher, the inverted double pendulum, and the three-link reacher of ACER."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Observed, Vector, positions, velocities
from replaybench.envs.interface.signals import wrap_angle
from replaybench.envs.mujoco.locomotion import Array, Mask, control_cost
from replaybench.envs.mujoco.plant import MujocoPlant
from replaybench.runtime import elementwise
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream

_GOAL_RADIUS: Final = 0.2  # radius of the disc from which goals are drawn [m]
_FASTEST: Final = 10.0  # bound on the double pendulum's observed velocities and constraint force (v5)


@kernel
def _observe_reacher(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    for m in range(raw.shape[0]):
        if chosen[m]:
            for j in range(2):
                observed[m, j], observed[m, 2 + j] = math.cos(raw[m, j]), math.sin(raw[m, j])
                observed[m, 4 + j], observed[m, 6 + j] = raw[m, 2 + j], raw[m, 4 + j]
                observed[m, 8 + j] = raw[m, 8 + j] - raw[m, 11 + j]


@kernel
def _reward_reacher(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    for m in range(raw.shape[0]):
        if running[m]:
            x, y, z = raw[m, 8] - raw[m, 11], raw[m, 9] - raw[m, 12], raw[m, 10] - raw[m, 13]
            terms[m, 0] = -math.sqrt(x * x + y * y + z * z) * constants[0]
            terms[m, 1] = -control_cost(action, m) * constants[1]
            reward[m] = terms[m, 0] + terms[m, 1]


@dataclass(frozen=True, kw_only=True)
class MujocoReacher(MujocoPlant):
    """A two-link arm that has to bring its fingertip to a random goal (Gymnasium `Reacher-v5`)."""

    reward_dist_weight: float = 1.0  # per m
    reward_control_weight: float = 1.0

    name = "MujocoReacher"
    mjcf = "reacher.xml"
    camera = (0.65, 0.0, math.pi / 2, False)
    physics_step = 0.01
    episode_steps = 100
    frame_skip = 2
    observes = (
        *(Observed(f"cos {joint}", "1", 1.0) for joint in ("joint0", "joint1")),
        *(Observed(f"sin {joint}", "1", 1.0) for joint in ("joint0", "joint1")),
        *(Observed(f"target_{e}", "m") for e in "xy"),
        *(Observed(f"velocity of {joint}", "rad/s") for joint in ("joint0", "joint1")),
        *(Observed(f"fingertip from target {e}", "m") for e in "xy"),
    )
    actuated = ("joint0", "joint1")
    term_names = ("reward_dist", "reward_ctrl")
    observe = staticmethod(_observe_reacher)
    reward = staticmethod(_reward_reacher)

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        return data.qpos, data.qvel, data.body("fingertip").xpos, data.body("target").xpos

    def constants(self) -> tuple[float, ...]:
        return self.reward_dist_weight, self.reward_control_weight

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return random positions and velocities of the arm, and a resting goal at a random point of a disc."""
        position = qpos + 0.1 * (2.0 * draws.uniform(len(qpos), chosen) - 1.0)
        velocity = qvel + 0.005 * (2.0 * draws.uniform(len(qvel), chosen) - 1.0)
        velocity[:, -2:] = 0.0
        members, outside = np.flatnonzero(chosen), chosen.copy()
        while outside.any():  # rejection sampling: each member draws until its goal is inside
            again = outside[members]
            position[again, -2:] = _GOAL_RADIUS * (2.0 * draws.uniform(2, outside) - 1.0)
            outside[members] = np.hypot(position[:, -2], position[:, -1]) >= _GOAL_RADIUS
        return position, velocity


@kernel
def _observe_double(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    for m in range(raw.shape[0]):
        if chosen[m]:
            observed[m, 0] = raw[m, 0]
            for j in range(2):
                observed[m, 1 + j], observed[m, 3 + j] = math.sin(raw[m, 1 + j]), math.cos(raw[m, 1 + j])
            for i in range(4):  # three velocities and the force that holds the cart on its rail
                observed[m, 5 + i] = min(max(raw[m, 3 + i], -_FASTEST), _FASTEST)


@kernel
def _reward_double(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    for m in range(raw.shape[0]):
        if running[m]:
            x, height = raw[m, 7], raw[m, 9]
            terminated[m] = height <= 1.0
            terms[m, 0] = 0.0 if terminated[m] else constants[0]
            terms[m, 1] = -(0.01 * x**2 + (height - 2.0) ** 2)
            terms[m, 2] = -(1e-3 * raw[m, 4] ** 2 + 5e-3 * raw[m, 5] ** 2)
            reward[m] = terms[m, 0] + terms[m, 1] + terms[m, 2]


@dataclass(frozen=True, kw_only=True)
class MujocoInvertedDoublePendulum(MujocoPlant):
    """A cart that has to balance two poles (Gymnasium `InvertedDoublePendulum-v5`)."""

    healthy_reward: float = 10.0  # per control step
    reset_noise_scale: float = 0.1

    name = "MujocoInvertedDoublePendulum"
    mjcf = "inverted_double_pendulum.xml"
    camera = (3.0, 0.3, 0.1, False)
    physics_step = 0.01
    episode_steps = 5000
    frame_skip = 5
    observes = (
        Observed("slider", "m"),
        *(Observed(f"{function} {joint}", "1", 1.0) for function in ("sin", "cos") for joint in ("hinge", "hinge2")),
        Observed("velocity of slider", "m/s", _FASTEST),
        *(Observed(f"velocity of {joint}", "rad/s", _FASTEST) for joint in ("hinge", "hinge2")),
        Observed("constraint force on slider", "N", _FASTEST),
    )
    actuated = ("slider",)
    term_names = ("reward_survive", "distance_penalty", "velocity_penalty")
    velocity_noise = "normal"
    observe = staticmethod(_observe_double)
    reward = staticmethod(_reward_double)

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        return data.qpos, data.qvel, data.qfrc_constraint[:1], data.site_xpos[0]

    def constants(self) -> tuple[float, ...]:
        return (self.healthy_reward,)


LINKS: Final = (0.12, 0.10, 0.08)
"""Lengths of the links of the three-link reacher [m]."""

_JOINTS: Final = ("shoulder", "elbow", "wrist")
_NEAR: Final = 0.05  # largest distance that is rewarded [m] (Wang et al., 2017, appendix E.1)
_NEAREST, _FARTHEST = 0.05, 0.28  # distances of targets from the shoulder, both within reach [m]
_BEND: Final = 2.6  # largest angle of elbow and wrist at the start; their stops are at 2.7 [rad]
_TARGET: Final = 3  # index of the target's x in a state: three angles, target's x and y, velocities of all


@kernel
def _tip(raw: Array, m: int) -> tuple[float, float]:
    """Return the position of the arm's tip [m] from the joint angles, which are the first three columns of `raw`."""
    x = y = angle = 0.0
    for j in range(3):
        angle += raw[m, j]
        x += LINKS[j] * math.cos(angle)
        y += LINKS[j] * math.sin(angle)
    return x, y


@kernel
def _observe(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    for m in range(raw.shape[0]):
        if chosen[m]:
            for j in range(3):
                observed[m, j] = wrap_angle(raw[m, j])
                observed[m, 3 + j] = raw[m, 5 + j]
            x, y = _tip(raw, m)
            observed[m, 6], observed[m, 7] = raw[m, _TARGET] - x, raw[m, _TARGET + 1] - y


@kernel
def _reward(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    for m in range(raw.shape[0]):
        if running[m]:
            x, y = _tip(raw, m)
            terms[m, 0] = math.hypot(raw[m, _TARGET] - x, raw[m, _TARGET + 1] - y)
            reward[m] = 1.0 if terms[m, 0] <= _NEAR else 0.0


@dataclass(frozen=True, kw_only=True)
class AcerReacher3(MujocoPlant):
    """A planar three-link arm that has to bring its tip to a target (Wang et al., 2017, appendix E.1).

    The reward is 1 within 5 cm of the target, and 0 elsewhere. In each episode, the pose of the arm is random, and the
    target is random with a uniform density in a ring within reach. The eight observations are those of the paper:
    angles and velocities of the joints, and the target relative to the tip.
    """

    name = "AcerReacher3"
    mjcf = "reacher3.xml"
    camera = (0.75, 0.0, math.pi / 2, False)
    physics_step = 0.01
    episode_steps = 1000  # 500 control steps (Wang et al., 2017, appendix E.1)
    frame_skip = 2
    observes = (*positions(_JOINTS), *velocities(_JOINTS), *(Observed(f"target from tip {e}", "m", 1.0) for e in "xy"))
    actuated = _JOINTS
    term_names = ("distance",)
    observe = staticmethod(_observe)
    reward = staticmethod(_reward)
    update_every = 50  # the length of ACER's segments

    @property
    def path(self) -> Path:
        return Path(__file__).parent / "assets" / self.mjcf

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each state is a wrapped angle. Only the angle of the shoulder is wrapped, because it has no stops."""
        return (True, *(False,) * 7)

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a random pose of the arm, at rest, and a random target with a uniform density in a ring."""
        uniform = draws.uniform(5, chosen)
        position = np.zeros((len(uniform), 5))
        position[:, 0] = math.pi * (2.0 * uniform[:, 0] - 1.0)
        position[:, 1:3] = _BEND * (2.0 * uniform[:, 1:3] - 1.0)
        radius = np.sqrt(_NEAREST**2 + (_FARTHEST**2 - _NEAREST**2) * uniform[:, 3])
        turned = 2.0 * math.pi * uniform[:, 4]
        position[:, 3], position[:, 4] = radius * elementwise.cos(turned), radius * elementwise.sin(turned)
        return position, np.zeros((len(uniform), 5))
