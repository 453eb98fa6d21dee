"""The continuous-control tasks of ACER (Wang et al. 2017, appendix E.1), as far as dm_control has them.

Models, rewards and starts are dm_control's, which publishes its authors' later form of these tasks: its rewards lie in
[0, 1], and falling ends no episode. Each task says where it departs from the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from replaybench.envs.dm_suite.plant import Signals, SuitePlant


def _angles(joints: Iterable[str]) -> Signals:
    return tuple((joint, "rad") for joint in joints)


def _rates(joints: Iterable[str]) -> Signals:
    return tuple((f"velocity of {joint}", "rad/s") for joint in joints)


def _along(what: str, unit: str, axes: str = "xyz") -> Signals:
    return tuple((f"{what} {axis}", unit) for axis in axes)


_CHEETAH: Final = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
_FISH: Final = ("tail1", "tail_twist", "tail2", "finright_roll", "finright_pitch", "finleft_roll", "finleft_pitch")
_WALKER: Final = ("right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle")
_WALKER_BODIES: Final = ("torso", "right_thigh", "right_leg", "right_foot", "left_thigh", "left_leg", "left_foot")
_LEG: Final = ("hip_x", "hip_z", "hip_y", "knee", "ankle_y", "ankle_x")
_ARM: Final = ("shoulder1", "shoulder2", "elbow")
_HUMANOID: Final = (
    *("abdomen_z", "abdomen_y", "abdomen_x"),
    *(f"{side}_{joint}" for joints in (_LEG, _ARM) for side in ("right", "left") for joint in joints),
)
_HUMANOID_MOTORS: Final = (
    *("abdomen_y", "abdomen_z", "abdomen_x"),
    *(
        f"{side}_{joint}"
        for joints in (("hip_x", "hip_z", "hip_y", "knee", "ankle_x", "ankle_y"), _ARM)
        for side in ("right", "left")
        for joint in joints
    ),
)


@dataclass(frozen=True, kw_only=True)
class AcerCartpole(SuitePlant):
    """Swing a pole up on a cart; rewarded only while upright in the middle of the track.

    The pole starts hanging, up to small noise, where the paper's starts at any angle; the middle is ±0.25 m, not ±0.05.
    """

    name = "AcerCartpole"
    task = ("cartpole", "swingup_sparse")
    physics_step = 0.01
    frequency = 100.0
    shows = (
        *(("slider", "m"), ("cos hinge", "1"), ("sin hinge", "1")),
        *(("velocity of slider", "m/s"), ("velocity of hinge", "rad/s")),
    )
    actuators = ("slide",)


@dataclass(frozen=True, kw_only=True)
class AcerCheetah(SuitePlant):
    """Run; the reward is the speed up to 10 m/s, in tenths. The paper's has no bound, and adds a cost of control."""

    name = "AcerCheetah"
    task = ("cheetah", "run")
    physics_step = 0.01
    frequency = 100.0
    shows = (
        *(("rootz", "m"), *_angles(("rooty", *_CHEETAH))),
        *(("velocity of rootx", "m/s"), ("velocity of rootz", "m/s"), *_rates(("rooty", *_CHEETAH))),
    )
    actuators = _CHEETAH


@dataclass(frozen=True, kw_only=True)
class AcerFish(SuitePlant):
    """Swim to a target, upright; rewarded near it, where the paper's reward falls with the distance."""

    name = "AcerFish"
    task = ("fish", "swim")
    physics_step = 0.004
    frequency = 25.0
    shows = (
        *(*_angles(_FISH), ("upright", "1"), *_along("target", "m")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *_rates(_FISH)),
    )
    actuators = ("tail", "tail_twist", "fins_flap", "finleft_pitch", "finright_pitch")


@dataclass(frozen=True, kw_only=True)
class AcerWalker(SuitePlant):
    """Walk as fast as possible without falling: the suite's `run`, rewarded linearly in speed up to 8 m/s.

    It starts in any pose and may get up again; the paper's ends when it falls, and has a cost of control.
    """

    name = "AcerWalker"
    task = ("walker", "run")
    physics_step = 0.0025
    frequency = 40.0
    shows = (
        *chain.from_iterable(((f"cos {body}", "1"), (f"sin {body}", "1")) for body in _WALKER_BODIES),
        *(("height", "m"), ("velocity of rootz", "m/s"), ("velocity of rootx", "m/s"), *_rates(("rooty", *_WALKER))),
    )
    actuators = _WALKER


@dataclass(frozen=True, kw_only=True)
class AcerHumanoid(SuitePlant):
    """Stand up from any pose on the ground, and stay there with little effort; 67 observations, the paper has 94."""

    name = "AcerHumanoid"
    task = ("humanoid", "stand")
    physics_step = 0.005
    frequency = 40.0
    shows = (
        *(*_angles(_HUMANOID), ("height of head", "m")),
        *chain.from_iterable(_along(f"{s} {limb}", "m") for s in ("left", "right") for limb in ("hand", "foot")),
        *(*_along("upwards", "1"), *_along("velocity of mass", "m/s")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *_rates(_HUMANOID)),
    )
    actuators = _HUMANOID_MOTORS
