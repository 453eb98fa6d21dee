"""PyBullet plants: a model, a physics step, and rewards computed from the readings."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.world import Floats, Model, Readings, World, model_files
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import FixedStepPlant
from replaybench.runtime.errors import UserError
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.source_hash import made_of
from replaybench.runtime.streams import Stream


def pace(step: float, count: int) -> float:
    """Return the time [s] of `count` physics steps, rounded up until its `count`-th part is exact.

    Bullet divides the time by the number of steps and carries the rounding error over to the next call: now and then
    that would be a step too few or too many.
    """
    interval = step * count
    while Fraction(interval) != count * Fraction(interval / count):
        interval = math.nextafter(interval, math.inf)
    return interval


class BulletEngine(Engine):
    """Members with a physics client each.

    Bullet's solver starts from its last solution, and no saved file of PyBullet holds all of that. A state is therefore
    the joints' start positions and the actions since then: repeating them leads to the same state, bit for bit, and
    takes as long as the longest running episode did. `plant` is a `BulletPlant`.
    """

    def __init__(self, plant: Any, num_envs: int, frequency: float) -> None:
        self.plant = plant
        self._worlds: list[World] = []
        self._free = weakref.finalize(self, _close, self._worlds)
        count = plant.physics_steps(frequency)
        for _ in range(num_envs):
            self._worlds.append(World(plant.model))
            self._worlds[-1].pace(pace(plant.physics_step, count), count)
        self._now, self._before = (Readings(plant.model, np.zeros((num_envs, plant.model.width))) for _ in range(2))
        self._start = np.zeros((num_envs, len(plant.model.joints + plant.model.placed)))
        self._terms = np.zeros((num_envs, len(plant.terms)))
        self._elapsed = np.full(num_envs, -1)  # steps since the start of the episode; -1: none has started
        self._actions = np.zeros((num_envs, plant.steps_per_episode(frequency), len(plant.action_names)))
        self._middle, self._half = plant.action_range()
        super().__init__(num_envs, len(plant.state_names), frequency)

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        self._start[chosen] = self.plant.starts(draws.uniform(self._start.shape[1], chosen))
        self._elapsed[chosen] = 0
        self._actions[chosen] = 0.0
        self._terms[chosen] = 0.0
        self._begin(chosen)
        self.observed[chosen] = self.plant.observe(self._now)[chosen]

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        moving = np.flatnonzero(running)
        self._actions[moving, self._elapsed[moving]] = action[moving]
        self._elapsed[moving] += 1
        self._move(action, running)
        with np.errstate(invalid="ignore", over="ignore"):  # of a simulation that has blown up
            terms, ended = self.plant.reward(self._before, self._now, (action - self._middle) / self._half)
            observed = self.plant.observe(self._now)
        self._terms[:] = 0.0
        self._terms[moving] = terms[moving]
        self.observed[moving] = observed[moving]
        self.reward[moving] = terms.sum(axis=1)[moving]
        self.terminated[moving] = ended[moving]

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {
            "start": self._start.copy(),
            "actions": self._actions.copy(),
            "steps_taken": self._elapsed.copy(),
            "terms": self._terms.copy(),
        }

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        self._start[:], self._actions[:] = state["start"], state["actions"]
        self._elapsed[:], self._terms[:] = state["steps_taken"], state["terms"]
        self._begin(self._elapsed >= 0)
        for step in range(int(self._elapsed.max())):
            self._move(self._actions[:, step], self._elapsed > step)

    def infos(self) -> dict[str, NDArray[Any]]:
        return {name: self._terms[:, place].copy() for place, name in enumerate(self.plant.terms)}

    def frame(self, member: int) -> NDArray[np.uint8]:
        return self._worlds[member].picture()

    def close(self) -> None:
        self._free()

    def _begin(self, chosen: NDArray[np.bool_]) -> None:
        for member in np.flatnonzero(chosen).tolist():
            self._worlds[member].restart(self._start[member].tolist())
            self._now.rows[member] = self._worlds[member].read(touching=False)
        self._before.rows[chosen] = self._now.rows[chosen]

    def _move(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        self._before.rows[running] = self._now.rows[running]
        forces, members, rows = action.tolist(), np.flatnonzero(running).tolist(), []
        for member in members:
            self._worlds[member].step(forces[member])
            rows.append(self._worlds[member].read())
        if members:
            self._now.rows[members] = rows


def _close(worlds: list[World]) -> None:
    while worlds:
        worlds.pop().close()


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
