"""The engine for simulators that can only be started and stepped, with one simulator per member.

The saved state of a member consists of the seed of its episode and its actions so far. Restoring a state repeats these
actions. This is exact if equal seeds and actions give equal episodes.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Vector
from replaybench.runtime.streams import Stream

_SEEDS: Final = 2**32
_NOT_STARTED: Final = -1


class Step(NamedTuple):
    """The results of one control step, with the observed state `[S]` in physical units and the unscaled reward."""

    observed: Vector
    reward: float
    terminated: bool
    truncated: bool


class Simulator(Protocol):
    """The interface of a simulator of one copy of a plant."""

    def restart(self, seed: int) -> Vector:
        """Start an episode with a seed, 0 ≤ seed < 2³², and return the observed state `[S]`."""

    def advance(self, action: Vector) -> Step:
        """Advance by one control step under the action `[A]` in physical units."""

    def close(self) -> None:
        """Free the resources of the simulator."""


class StepwiseEngine(Engine):
    """The engine that steps a separate Python simulator for each member.

    A simulator's state cannot be copied. To restore a state, the engine restarts the episode with its seed and repeats
    the actions.

    Args:
        simulators: One simulator for each member.
        states: Number of states S.
        actions: Number of actions A.
        steps: Largest number of control steps in an episode.
        frequency: Control rate [Hz].
    """

    def __init__(
        self, simulators: Sequence[Simulator], states: int, actions: int, steps: int, frequency: float
    ) -> None:
        members = len(simulators)
        self._simulators = simulators
        self._seed = np.full(members, _NOT_STARTED, np.int64)
        self._taken = np.zeros(members, np.int64)
        self._actions = np.zeros((members, steps, actions))
        super().__init__(members, states, frequency)

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        seeds = (draws.uniform(1, chosen)[:, 0] * _SEEDS).astype(np.int64)
        self._seed[chosen], self._taken[chosen], self._actions[chosen] = seeds, 0, 0.0
        for m, seed in zip(np.flatnonzero(chosen).tolist(), seeds.tolist(), strict=True):
            self.observed[m] = self._simulators[m].restart(seed)

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        for m in map(int, np.flatnonzero(running)):
            self._actions[m, self._taken[m]] = action[m]
            self._taken[m] += 1
            step = self._simulators[m].advance(action[m].copy())
            self.observed[m], self.reward[m], self.terminated[m], self.truncated[m] = step

    def changing(self) -> dict[str, NDArray[Any]]:
        """Return by name the seed, the number of actions and the actions of the episode of each copy of the plant."""
        return {"seed": self._seed, "taken": self._taken, "actions": self._actions}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        super().set_state(state)
        for m in np.flatnonzero(self._seed != _NOT_STARTED).tolist():
            self.observed[m] = self._simulators[m].restart(int(self._seed[m]))
            for action in self._actions[m, : self._taken[m]]:
                self.observed[m] = self._simulators[m].advance(action.copy()).observed

    def close(self) -> None:
        for simulator in self._simulators:
            simulator.close()
