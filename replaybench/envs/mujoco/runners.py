"""The MuJoCo tasks that run in a vertical plane: Hopper, Walker2d and HalfCheetah, as in Gymnasium v5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from replaybench.envs.interface.plant import positions, velocities
from replaybench.envs.mujoco.plant import MujocoPlant
from replaybench.envs.mujoco.rewards import observe_past_x, reward_runner

_ROOT: Final = ("rootx", "rootz", "rooty")
_SLIDES: Final = ("rootx", "rootz")
_FASTEST: Final = 10.0  # velocities are observed clipped to ±10 (v5)
_HOPPER: Final = ("thigh_joint", "leg_joint", "foot_joint")
_WALKER: Final = (*_HOPPER, "thigh_left_joint", "leg_left_joint", "foot_left_joint")
_CHEETAH: Final = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
_TERMS: Final = ("x_position", "x_velocity", "reward_forward", "reward_ctrl")
_WHEN_IT_CAN_FALL: Final = ("reward_survive", "z_distance_from_origin")


@dataclass(frozen=True, kw_only=True)
class _Runner(MujocoPlant):
    """Base class of the three: `reward = speed + bonus while it stands − effort`."""

    observe = staticmethod(observe_past_x)
    reward = staticmethod(reward_runner)

    forward_reward_weight: float = 1.0  # per m/s
    ctrl_cost_weight: float = 1e-3

    def constants(self) -> tuple[float, ...]:
        """Return the weights and the bounds of standing; a bound that a task does not declare is infinite."""
        bonus: float = getattr(self, "healthy_reward", 0.0)
        names = ("healthy_z_max", "healthy_angle_max", "healthy_state_max")
        high, pitch, largest = (getattr(self, name, math.inf) for name in names)
        low = getattr(self, "healthy_z_min", -math.inf)
        rest = float(self.model().qpos0[1])
        return self.forward_reward_weight, self.ctrl_cost_weight, bonus, low, high, -pitch, pitch, largest, rest


@dataclass(frozen=True, kw_only=True)
class MujocoHopper(_Runner):
    """One leg that hops (Gymnasium `Hopper-v5`)."""

    healthy_reward: float = 1.0  # per sample
    healthy_state_max: float = 100.0  # |joint angles and velocities| [rad, m/s, rad/s]
    healthy_z_min: float = 0.7  # [m]
    healthy_angle_max: float = 0.2  # |pitch| [rad]
    reset_noise_scale: float = 5e-3

    name = "MujocoHopper"
    mjcf = "hopper.xml"
    physics_step = 0.002
    episode_steps = 4000
    frame_skip = 4
    observes = (
        *positions((*_ROOT[1:], *_HOPPER), _SLIDES),
        *velocities((*_ROOT, *_HOPPER), _SLIDES, _FASTEST),
    )
    actuated = _HOPPER
    term_names = (*_TERMS, *_WHEN_IT_CAN_FALL)


@dataclass(frozen=True, kw_only=True)
class MujocoWalker2d(_Runner):
    """Two legs that walk (Gymnasium `Walker2d-v5`)."""

    healthy_reward: float = 1.0  # per sample
    healthy_z_min: float = 0.8  # [m]
    healthy_z_max: float = 2.0  # [m]
    healthy_angle_max: float = 1.0  # |pitch| [rad]
    reset_noise_scale: float = 5e-3

    name = "MujocoWalker2d"
    mjcf = "walker2d_v5.xml"
    physics_step = 0.002
    episode_steps = 4000
    frame_skip = 4
    observes = (
        *positions((*_ROOT[1:], *_WALKER), _SLIDES),
        *velocities((*_ROOT, *_WALKER), _SLIDES, _FASTEST),
    )
    actuated = _WALKER
    term_names = (*_TERMS, *_WHEN_IT_CAN_FALL)


@dataclass(frozen=True, kw_only=True)
class MujocoHalfCheetah(_Runner):
    """Half a cheetah, which cannot fall for good (Gymnasium `HalfCheetah-v5`)."""

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
