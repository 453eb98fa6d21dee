"""The three-link reacher of ACER (Wang et al. 2017, appendix E.1), with a model of our own.

The paper gives the task and no measures of the arm: links of 0.12, 0.10 and 0.08 m, the torques and the damping are a
reading, with the size and strength of the two-link reacher that dm_control's authors published later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.kernels import elementwise
from replaybench.data.streams import Stream
from replaybench.envs.interface.angles import wrap_angle
from replaybench.envs.interface.plant import Observed, Vector, positions, velocities
from replaybench.envs.mujoco.plant import MujocoPlant
from replaybench.envs.mujoco.rewards import Array, Mask

LINKS: Final = (0.12, 0.10, 0.08)
"""Lengths from joint to joint, and from the last joint to the tip. [m]"""

_JOINTS: Final = ("shoulder", "elbow", "wrist")
_NEAR: Final = 0.05  # distance that is rewarded [m] (E.1)
_NEAREST, _FARTHEST = 0.05, 0.28  # of a target from the shoulder, both within reach [m]
_BEND: Final = 2.6  # largest angle of elbow and wrist at the start; their stops are at 2.7 [rad]
_TARGET: Final = 3  # place of the target's x in a state, which is three angles, its x and y, and their velocities


@kernel
def _tip(raw: Array, m: int) -> tuple[float, float]:
    """Return where the tip is, [m], from the joint angles, which are the first three columns."""
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
    """Bring the tip of a planar three-link arm to a target; rewarded by 1 within 5 cm, else by 0.

    Arm and target are drawn anew for each episode, the target uniformly from a ring within reach. The eight
    observations are the paper's: angles and velocities of the joints, and the way from the tip to the target.
    """

    name = "AcerReacher3"
    mjcf = "reacher3.xml"
    camera = (0.75, 0.0, math.pi / 2, False)
    physics_step = 0.01
    episode_steps = 1000  # 500 samples (E.1)
    frame_skip = 2
    observes = (*positions(_JOINTS), *velocities(_JOINTS), *(Observed(f"target from tip {e}", "m", 1.0) for e in "xy"))
    actuated = _JOINTS
    term_names = ("distance",)
    observe = staticmethod(_observe)
    reward = staticmethod(_reward)
    update_every = 50  # the length of ACER's segments

    @property
    def path(self) -> Path:
        """Path of the MJCF file, which comes with the package."""
        return Path(__file__).parent / "assets" / self.mjcf

    @property
    def periodic(self) -> tuple[bool, ...]:
        """The shoulder turns all the way round."""
        return (True, *(False,) * 7)

    def start(
        self, draws: Stream, chosen: NDArray[np.bool_], qpos: Vector, qvel: Vector
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw any pose, at rest, and a target uniform over the ring's area."""
        uniform = draws.uniform(5, chosen)
        position = np.zeros((len(uniform), 5))
        position[:, 0] = math.pi * (2.0 * uniform[:, 0] - 1.0)
        position[:, 1:3] = _BEND * (2.0 * uniform[:, 1:3] - 1.0)
        radius = np.sqrt(_NEAREST**2 + (_FARTHEST**2 - _NEAREST**2) * uniform[:, 3])
        turned = 2.0 * math.pi * uniform[:, 4]
        position[:, 3], position[:, 4] = radius * elementwise.cos(turned), radius * elementwise.sin(turned)
        return position, np.zeros((len(uniform), 5))
