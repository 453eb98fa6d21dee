"""The engine of the PyBullet plants: actions to the members' worlds, and their readings to rewards.

Bullet's solver starts each step from what it found in the last one, and no file of PyBullet's holds all of that. The
engine therefore keeps the actions of the running episode: repeating them from the same start leads to the same state,
bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.streams import Stream
from replaybench.envs.bullet.local_worlds import LocalWorlds, Worlds
from replaybench.envs.bullet.model import Model, Readings
from replaybench.envs.bullet.remote_worlds import WorkerWorlds
from replaybench.envs.bullet.task import INTERVAL, BulletTask, pace
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.threads import thread_count


class BulletEngine(Engine):
    """Members with a physics client each.

    A state is the joints' positions at the start and the actions since; restoring one costs as much time as the steps
    of the longest running episode.

    Args:
        plant: the plant.
        num_envs: number of members M.
        frequency: samples per second [Hz].
    """

    def __init__(self, plant: BulletTask, num_envs: int, frequency: float) -> None:
        self.plant = plant
        self._worlds = make_worlds(plant.model, num_envs)
        self._now = Readings(plant.model, self._worlds.rows)
        self._before = Readings(plant.model, np.zeros_like(self._worlds.rows))
        self._start = np.zeros((num_envs, len(plant.model.joints + plant.model.placed)))
        self._terms = np.zeros((num_envs, len(plant.terms)))
        self._elapsed = np.full(num_envs, -1)  # steps since the start of the episode; -1: not known
        self._unsaved = np.zeros(num_envs, np.bool_)
        self._middle, self._half = plant.action_range()
        super().__init__(num_envs, len(plant.state_names), frequency)

    def set_frequency(self, frequency: float) -> None:
        """Sample at another rate [Hz]; an episode that is running goes on, but cannot be saved any more."""
        super().set_frequency(frequency)
        plant, members = self.plant, len(self._start)
        self._unsaved |= self._elapsed >= 0
        count = plant.physics_steps(frequency)
        self._worlds.pace(pace(INTERVAL / plant.substeps, count), count)
        self._actions = np.zeros((members, plant.steps_per_episode(frequency), len(plant.action_names)))
        self._elapsed[:] = -1

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Place the chosen members' joints at random, at rest."""
        self._start[chosen] = self.plant.starts(draws.uniform(self._start.shape[1], chosen))
        self._elapsed[chosen], self._unsaved[chosen] = 0, False
        self._actions[chosen] = 0.0
        self._terms[chosen] = 0.0
        self._begin(chosen)
        self.observed[chosen] = self.plant.observe(self._now)[chosen]

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance the running members by one sample."""
        kept = np.flatnonzero(running & ~self._unsaved)
        self._actions[kept, self._elapsed[kept]] = action[kept]
        self._elapsed[kept] += 1
        self._move(action, running)
        moving = np.flatnonzero(running)
        with np.errstate(invalid="ignore", over="ignore"):  # of a simulation that has blown up
            terms, ended = self.plant.reward(self._before, self._now, (action - self._middle) / self._half)
            observed = self.plant.observe(self._now)
        self._terms[:] = 0.0
        self._terms[moving] = terms[moving]
        self.observed[moving] = observed[moving]
        self.reward[moving] = terms.sum(axis=1)[moving]
        self.terminated[moving] = ended[moving]

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return where the running episodes began, and the actions since.

        Raises:
            UserError: the rate was changed while an episode ran.
        """
        if self._unsaved.any():
            raise UserError(f"{self.plant.name} was given another rate during an episode; reset it before saving")
        return {
            "start": self._start.copy(),
            "actions": self._actions.copy(),
            "steps_taken": self._elapsed.copy(),
            "terms": self._terms.copy(),
        }

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Repeat the episodes up to where `get_state` was called."""
        self._start[:], self._actions[:] = state["start"], state["actions"]
        self._elapsed[:], self._terms[:] = state["steps_taken"], state["terms"]
        self._unsaved[:] = False
        self._begin(self._elapsed >= 0)
        for step in range(int(self._elapsed.max())):
            self._move(self._actions[:, step], self._elapsed > step)

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return the terms of the last reward, float64 `[M]` by name."""
        return {name: self._terms[:, place].copy() for place, name in enumerate(self.plant.terms)}

    def frame(self, member: int) -> NDArray[np.uint8]:
        """Return a picture uint8 `[480, 480, 3]` of a member."""
        return self._worlds.picture(member)

    def close(self) -> None:
        """End the clients, and the processes that hold them."""
        self._worlds.close()

    def _begin(self, chosen: NDArray[np.bool_]) -> None:
        self._worlds.restart(chosen, self._start)
        self._before.rows[chosen] = self._now.rows[chosen]

    def _move(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        self._before.rows[running] = self._now.rows[running]
        self._worlds.step(action, running)


def make_worlds(model: Model, num_envs: int) -> Worlds:
    """Return the worlds of `num_envs` members, in as many processes as there may be threads."""
    processes = min(thread_count(), num_envs)
    if processes == 1:
        return LocalWorlds(model, np.zeros((num_envs, model.width)))
    return WorkerWorlds(model, num_envs, processes)
