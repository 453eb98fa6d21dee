"""The continuous-control tasks of ACER (Wang et al. 2017, appendix E.1), as far as dm_control has them.

Models, rewards and starts are dm_control's, which publishes its authors' later form of these tasks: its rewards lie in
[0, 1], and falling ends no episode. Each task says where it departs from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replaybench.envs.dm_suite.plant import SuitePlant
from replaybench.envs.interface.plant import Observed, positions, velocities


def _along(what: str, unit: str) -> tuple[Observed, ...]:
    return tuple(Observed(f"{what} {axis}", unit) for axis in "xyz")


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
    frame_skip = 1
    observes = (
        *positions(("slider",), ("slider",)),
        *(Observed(f"{function} hinge", "1") for function in ("cos", "sin")),
        *velocities(("slider", "hinge"), ("slider",)),
    )
    actuated = ("slide",)


@dataclass(frozen=True, kw_only=True)
class AcerCheetah(SuitePlant):
    """Run; the reward is the speed up to 10 m/s, in tenths. The paper's has no bound, and adds a cost of control."""

    name = "AcerCheetah"
    task = ("cheetah", "run")
    physics_step = 0.01
    frame_skip = 1
    observes = (
        *positions(("rootz", "rooty", *_CHEETAH), ("rootz",)),
        *velocities(("rootx", "rootz", "rooty", *_CHEETAH), ("rootx", "rootz")),
    )
    actuated = _CHEETAH


@dataclass(frozen=True, kw_only=True)
class AcerFish(SuitePlant):
    """Swim to a target, upright; rewarded near it, where the paper's reward falls with the distance."""

    name = "AcerFish"
    task = ("fish", "swim")
    physics_step = 0.004
    frame_skip = 10
    observes = (
        *(*positions(_FISH), Observed("upright", "1"), *_along("target", "m")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *velocities(_FISH)),
    )
    actuated = ("tail", "tail_twist", "fins_flap", "finleft_pitch", "finright_pitch")


@dataclass(frozen=True, kw_only=True)
class AcerWalker(SuitePlant):
    """Walk as fast as possible without falling: the suite's `run`, rewarded linearly in speed up to 8 m/s.

    It starts in any pose and may get up again; the paper's ends when it falls, and has a cost of control.
    """

    name = "AcerWalker"
    task = ("walker", "run")
    physics_step = 0.0025
    frame_skip = 10
    observes = (
        *(Observed(f"{function} {body}", "1") for body in _WALKER_BODIES for function in ("cos", "sin")),
        *(Observed("height", "m"), *velocities(("rootz", "rootx", "rooty", *_WALKER), ("rootz", "rootx"))),
    )
    actuated = _WALKER


@dataclass(frozen=True, kw_only=True)
class AcerHumanoid(SuitePlant):
    """Stand up from any pose on the ground, and stay there with little effort; 67 observations, the paper has 94."""

    name = "AcerHumanoid"
    task = ("humanoid", "stand")
    physics_step = 0.005
    frame_skip = 5
    observes = (
        *(*positions(_HUMANOID), Observed("height of head", "m")),
        *(entry for s in ("left", "right") for limb in ("hand", "foot") for entry in _along(f"{s} {limb}", "m")),
        *(*_along("upwards", "1"), *_along("velocity of mass", "m/s")),
        *(*_along("velocity of root", "m/s"), *_along("turning of root", "rad/s"), *velocities(_HUMANOID)),
    )
    actuated = _HUMANOID_MOTORS
