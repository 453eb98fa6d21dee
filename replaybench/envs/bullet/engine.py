"""The engine of the PyBullet plants."""

from __future__ import annotations

import math
import weakref
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.streams import Stream
from replaybench.envs.bullet.model import Readings
from replaybench.envs.bullet.world import World
from replaybench.envs.interface.engine import Engine


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
