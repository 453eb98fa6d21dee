"""Engines: the methods that step the members of a population, and the number of threads they use."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

VARIABLE: Final = "REPLAYBENCH_THREADS"


def thread_count() -> int:
    """Return the threads of a simulator's engine, from `REPLAYBENCH_THREADS`; 1 if it is not set.

    Results do not depend on it. Sweeps use every core without threads; threads speed up a single population.

    Raises:
        UserError: it is not a whole number of 1 or more.
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
        observed: float64 `[M, S]`, physical and exact.
        reward: float64 `[M]`, unscaled, of the last step.
        terminated: bool `[M]`, whether that step ended the task for good.
        truncated: bool `[M]`, whether it ended the episode for a reason other than the plant's time limit.
        event: int64 `[M]`, bits for events in the last step.
        draws: the members' random streams for randomness within an episode; the population sets and saves them.
        frequency: as given.
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

        Random numbers come from the chosen members' streams only (`draws.uniform(count, chosen)`); the other members
        stay as they are, bit for bit.
        """

    @abstractmethod
    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance the running members `[M]` by one sample under the physical `action` `[M, A]`.

        Write their rows of `observed`, `reward` and `terminated`, and of `event` and `truncated` if these are not 0. On
        entry `reward`, `event` and `truncated` are 0; the other members' rows and state stay as they are.
        """

    def changing(self) -> dict[str, NDArray[Any]]:
        """Return all arrays `[M, ...]` that change as members move, besides `observed` and `terminated`, by name."""
        return {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all state besides `observed` and `terminated`, arrays `[M, ...]` by name."""
        return {name: array.copy() for name, array in self.changing().items()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a result of `get_state`, bit for bit; the caller restores `observed` and `terminated`."""
        for name, array in self.changing().items():
            array[:] = state[name]

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return further facts of the last step, such as the terms of the reward, fresh arrays `[M, ...]` by name."""
        return {}

    def frame(self, member: int) -> NDArray[np.uint8] | None:
        """Return a picture uint8 `[height, width, 3]` of a member; None selects the plant's own drawing."""
        return None

    def close(self) -> None:  # noqa: B027 (most engines have nothing to free)
        """Free resources that Python does not free; the engine cannot be used afterwards."""
