"""The interface of engines, which step the members of a population, and their number of threads."""

import os
from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

VARIABLE: Final = "REPLAYBENCH_THREADS"


def thread_count() -> int:
    """Return the number of threads of a simulator's engine: `REPLAYBENCH_THREADS`, or 1 if that is not set.

    Results do not depend on it. Sweeps use every core without threads; threads speed up a single population.

    Raises:
        UserError: the variable is not a whole number of 1 or more.
    """
    text = os.environ.get(VARIABLE, "1").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{VARIABLE} is {text!r}; give a whole number of 1 or more, or unset it")
    return int(text)


class Engine(ABC):
    """M members of a plant, in physical units, without noise and without time limits.

    Args:
        num_envs: number of members M.
        states: number S of observable states.
        frequency: samples per second [Hz].

    Attributes:
        observed: float64 `[M, S]`, in physical units and without noise.
        reward: float64 `[M]`, unscaled, of the last step.
        terminated: bool `[M]`, whether that step reached a terminal state.
        truncated: bool `[M]`, whether it ended the episode for a reason other than the plant's time limit.
        event: int64 `[M]`, the events in the last step as bits.
        draws: the members' random streams for randomness within an episode; the population sets and saves them.
        frequency: samples per second [Hz].
    """

    draws: Stream

    def __init__(self, num_envs: int, states: int, frequency: float) -> None:
        self.observed = np.zeros((num_envs, states))
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)
        self.event = np.zeros(num_envs, np.int64)
        self.frequency = frequency

    @abstractmethod
    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Start an episode of the chosen members `[M]` and write their `observed`.

        Draw random numbers from the chosen members' streams only (`draws.uniform(count, chosen)`); do not change the
        other members.
        """

    @abstractmethod
    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance the running members `[M]` by one sample under the physical `action` `[M, A]`.

        Write their rows of `observed`, `reward` and `terminated`, and of `event` and `truncated` if these are not 0. On
        entry `reward`, `event` and `truncated` are 0. Do not change the other members' rows and state.
        """

    def changing(self) -> dict[str, NDArray[Any]]:
        """Return all arrays `[M, ...]` that change during an episode, except `observed` and `terminated`, by name."""
        return {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the complete state except `observed` and `terminated`, arrays `[M, ...]` by name."""
        return {name: array.copy() for name, array in self.changing().items()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a result of `get_state`, bit for bit; the caller restores `observed` and `terminated`."""
        for name, array in self.changing().items():
            array[:] = state[name]

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return further results of the last step, such as the terms of the reward, new arrays `[M, ...]` by name."""
        return {}

    def frame(self, member: int) -> NDArray[np.uint8] | None:
        """Return a picture uint8 `[height, width, 3]` of a member; None selects the plant's own drawing."""
        return None

    def close(self) -> None:  # noqa: B027 (most engines have nothing to free)
        """Free resources that Python does not free; the engine cannot be used afterwards."""
