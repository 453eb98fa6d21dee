"""HalfCheetah and Hopper with rewards times five for learners, as SAC is used by Sağlam et al. (2023).

The factor matters for SAC with a fixed temperature, and for the losses of LA3P. Reported returns are unscaled.
"""

from dataclasses import dataclass

from replaybench.envs.mujoco.locomotion import MujocoHalfCheetah, MujocoHopper


@dataclass(frozen=True, kw_only=True)
class HalfCheetahTimes5(MujocoHalfCheetah):
    """HalfCheetah with rewards times five for learners."""

    name = "HalfCheetahTimes5"
    reward_scale = 5.0


@dataclass(frozen=True, kw_only=True)
class HopperTimes5(MujocoHopper):
    """Hopper with rewards times five for learners."""

    name = "HopperTimes5"
    reward_scale = 5.0
