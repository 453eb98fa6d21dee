"""The base class of the MuJoCo plants: a task, and the engine that moves its members."""

from __future__ import annotations

from dataclasses import dataclass

from replaybench.envs.interface.engine import Engine
from replaybench.envs.mujoco.engine import MujocoEngine
from replaybench.envs.mujoco.task import MujocoTask


@dataclass(frozen=True, kw_only=True)
class MujocoPlant(MujocoTask):
    """A MuJoCo task as a plant; what a subclass declares is said in `MujocoTask`."""

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return what moves `num_envs` members, sampled at `frequency` [Hz]."""
        return MujocoEngine(self, num_envs, frequency)
