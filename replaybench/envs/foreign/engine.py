"""The engine of simulators that can be started and stepped, one for each member, and nothing else.

Their insides are unknown, so a member's state is how it came about: the seed of its episode and its actions since. To
continue from there they are played again, which is exact wherever equal seeds and actions give equal episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.streams import Stream
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Vector

_SEEDS: Final = 2**32
_NOT_STARTED: Final = -1


class Step(NamedTuple):
    """What one step of one simulator brought: `observed` `[S]`, physical, the unscaled reward, and both flags."""

    observed: Vector
    reward: float
    terminated: bool
    truncated: bool


class Simulator(Protocol):
    """One member's simulator."""

    def restart(self, seed: int) -> Vector:
        """Begin an episode that is decided by the seed, 0 ≤ seed < 2³², and return what is observed, `[S]`."""

    def advance(self, action: Vector) -> Step:
        """Advance by one sample under the physical action `[A]`."""

    def close(self) -> None:
        """Free what Python does not free by itself."""


class StepwiseEngine(Engine):
    """Members that are brought back to where they were by repeating what they did.

    Args:
        simulators: one for each member; they share nothing.
        states: width S of what they show.
        actions: width A of what they take.
        steps: samples in the longest episode.
        frequency: samples per second [Hz].
    """

    def __init__(
        self, simulators: Sequence[Simulator], states: int, actions: int, steps: int, frequency: float
    ) -> None:
        members = len(simulators)
        self._simulators = simulators
        self._seed = np.full(members, _NOT_STARTED, np.int64)
        self._taken = np.zeros(members, np.int64)
        self._actions = np.zeros((members, steps, actions))
        self._unsaved = np.zeros(members, np.bool_)
        self.frequency = frequency
        super().__init__(members, states, frequency)

    def set_frequency(self, frequency: float) -> None:
        """Sample at another rate [Hz]; an episode that is running goes on, but cannot be saved any more."""
        if not math.isclose(frequency, self.frequency):
            self._unsaved |= self._taken > 0
        super().set_frequency(frequency)

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Begin episodes with a seed that is drawn for each chosen member."""
        seeds = (draws.uniform(1, chosen)[:, 0] * _SEEDS).astype(np.int64)
        for m, seed in zip(np.flatnonzero(chosen), seeds, strict=True):
            self._begin(int(m), int(seed))

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Step the running members one after the other."""
        for m in map(int, np.flatnonzero(running)):
            self._actions[m, self._taken[m]] = action[m]
            self._taken[m] += 1
            self.observed[m], self.reward[m], self.terminated[m], self.truncated[m] = self._simulators[m].advance(
                action[m].copy()
            )

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return each member's seed `[M]`, the number of its actions so far `[M]`, and these, `[M, T, A]`.

        Raises:
            UserError: the rate was changed while an episode ran.
        """
        if self._unsaved.any():
            raise UserError("a member was given another rate during an episode; reset it before saving")
        return {"seed": self._seed.copy(), "taken": self._taken.copy(), "actions": self._actions.copy()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Play every member's episode again up to where it was."""
        self._unsaved[:] = False
        for m in range(len(self._simulators)):
            if state["seed"][m] != _NOT_STARTED:
                self._begin(m, int(state["seed"][m]))
                self._taken[m] = state["taken"][m]
                self._actions[m] = state["actions"][m]
                for action in self._actions[m, : self._taken[m]]:
                    self.observed[m] = self._simulators[m].advance(action.copy()).observed

    def close(self) -> None:
        """Close every simulator."""
        for simulator in self._simulators:
            simulator.close()

    def _begin(self, member: int, seed: int) -> None:
        self._seed[member], self._taken[member], self._unsaved[member] = seed, 0, False
        self._actions[member] = 0.0
        self.observed[member] = self._simulators[member].restart(seed)
