"""MuJoCo tasks of locomotion, as in Gymnasium v5.

Hopper, Walker2d and HalfCheetah move in a vertical plane. Swimmer, Ant and Humanoid move on the ground plane.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.plant import Observed, Vector, positions, velocities
from replaybench.envs.mujoco.plant import FORCE_LIMIT, MujocoPlant
from replaybench.runtime.kernel import kernel

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@kernel
def control_cost(action: Array, m: int) -> float:
    """Return the sum of the squared controls in the row m of `action` `[M, A]`."""
    total = 0.0
    for a in range(action.shape[1]):
        total += action[m, a] * action[m, a]
    return total


@kernel
def _observe(chosen: Mask, raw: Array, skipped: int, low: Array, high: Array, observed: Array) -> None:
    for m in range(raw.shape[0]):
        if chosen[m]:
            for i in range(observed.shape[1]):
                observed[m, i] = min(max(raw[m, skipped + i], low[i]), high[i])


@kernel
def observe_past_x(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    """Write the S columns of `raw` `[M, R]` after the first to `observed` `[M, S]`, clipped to `low` and `high`."""
    _observe(chosen, raw, 1, low, high, observed)


@kernel
def observe_past_xy(chosen: Mask, raw: Array, low: Array, high: Array, observed: Array) -> None:
    """Write the S columns of `raw` `[M, R]` after the first two to `observed` `[M, S]`, clipped to `low` and `high`."""
    _observe(chosen, raw, 2, low, high, observed)


@kernel
def reward_runner(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    """Write the rewards of robots that run along x in a vertical plane.

    The reward is a weighted speed, minus a cost of the squared controls, plus a bonus while the robot stands. A robot
    stands while its height, its pitch, and all later coordinates and velocities are within open ranges.
    """
    forward_weight, control_weight, bonus, low_z, high_z, low_pitch, high_pitch, largest, rest_z = constants
    for m in range(raw.shape[0]):
        if not running[m]:
            continue
        x, z, pitch = raw[m, 0], raw[m, 1], raw[m, 2]
        speed = (x - marker[m, 0]) / dt
        marker[m, 0], marker[m, 1] = x, z
        stands = low_z < z < high_z and low_pitch < pitch < high_pitch
        for i in range(2, raw.shape[1]):
            stands = stands and -largest < raw[m, i] < largest
        forward, effort, alive = forward_weight * speed, control_weight * control_cost(action, m), stands * bonus
        reward[m] = forward + alive - effort
        terminated[m] = not stands
        found = (x, speed, forward, -effort, alive, z - rest_z)
        for k in range(terms.shape[1]):
            terms[m, k] = found[k]


@kernel
def reward_roamer(
    running: Mask, raw: Array, action: Array, marker: Array, dt: float, constants: tuple[float, ...],
    reward: Array, terminated: Mask, terms: Array,
) -> None:  # fmt: skip
    """Write the rewards of robots that move on the ground plane.

    The reward is a weighted speed along x, minus costs of squared controls and contact forces, plus a bonus while the
    robot is up. A robot is up while its third coordinate is within a closed range. The last two columns of `raw` are
    the position x and y from which the speed is computed. The columns before these are the contact forces, from the
    index that is the last of the `constants`.
    """
    forward_weight, control_weight, contact_weight, largest_force, worst, bonus, low_z, high_z, first = constants
    place = raw.shape[1] - 2
    for m in range(raw.shape[0]):
        if not running[m]:
            continue
        along, across = (raw[m, place] - marker[m, 0]) / dt, (raw[m, place + 1] - marker[m, 1]) / dt
        marker[m, 0], marker[m, 1] = raw[m, place], raw[m, place + 1]
        contact = 0.0
        for i in range(int(first), place):
            force = min(max(raw[m, i], -largest_force), largest_force)
            contact += force * force
        contact = min(contact_weight * contact, worst)
        up = low_z <= raw[m, 2] <= high_z
        forward, effort, alive = forward_weight * along, control_weight * control_cost(action, m), up * bonus
        reward[m] = forward + alive - (effort + contact)
        terminated[m] = not up
        x, y = raw[m, 0], raw[m, 1]
        found = (x, y, math.sqrt(x * x + y * y), along, across, forward, -effort, -contact, alive)
        for k in range(terms.shape[1]):
            terms[m, k] = found[k]


_ROOT: Final = ("rootx", "rootz", "rooty")
_SLIDES: Final = ("rootx", "rootz")
_FASTEST: Final = 10.0  # bound to which observed velocities are clipped (v5)
_HOPPER: Final = ("thigh_joint", "leg_joint", "foot_joint")
_WALKER: Final = (*_HOPPER, "thigh_left_joint", "leg_left_joint", "foot_left_joint")
_CHEETAH: Final = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
_TERMS: Final = ("x_position", "x_velocity", "reward_forward", "reward_ctrl")
_WHEN_IT_CAN_FALL: Final = ("reward_survive", "z_distance_from_origin")


@dataclass(frozen=True, kw_only=True)
class _Runner(MujocoPlant):
    """The base class of Hopper, Walker2d and HalfCheetah, whose rewards `reward_runner` computes."""

    observe = staticmethod(observe_past_x)
    reward = staticmethod(reward_runner)

    forward_reward_weight: float = 1.0  # per m/s
    ctrl_cost_weight: float = 1e-3

    def constants(self) -> tuple[float, ...]:
        """Return weights and bounds for `reward_runner`. Bounds that a task does not declare are infinite."""
        bonus: float = getattr(self, "healthy_reward", 0.0)
        names = ("healthy_z_max", "healthy_angle_max", "healthy_state_max")
        high, pitch, largest = (getattr(self, name, math.inf) for name in names)
        low = getattr(self, "healthy_z_min", -math.inf)
        rest = float(self.model().qpos0[1])
        return self.forward_reward_weight, self.ctrl_cost_weight, bonus, low, high, -pitch, pitch, largest, rest


@dataclass(frozen=True, kw_only=True)
class MujocoHopper(_Runner):
    """A leg that hops (Gymnasium `Hopper-v5`)."""

    healthy_reward: float = 1.0  # per control step
    healthy_state_max: float = 100.0  # largest |joint angle or velocity| [rad, m/s, rad/s]
    healthy_z_min: float = 0.7  # [m]
    healthy_angle_max: float = 0.2  # |pitch| [rad]
    reset_noise_scale: float = 5e-3

    name = "MujocoHopper"
    mjcf = "hopper.xml"
    physics_step = 0.002
    episode_steps = 4000
    frame_skip = 4
    observes = (*positions((*_ROOT[1:], *_HOPPER), _SLIDES), *velocities((*_ROOT, *_HOPPER), _SLIDES, _FASTEST))
    actuated = _HOPPER
    term_names = (*_TERMS, *_WHEN_IT_CAN_FALL)


@dataclass(frozen=True, kw_only=True)
class MujocoWalker2d(_Runner):
    """Two legs that walk (Gymnasium `Walker2d-v5`)."""

    healthy_reward: float = 1.0  # per control step
    healthy_z_min: float = 0.8  # [m]
    healthy_z_max: float = 2.0  # [m]
    healthy_angle_max: float = 1.0  # |pitch| [rad]
    reset_noise_scale: float = 5e-3

    name = "MujocoWalker2d"
    mjcf = "walker2d_v5.xml"
    physics_step = 0.002
    episode_steps = 4000
    frame_skip = 4
    observes = (*positions((*_ROOT[1:], *_WALKER), _SLIDES), *velocities((*_ROOT, *_WALKER), _SLIDES, _FASTEST))
    actuated = _WALKER
    term_names = (*_TERMS, *_WHEN_IT_CAN_FALL)


@dataclass(frozen=True, kw_only=True)
class MujocoHalfCheetah(_Runner):
    """Half a cheetah that runs, without terminal states (Gymnasium `HalfCheetah-v5`)."""

    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1

    name = "MujocoHalfCheetah"
    mjcf = "half_cheetah.xml"
    physics_step = 0.01
    episode_steps = 5000
    frame_skip = 5
    observes = (*positions((*_ROOT[1:], *_CHEETAH), _SLIDES), *velocities((*_ROOT, *_CHEETAH), _SLIDES))
    actuated = _CHEETAH
    term_names = _TERMS
    velocity_noise = "normal"


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
_ROAMER_TERMS: Final = (*_PLACE, "reward_forward", "reward_ctrl")

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
    """Describe the components of a vector quantity of each body, such as a force, as observations."""
    return tuple(Observed(f"{what}{entry} of {body}", unit, limit) for body in bodies for entry, unit in entries)


@dataclass(frozen=True, kw_only=True)
class _Roamer(MujocoPlant):
    """The base class of Swimmer, Ant and Humanoid, whose rewards `reward_roamer` computes."""

    forward_reward_weight: float = 1.0  # per m/s
    ctrl_cost_weight: float = 1e-4

    observe = staticmethod(observe_past_xy)
    reward = staticmethod(reward_roamer)
    strictly_between: ClassVar[bool] = False
    """Whether the robot gets its bonus only if its height is strictly between the bounds."""

    def marker_of(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        return raw[:, -2:]

    def constants(self) -> tuple[float, ...]:
        """Return the constants of `reward_roamer`. Terms of the reward that a task does not declare have no effect."""
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
    """Three links that swim in a viscous fluid (Gymnasium `Swimmer-v5`)."""

    reset_noise_scale: float = 0.1

    name = "MujocoSwimmer"
    mjcf = "swimmer.xml"
    physics_step = 0.01
    episode_steps = 4000
    frame_skip = 4
    observes = (*positions(_SWIMMER[2:]), *velocities(_SWIMMER, _SWIMMER[:2]))
    actuated = _SWIMMER[3:]
    term_names = _ROAMER_TERMS
    camera = (4.5, 0.0, math.pi / 2, True)

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        return data.qpos, data.qvel, data.qpos[:2]


@dataclass(frozen=True, kw_only=True)
class MujocoAnt(_Roamer):
    """A torso on four legs that walks, with observed contact forces (Gymnasium `Ant-v5`)."""

    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    contact_force_max: float = 1.0  # bound to which observed and charged |forces and torques| are clipped [N, N m]
    healthy_reward: float = 1.0  # per control step
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
    term_names = (*_ROAMER_TERMS, "reward_contact", "reward_survive")
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
    """A body of 13 parts and 17 motors that walks, with all observations of Gymnasium's `Humanoid-v5`."""

    forward_reward_weight: float = 1.25  # per m/s
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_max: float = 10.0  # per control step
    healthy_reward: float = 5.0  # per control step
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
    term_names = (*_ROAMER_TERMS, "reward_contact", "reward_survive")
    observes_forces = True

    def pieces(self, data: Any) -> tuple[Vector, ...]:
        bodies = (part[1:].reshape(-1) for part in (data.cinert, data.cvel))
        forces = data.cfrc_ext
        return (
            data.qpos, data.qvel, *bodies, data.qfrc_actuator[6:], forces[1:].reshape(-1), forces[0],
            data.subtree_com[0, :2],
        )  # fmt: skip
