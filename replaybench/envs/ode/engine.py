"""The engine of plants that are given by differential equations: one compiled call per step, noise included."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.streams import Stream
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.signals import Signals
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
        self._kernels = rk4.kernels(plant)
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
        """Not used: `step` does this in the same call as the noise."""
        raise NotImplementedError

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Nothing: what is observed is the whole state."""
        return {}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing is left to be restored."""

    def step(self, signals: Signals, running: NDArray[np.bool_]) -> None:
        """Disturb, advance and sense in one kernel."""
        ranges = signals.ranges
        self._kernels.step(
            *(self.observed, signals.action, running, self._substep, self._substeps, self._params),
            *(ranges.middle, ranges.half, ranges.choices, ranges.center, ranges.scale, ranges.wrap),
            *(signals.sensor.state, signals.sensor_noise, signals.actuator.state, signals.actuator_noise),
            *(signals.observation, signals.true_state, signals.sensor_error, signals.actuator_error),
            *(self.reward, self.terminated, self.event),
        )

    def sense(self, signals: Signals, chosen: NDArray[np.bool_]) -> None:
        """Write what the sensors say; noisy angles may be brought back into their range."""
        ranges = signals.ranges
        self._kernels.observe(
            *(self.observed, chosen, ranges.center, ranges.scale, ranges.wrap),
            *(signals.sensor.state, signals.sensor_noise),
            *(signals.observation, signals.true_state, signals.sensor_error),
        )
