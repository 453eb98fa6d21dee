"""Hopper, Walker2d, HalfCheetah and Ant of Roboschool in PyBullet, with a reward for progress towards a flag.

De Bruin et al. (2018, section 8.5) use these tasks.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.engine import INTERVAL, BulletPlant, Floats, Model, Readings
from replaybench.runtime import elementwise
from replaybench.runtime.errors import UserError

TARGET: Final = 1000.0  # distance of the flag along x [m]
SPEED_SCALE: Final = 0.1  # factor on joint speeds [s/rad], in observations and in the cost of electricity
ELECTRICITY: Final = -2.0  # per normalised torque times normalised speed, averaged over motors
STALL_TORQUE: Final = -0.1  # per squared normalised torque, averaged over motors
AT_LIMIT: Final = 0.99  # of the way from the middle of a joint's range to its end
JOINT_AT_LIMIT: Final = -0.2  # per joint
FOOT_COLLISION: Final = -1.0  # per foot
_GENERAL: Final = (  # name, unit, scale
    ("height", "m", 1.0), ("sine of bearing", "1", 1.0), ("cosine of bearing", "1", 1.0),
    ("forward velocity", "m/s", 1 / 0.3), ("sideways velocity", "m/s", 1 / 0.3), ("vertical velocity", "m/s", 1 / 0.3),
    ("roll", "rad", 1.0), ("pitch", "rad", 1.0),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Walker(BulletPlant):
    """The base class of the four robots that walk, run or hop towards a flag.

    Observations are the height relative to the start, the bearing of the flag, the velocity in axes that turn with the
    yaw angle, and the roll and pitch angles. They also contain the angle of each joint relative to its range, the speed
    of each joint, and which feet touch the floor. All normalised observations are clipped to ±5. Contacts are those at
    the current control step, whereas Roboschool returns the contacts at the previous control step.

    A subclass declares the class attributes that have no values here, and may override `alive`.
    """

    substeps: float = 4.0
    start_noise: float = 0.1  # largest angle of the joints at the start [rad]
    place: str = "links"  # progress is of the mean position of all "links", as in Roboschool, or of the "bodies"

    file: ClassVar[str]
    joints: ClassVar[dict[str, tuple[float, float, float]]]
    """Lower and upper end [rad] of each joint's range, and its largest torque [N m]."""
    links: ClassVar[tuple[str, ...]]
    """Names of the bodies except the torso."""
    helpers: ClassVar[tuple[str, ...]]
    """Names of the massless links that Bullet inserts, one for each slide and hinge of the model."""
    feet: ClassVar[tuple[str, ...]]
    start_height: ClassVar[float]
    """Height of the torso at the start [m]."""

    terms = ("alive", "progress", "electricity", "joints_at_limit", "feet_collision")
    episode_seconds = 1000 * INTERVAL

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        low, high, torque = np.array(list(cls.joints.values())).T
        moving = [name.removesuffix("_joint") for name in cls.joints]
        signals = [*_GENERAL]
        for name, half in zip(moving, (high - low) / 2, strict=True):
            signals += [(f"{name} angle", "rad", half), (f"{name} speed", "rad/s", 1 / SPEED_SCALE)]
        signals += [(f"{name} contact", "1", 1.0) for name in cls.feet]
        cls.state_names = tuple(name for name, _, _ in signals)
        cls.state_units = tuple(unit for _, unit, _ in signals)
        cls.state_scale = tuple(float(scale) for _, _, scale in signals)
        center = np.zeros(len(signals))
        center[0] = cls.start_height
        center[len(_GENERAL) : len(_GENERAL) + 2 * len(moving) : 2] = (low + high) / 2
        cls.state_center = tuple(center.tolist())
        cls.action_names = tuple(f"{name} torque" for name in moving)
        cls.action_units = ("N m",) * len(moving)
        cls.action_low, cls.action_high = tuple((-torque).tolist()), tuple(torque.tolist())
        cls.model = Model(
            file=cls.file, floor=True, gravity=9.8, joints=tuple(cls.joints), motors=len(cls.joints),
            parts=(*cls.links, *cls.helpers), root="torso", feet=cls.feet,
        )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.place not in ("links", "bodies"):
            raise UserError(f"{self.name}: place is {self.place!r}; give links or bodies")

    @property
    def _counted(self) -> int:
        return len(self.links) + (len(self.helpers) if self.place == "links" else 0)

    @property
    def observation_limit(self) -> tuple[float, ...]:
        return (5.0,) * len(self.state_names)

    def starts(self, uniform: Floats) -> Floats:
        return self.start_noise * (2.0 * uniform - 1.0)

    def observe(self, now: Readings) -> Floats:
        yaw = now.attitude[:, 2]
        x, y = _middle(now, self._counted)
        bearing = elementwise.arctan2(-y, TARGET - x) - yaw
        cosine, sine = elementwise.cos(yaw), elementwise.sin(yaw)
        forward = cosine * now.speed[:, 0] + sine * now.speed[:, 1]
        sideways = cosine * now.speed[:, 1] - sine * now.speed[:, 0]
        turned = [elementwise.sin(bearing), elementwise.cos(bearing)]
        general = [now.root[:, 2], *turned, forward, sideways, now.speed[:, 2]]
        joints = np.stack([now.position, now.velocity], axis=2).reshape(len(yaw), -1)
        return np.concatenate([np.stack(general, axis=1), now.attitude[:, :2], joints, now.on_ground], axis=1)

    def reward(self, before: Readings, now: Readings, action: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the five terms `[M, 5]` of each robot's reward, and whether the robot has fallen, `[M]`.

        The terms are ±1 (+1 unless fallen), `(d − d′)/0.0165`, `−2 mean|a q̇/10| − 0.1 mean a²`, `−0.2 n` and `−c`.
        Here d and d′ [m] are the distances from the flag before and after the step, a are normalised torques, and q̇
        joint speeds [rad/s]. n is the number of joints at an end of their range, and c is the number of feet that touch
        anything but the floor.
        """
        alive = self.alive(now)
        count = len(self.joints)
        power = np.abs(action * (SPEED_SCALE * now.velocity)).sum(axis=1) / count
        heat = np.square(action).sum(axis=1) / count
        low, high, _ = np.array(list(self.joints.values())).T
        relative = (now.position - (low + high) / 2) / ((high - low) / 2)
        terms = np.stack(
            [
                np.where(alive, 1.0, -1.0),
                (_distance(before, self._counted) - _distance(now, self._counted)) / INTERVAL,
                ELECTRICITY * power + STALL_TORQUE * heat,
                JOINT_AT_LIMIT * (np.abs(relative) > AT_LIMIT).sum(axis=1),
                FOOT_COLLISION * now.on_other.sum(axis=1),
            ],
            axis=1,
        )
        return terms, ~alive

    def alive(self, now: Readings) -> NDArray[np.bool_]:
        """Return whether each robot still stands, bool `[M]`: by default above 0.8 m and leaning by less than 1 rad."""
        upright: NDArray[np.bool_] = (now.root[:, 2] > 0.8) & (np.abs(now.attitude[:, 1]) < 1.0)
        return upright


def _middle(now: Readings, parts: int) -> tuple[Floats, Floats]:
    """Return x and y `[M]` of the mean position of the torso and the first `parts` links [m].

    Roboschool (`load_robot_joints`, `calc_state`) averages over all links, including massless helper links.
    """
    total = now.root[:, :2] + now.place[:, :parts, :2].sum(axis=1)
    return total[:, 0] / (parts + 1), total[:, 1] / (parts + 1)


def _distance(now: Readings, parts: int) -> Floats:
    x, y = _middle(now, parts)
    distance: Floats = np.hypot(TARGET - x, y)
    return distance


def _helpers(*numbers: int) -> tuple[str, ...]:
    return tuple(f"link0_{number}" for number in numbers)


@dataclass(frozen=True, kw_only=True)
class BulletHopper(Walker):
    """A robot with one leg, which falls if its torso is at 0.8 m or below, or leans by 1 rad (Roboschool)."""

    name = "BulletHopper"
    file = "hopper.xml"
    joints: ClassVar = {
        "thigh_joint": (math.radians(-150), 0.0, 0.75 * 100),
        "leg_joint": (math.radians(-150), 0.0, 0.75 * 100),
        "foot_joint": (math.radians(-45), math.radians(45), 0.75 * 100),
    }
    links = ("thigh", "leg", "foot")
    helpers = _helpers(2, 3, 4, 6, 8, 10)
    feet = ("foot",)
    start_height = 1.25


@dataclass(frozen=True, kw_only=True)
class BulletWalker2d(Walker):
    """A robot with two legs, which falls if its torso is at 0.8 m or below, or leans by 1 rad (Roboschool)."""

    name = "BulletWalker2d"
    file = "walker2d.xml"
    joints: ClassVar = {
        "thigh_joint": (math.radians(-150), 0.0, 0.4 * 100),
        "leg_joint": (math.radians(-150), 0.0, 0.4 * 100),
        "foot_joint": (math.radians(-45), math.radians(45), 0.4 * 30),
        "thigh_left_joint": (math.radians(-150), 0.0, 0.4 * 100),
        "leg_left_joint": (math.radians(-150), 0.0, 0.4 * 100),
        "foot_left_joint": (math.radians(-45), math.radians(45), 0.4 * 30),
    }
    links = ("thigh", "leg", "foot", "thigh_left", "leg_left", "foot_left")
    helpers = _helpers(2, 3, 4, 6, 8, 10, 12, 14, 16)
    feet = ("foot", "foot_left")
    start_height = 1.25


@dataclass(frozen=True, kw_only=True)
class BulletHalfCheetah(Walker):
    """Half a cheetah, which falls if it leans by 1 rad, or if a shin or thigh touches the floor (Roboschool)."""

    name = "BulletHalfCheetah"
    file = "half_cheetah.xml"
    joints: ClassVar = {
        "bthigh": (-0.52, 1.05, 0.9 * 120),
        "bshin": (-0.785, 0.785, 0.9 * 90),
        "bfoot": (-0.4, 0.785, 0.9 * 60),
        "fthigh": (-1.5, 0.8, 0.9 * 140),
        "fshin": (-1.2, 1.1, 0.9 * 60),
        "ffoot": (-3.1, -0.3, 0.9 * 30),
    }
    links = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
    helpers = _helpers(2, 3, 4, 6, 8, 10, 12, 14, 16)
    feet = ("ffoot", "fshin", "fthigh", "bfoot", "bshin", "bthigh")
    start_height = 0.7

    def alive(self, now: Readings) -> NDArray[np.bool_]:
        others = [place for place, name in enumerate(self.feet) if not name.endswith("foot")]
        leaning = ~(np.abs(now.attitude[:, 1]) < 1.0)
        on_knees: NDArray[np.bool_] = leaning | now.on_ground[:, others].any(axis=1)
        return ~on_knees


@dataclass(frozen=True, kw_only=True)
class BulletAnt(Walker):
    """A robot with four legs, which falls if the centre of its torso is at 0.26 m or below (Roboschool)."""

    name = "BulletAnt"
    file = "ant.xml"
    joints: ClassVar = {
        f"{joint}_{leg}": (math.radians(low), math.radians(high), 2.5 * 100)
        for leg, ankle in ((1, (30, 100)), (2, (-100, -30)), (3, (-100, -30)), (4, (30, 100)))
        for joint, (low, high) in (("hip", (-40, 40)), ("ankle", ankle))
    }
    links = tuple(
        part
        for side, number in (("front_left", 1), ("front_right", 2), ("left_back", 3), ("right_back", 4))
        for part in (f"{side}_leg", f"aux_{number}", f"{side}_foot")
    )
    helpers = _helpers(3, 5, 8, 10, 13, 15, 18, 20)
    feet = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
    start_height = 0.75

    def alive(self, now: Readings) -> NDArray[np.bool_]:
        up: NDArray[np.bool_] = now.root[:, 2] > 0.26
        return up
