"""Roboschool's reacher with the end of an episode by time as a terminal state, for `reacher-causes.toml`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.engine import BulletEngine
from replaybench.envs.bullet.reacher import BulletReacher
from replaybench.envs.interface.engine import Engine


class _EndingEngine(BulletEngine):
    """Members whose last sample is terminal."""

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance the running members by one sample."""
        super().advance(action, running)
        last = self.plant.steps_per_episode(self.frequency)
        self.terminated[running & (self._elapsed == last)] = True


@dataclass(frozen=True, kw_only=True)
class Ending(BulletReacher):
    """The task in which nothing is worth anything after 150 samples, and the critic learns so."""

    def engine(self, num_envs: int, frequency: float) -> Engine:
        """Return what moves `num_envs` members, sampled at `frequency` [Hz]."""
        return _EndingEngine(self, num_envs, frequency)
