"""All members' worlds as one object: they take actions and give rows of readings, in this process or in others.

Members are independent and PyBullet's arithmetic knows nothing of processes, so the numbers do not depend on how the
worlds are spread.
"""

from __future__ import annotations

import weakref
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.bullet.model import Floats, Model
from replaybench.envs.bullet.world import World

Mask = NDArray[np.bool_]


class Worlds(Protocol):
    """The worlds of M members.

    Attributes:
        rows: float64 `[M, R]`, each member's latest readings.
    """

    rows: Floats

    def pace(self, interval: float, substeps: int) -> None:
        """Let a step take `interval` seconds, in equal physics steps."""

    def restart(self, chosen: Mask, positions: Floats) -> None:
        """Bring the chosen members `[M]` to rest with their joints at `positions` `[M, J]`, and read them."""

    def step(self, torques: Floats, running: Mask) -> None:
        """Advance the running members `[M]` under `torques` `[M, A]`, and read them."""

    def picture(self, member: int) -> NDArray[np.uint8]:
        """Return an image uint8 `[480, 480, 3]`."""

    def close(self) -> None:
        """Free clients and processes; a second call does nothing."""


class LocalWorlds:
    """Worlds in this process.

    Args:
        model: what each member is made of.
        rows: where to write the readings, `[M, R]`.
    """

    def __init__(self, model: Model, rows: Floats) -> None:
        self.rows = rows
        self._worlds: list[World] = []
        self.close = weakref.finalize(self, _close, self._worlds)
        for _ in range(len(rows)):
            self._worlds.append(World(model))

    def pace(self, interval: float, substeps: int) -> None:
        """Let a step take `interval` seconds, in equal physics steps."""
        for world in self._worlds:
            world.pace(interval, substeps)

    def restart(self, chosen: Mask, positions: Floats) -> None:
        """Bring the chosen members to rest, and read them."""
        found = []
        for member in (members := np.flatnonzero(chosen).tolist()):
            world = self._worlds[member]
            world.restart(positions[member].tolist())
            found.append(world.read(touching=False))
        if members:
            self.rows[members] = found

    def step(self, torques: Floats, running: Mask) -> None:
        """Advance the running members, and read them."""
        worlds, forces, found = self._worlds, torques.tolist(), []
        for member in (members := np.flatnonzero(running).tolist()):
            world = worlds[member]
            world.step(forces[member])
            found.append(world.read())
        if members:
            self.rows[members] = found

    def picture(self, member: int) -> NDArray[np.uint8]:
        """Return an image uint8 `[480, 480, 3]`."""
        return self._worlds[member].picture()


def _close(worlds: list[World]) -> None:
    while worlds:
        worlds.pop().close()
