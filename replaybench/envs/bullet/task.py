"""What the PyBullet plants have in common: a model, a physics step, and arithmetic on what is read from it.

The tasks are those of Roboschool, which de Bruin et al. (2018, section 8.5) learn, on the robots that come with
PyBullet. Rewards and observations are computed here for all members at once, from the readings before and after a
sample, so that they are the same whichever process moved the members.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.user_code.source_hash import made_of
from replaybench.envs.bullet.model import Floats, Model, Readings
from replaybench.envs.interface.checks import whole_substeps
from replaybench.envs.interface.plant import EpisodeMetric, Plant
from replaybench.envs.ode.function_hash import content_hash

INTERVAL: Final = 0.0165
"""Roboschool's control interval [s]; its measure of progress is per this time at every rate."""


@dataclass(frozen=True, kw_only=True)
class BulletTask(Plant):
    """What a plant in PyBullet declares; a subclass says what to load and what its readings are worth.

    The physics step is 0.0165 s / `substeps`. Rates are those at which a sample is a whole number of such steps and
    an episode a whole number of samples.
    """

    substeps: float = 1.0  # physics steps per 0.0165 s

    model: ClassVar[Model]
    terms: ClassVar[tuple[str, ...]]
    """Names of the parts of the reward, as they stand in the infos."""

    frequency = 1.0 / INTERVAL
    discount = 0.99
    update_every = 100
    episode_metric: ClassVar[EpisodeMetric] = "return"
    reference_episodes = 5

    def starts(self, uniform: Floats) -> Floats:
        """Return where to place the model's joints at the start of episodes `[n, J]`, from as many draws in [0, 1)."""
        raise NotImplementedError

    def observe(self, now: Readings) -> Floats:
        """Return physical states `[M, S]`."""
        raise NotImplementedError

    def reward(self, before: Readings, now: Readings, action: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the terms of the reward `[M, K]` and whether the task has ended for good `[M]`.

        Args:
            before, now: readings of the previous sample and of this one.
            action: normalised actions `[M, A]` that were applied between them.
        """
        raise NotImplementedError

    def made_of(self) -> str:
        """Return a digest of PyBullet's version, the robot's file, the functions, and whose file the task is from."""
        from importlib.metadata import version

        from replaybench.envs.bullet.world import World, model_files

        content = hashlib.sha256(f"pybullet {version('pybullet')} {self.model!r}".encode())
        for file in model_files(self.model):
            content.update(file.read_bytes())
        own = type(self)
        functions: list[Callable[..., Any]] = [World, Readings, pace, own.starts, own.observe, own.reward]
        content.update(content_hash(functions).encode())
        content.update(made_of(own).encode())
        return content.hexdigest()

    def physics_steps(self, frequency: float) -> int:
        """Return the physics steps in a sample.

        Raises:
            UserError: they are no whole number that divides the episode.
        """
        return whole_substeps(self.name, INTERVAL / self.substeps, self._physics_steps_per_episode, frequency)

    def steps_per_episode(self, frequency: float) -> int:
        """Return the samples in an episode.

        Raises:
            UserError: the plant cannot be sampled at this `frequency` [Hz].
        """
        return self._physics_steps_per_episode // self.physics_steps(frequency)

    @property
    def _physics_steps_per_episode(self) -> int:
        return round(self.episode_seconds * self.substeps / INTERVAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.substeps < 1 or self.substeps != round(self.substeps):
            raise UserError(f"{self.name}: substeps is {self.substeps:g}; give a whole number of 1 or more")


def pace(step: float, count: int) -> float:
    """Return the time [s] of `count` physics steps, of such bits that its `count`-th part is exact.

    Bullet divides the time it is given by the number of steps, and keeps what rounding leaves over for the next call:
    now and then that would be a step too few or too many.
    """
    interval = step * count
    while Fraction(interval) != count * Fraction(interval / count):
        interval = math.nextafter(interval, math.inf)
    return interval
