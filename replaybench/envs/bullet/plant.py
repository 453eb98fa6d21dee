"""The base class of the PyBullet plants.

The tasks are those of Roboschool, which de Bruin et al. (2018, section 8.5) learn, on the robots that come with
PyBullet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.user_code.source_hash import made_of
from replaybench.envs.bullet.engine import BulletEngine, pace
from replaybench.envs.bullet.model import Floats, Model, Readings
from replaybench.envs.bullet.world import World, model_files
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import FixedStepPlant
from replaybench.envs.ode.function_hash import content_hash

INTERVAL: Final = 0.0165
"""Roboschool's control interval [s]; its measure of progress is per this time at every rate."""


@dataclass(frozen=True, kw_only=True)
class BulletPlant(FixedStepPlant):
    """A task in PyBullet; a subclass declares what to load, and the rewards of the readings.

    The physics step is 0.0165 s / `substeps`.
    """

    substeps: float = 1.0  # physics steps per 0.0165 s

    model: ClassVar[Model]
    terms: ClassVar[tuple[str, ...]]
    """Names of the terms of the reward in the infos."""

    frequency = 1.0 / INTERVAL
    update_every = 100
    reference_episodes = 5

    def starts(self, uniform: Floats) -> Floats:
        """Return the joints' positions at the start of episodes `[n, J]`, from as many draws in [0, 1)."""
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

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return BulletEngine(self, num_envs, frequency)

    def made_of(self) -> str:
        content = hashlib.sha256(f"pybullet {version('pybullet')} {self.model!r}".encode())
        for file in model_files(self.model):
            content.update(file.read_bytes())
        own = type(self)
        functions: list[Callable[..., Any]] = [World, Readings, pace, own.starts, own.observe, own.reward]
        content.update(content_hash(functions).encode())
        content.update(made_of(own).encode())
        return content.hexdigest()

    @property
    def physics_step(self) -> float:  # type: ignore[override]
        return INTERVAL / self.substeps

    @property
    def episode_steps(self) -> int:  # type: ignore[override]
        return round(self.episode_seconds * self.substeps / INTERVAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.substeps < 1 or self.substeps != round(self.substeps):
            raise UserError(f"{self.name}: substeps is {self.substeps:g}; give a whole number of 1 or more")
