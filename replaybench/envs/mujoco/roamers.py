"""The MuJoCo tasks that roam the ground plane: Swimmer, Ant and Humanoid, as in Gymnasium v5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Observed, Vector, positions, velocities
from replaybench.envs.mujoco.plant import FORCE_LIMIT, MujocoPlant
from replaybench.envs.mujoco.rewards import observe_past_xy, reward_roamer

_SPATIAL: Final = (("torque x", "N m"), ("torque y", "N m"), ("torque z", "N m"),
                   ("force x", "N"), ("force y", "N"), ("force z", "N"))  # fmt: skip
_TWIST: Final = (("turning x", "rad/s"), ("turning y", "rad/s"), ("turning z", "rad/s"),
                 ("moving x", "m/s"), ("moving y", "m/s"), ("moving z", "m/s"))  # fmt: skip
_INERTIA: Final = (("Ixx", "kg m²"), ("Iyy", "kg m²"), ("Izz", "kg m²"), ("Ixy", "kg m²"), ("Ixz", "kg m²"),
                   ("Iyz", "kg m²"), ("mx", "kg m"), ("my", "kg m"), ("mz", "kg m"), ("mass", "kg"))  # fmt: skip
_FREE_POSITION: Final = (Observed("height of root", "m"), *(Observed(f"quaternion {e} of root", "1") for e in "wxyz"))
_FREE_VELOCITY: Final = (*(Observed(f"velocity {e} of root", "m/s") for e in "xyz"),
                         *(Observed(f"turning {e} of root", "rad/s") for e in "xyz"))  # fmt: skip
_PLACE: Final = ("x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity")
_TERMS: Final = (*_PLACE, "reward_forward", "reward_ctrl")

_SWIMMER: Final = ("slider1", "slider2", "free_body_rot", "motor1_rot", "motor2_rot")
_ANT: Final = tuple(f"{part}_{leg}" for leg in (1, 2, 3, 4) for part in ("hip", "ankle"))
_ANT_BODIES: Final = tuple(
    body for i, leg in enumerate(("front_left", "front_right", "back", "right_back"), 1)
    for body in (f"{leg}_leg", f"aux_{i}", f"{leg}_foot")
)  # fmt: skip
_HUMANOID: Final = (
    "abdomen_z", "abdomen_y", "abdomen_x", "right_hip_x", "right_hip_z", "right_hip_y", "right_knee",
    "left_hip_x", "left_hip_z", "left_hip_y", "left_knee", "right_shoulder1", "right_shoulder2", "right_elbow",
    "left_shoulder1", "left_shoulder2", "left_elbow",
)  # fmt: skip
_HUMANOID_BODIES: Final = (
    "torso", "lwaist", "pelvis", "right_thigh", "right_shin", "right_foot", "left_thigh", "left_shin", "left_foot",
    "right_upper_arm", "right_lower_arm", "left_upper_arm", "left_lower_arm",
)  # fmt: skip


def _of_bodies(
    what: str, bodies: tuple[str, ...], entries: tuple[tuple[str, str], ...], limit: float
) -> tuple[Observed, ...]:
    """Return the entries of a spatial quantity of each body."""
    return tuple(Observed(f"{what}{entry} of {body}", unit, limit) for body in bodies for entry, unit in entries)


@dataclass(frozen=True, kw_only=True)
class _Roamer(MujocoPlant):
    """Base class of the three: `reward = speed along x + bonus while up − effort − contact`."""

    forward_reward_weight: float = 1.0  # per m/s
    ctrl_cost_weight: float = 1e-4

    observe = staticmethod(observe_past_xy)
    reward = staticmethod(reward_roamer)
    strictly_between: ClassVar[bool] = False
    """Whether the bounds of the height do not count as up."""

    def marker_of(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        return raw[:, -2:]

    def constants(self) -> tuple[float, ...]:
        """Return weights, bounds and the first column of contact forces; without a declaration nothing counts."""
        low, high = getattr(self, "healthy_z_min", -math.inf), getattr(self, "healthy_z_max", math.inf)
        if self.strictly_between:
            low, high = math.nextafter(low, math.inf), math.nextafter(high, -math.inf)
        contacts = sum(entry.name.startswith("contact ") for entry in self.observes)
        return (
            self.forward_reward_weight, self.ctrl_cost_weight, getattr(self, "contact_cost_weight", 0.0),
            getattr(self, "contact_force_max", math.inf), getattr(self, "contact_cost_max", math.inf),
            getattr(self, "healthy_reward", 0.0), low, high, float(2 + len(self.observes) - contacts),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MujocoSwimmer(_Roamer):
    """Three links in a viscous fluid (Gymnasium `Swimmer-v5`)."""

    reset_noise_scale: float = 0.1

    name = "MujocoSwimmer"
    mjcf = "swimmer.xml"
    physics_step = 0.01
    episode_steps = 4000
    frame_skip = 4
    observes = (*positions(_SWIMMER[2:]), *velocities(_SWIMMER, _SWIMMER[:2]))
    actuated = _SWIMMER[3:]
    term_names = _TERMS
    camera = (4.5, 0.0, math.pi / 2, True)

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        return data.qpos, data.qvel, data.qpos[:2]


@dataclass(frozen=True, kw_only=True)
class MujocoAnt(_Roamer):
    """A torso on four legs (Gymnasium `Ant-v5`, contact forces observed)."""

    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    contact_force_max: float = 1.0  # |force or torque| as observed and charged [N, N m]
    healthy_reward: float = 1.0  # per sample
    healthy_z_min: float = 0.2  # [m]
    healthy_z_max: float = 1.0  # [m]
    reset_noise_scale: float = 0.1

    name = "MujocoAnt"
    mjcf = "ant.xml"
    camera = (4.0, 0.3, 0.5, True)
    physics_step = 0.01
    episode_steps = 5000
    frame_skip = 5
    observes = (
        *_FREE_POSITION, *positions(_ANT), *_FREE_VELOCITY, *velocities(_ANT),
        *_of_bodies("contact ", ("torso", *_ANT_BODIES), _SPATIAL, FORCE_LIMIT),
    )  # fmt: skip
    actuated = (*_ANT[6:], *_ANT[:6])
    term_names = (*_TERMS, "reward_contact", "reward_survive")
    velocity_noise = "normal"
    observes_forces = True

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        forces = data.cfrc_ext
        return data.qpos, data.qvel, forces[1:].reshape(-1), forces[0], data.body("torso").xpos[:2]

    @property
    def observation_limit(self) -> tuple[float, ...]:
        contacts = len(_SPATIAL) * (len(_ANT_BODIES) + 1)
        return (*super().observation_limit[:-contacts], *(self.contact_force_max,) * contacts)


@dataclass(frozen=True, kw_only=True)
class MujocoHumanoid(_Roamer):
    """A body of 13 parts and 17 motors (Gymnasium `Humanoid-v5`, all its observations)."""

    forward_reward_weight: float = 1.25  # per m/s
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_max: float = 10.0  # per sample
    healthy_reward: float = 5.0  # per sample
    healthy_z_min: float = 1.0  # [m]
    healthy_z_max: float = 2.0  # [m]
    reset_noise_scale: float = 1e-2

    name = "MujocoHumanoid"
    mjcf = "humanoid.xml"
    physics_step = 0.003
    episode_steps = 5000
    frame_skip = 5
    observes = (
        *_FREE_POSITION, *positions(_HUMANOID), *_FREE_VELOCITY, *velocities(_HUMANOID),
        *_of_bodies("inertia ", _HUMANOID_BODIES, _INERTIA, 1e4),
        *_of_bodies("", _HUMANOID_BODIES, _TWIST, 1e4),
        *(Observed(f"motor torque of {joint}", "N m", FORCE_LIMIT) for joint in _HUMANOID),
        *_of_bodies("contact ", _HUMANOID_BODIES, _SPATIAL, FORCE_LIMIT),
    )  # fmt: skip
    actuated = ("abdomen_y", "abdomen_z", *_HUMANOID[2:])
    control_range = 0.4
    strictly_between = True
    term_names = (*_TERMS, "reward_contact", "reward_survive")
    observes_forces = True

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        bodies = (part[1:].reshape(-1) for part in (data.cinert, data.cvel))
        forces = data.cfrc_ext
        return (
            data.qpos, data.qvel, *bodies, data.qfrc_actuator[6:], forces[1:].reshape(-1), forces[0],
            data.subtree_com[0, :2],
        )  # fmt: skip
