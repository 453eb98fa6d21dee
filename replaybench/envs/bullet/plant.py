"""The base class of the PyBullet plants: a task, and the engine that moves its members."""

from __future__ import annotations

from dataclasses import dataclass

from replaybench.envs.bullet.engine import BulletEngine
from replaybench.envs.bullet.task import BulletTask
from replaybench.envs.interface.engine import Engine


@dataclass(frozen=True, kw_only=True)
class BulletPlant(BulletTask):
    """A PyBullet task as a plant; what a subclass declares is said in `BulletTask`."""

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return what moves `num_envs` members, sampled at `frequency` [Hz]."""
        return BulletEngine(self, num_envs, frequency)
