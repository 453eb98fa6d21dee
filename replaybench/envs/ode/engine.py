"""The engine of plants that are given by differential equations: one compiled call per step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.streams import Stream
from replaybench.envs.interface.engine import Engine
from replaybench.envs.ode import rk4


class RungeKutta(Engine):
    """Members whose state is all there is of them.

    Args:
        plant: the plant.
        num_envs: number of members M.
        frequency: samples per second [Hz].
    """

    def __init__(self, plant: rk4.Equations, num_envs: int, frequency: float) -> None:
        self.plant = plant
        super().__init__(num_envs, len(plant.state_names), frequency)
        self._kernel = rk4.kernel(plant)
        self._params = plant.params()

    def set_frequency(self, frequency: float) -> None:
        """Sample at another rate [Hz]."""
        super().set_frequency(frequency)
        self._substeps = rk4.substeps(self.plant, 1.0 / frequency)
        self._substep = 1.0 / frequency / self._substeps

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Bring members to the plant's initial state; nothing is drawn."""
        self.observed[chosen] = self.plant.initial_state

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance all running members in one compiled call."""
        steps = self._substep, self._substeps, self._params
        self._kernel.advance(self.observed, action, running, *steps, self.reward, self.terminated, self.event)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Nothing: what is observed is the whole state."""
        return {}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing is left to be restored."""
