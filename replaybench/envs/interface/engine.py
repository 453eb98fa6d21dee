"""The interface of engines. An engine is a simulator that advances M independent copies (members) of a plant."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.errors import UserError
from replaybench.runtime.streams import Stream

VARIABLE: Final = "REPLAYBENCH_THREADS"


def thread_count() -> int:
    """Return the number of threads that a simulator uses for one population.

    The environment variable `REPLAYBENCH_THREADS` sets the number. The default is 1. Results do not depend on the
    number. The worker processes of a study keep every core busy, so threads speed up only a single population.

    Raises:
        UserError: The variable is not a whole number of 1 or more.
    """
    text = os.environ.get(VARIABLE, "1").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{VARIABLE} is {text!r}; give a whole number of 1 or more, or unset it")
    return int(text)


class Engine(ABC):
    """The base class of simulators of M members, which are independent copies of one plant.

    States and actions are in physical units. A simulator adds no noise to actions and observations, and has no time
    limit. `PopulationEnv` adds the noise and the time limit.

    Args:
        num_envs: Number of members M.
        states: Number S of observable states.
        frequency: Control rate [Hz].

    Attributes:
        observed: States of each member in physical units and without noise, float64 `[M, S]`.
        reward: Unscaled reward of each member in the last step, float64 `[M]`.
        terminated: Whether the last step reached a terminal state, bool `[M]`.
        truncated: Whether the simulator ended the episode in the last step without a terminal state, bool `[M]`.
        event: Events in the last step as bits, int64 `[M]`. Each plant defines the meaning of its bits.
        draws: Random streams of the members for randomness within an episode. `PopulationEnv` sets and saves them.
        courses: Random streams of the members for set points and other exogenous states. `PopulationEnv` sets them, and
            engines that use them save them.
        parameters: Random streams of the members for parameters that are drawn for each episode, likewise.
        frequency: Control rate [Hz].
    """

    draws: Stream
    courses: Stream
    parameters: Stream

    def __init__(self, num_envs: int, states: int, frequency: float) -> None:
        self.observed = np.zeros((num_envs, states))
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)
        self.event = np.zeros(num_envs, np.int64)
        self.frequency = frequency

    @abstractmethod
    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Start an episode of the members marked in `chosen` `[M]`, and write their initial states to `observed`.

        Implementations get random numbers from `draws.uniform(count, chosen)`, which uses the streams of the chosen
        members only. Implementations must not change the other members. Members are copies of the plant.
        """

    @abstractmethod
    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance the copies of the plant marked in `running` `[M]` by one step under the physical `action` `[M, A]`.

        Implementations write the rows of these copies in `observed`, `reward` and `terminated`. In `event` and
        `truncated`, only values other than 0 have to be written. The caller sets `reward`, `event` and `truncated` to 0
        before the call. Implementations must not change the rows and states of other copies.
        """

    def advance_pieces(
        self, action: NDArray[np.float64], pieces: NDArray[np.float64], seconds: NDArray[np.float64],
        longest: Sequence[float], running: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Advance the copies of the plant marked in `running` by one step, in which the acting command changes.

        By default, a step has one piece, and the reward is that of the acting command.

        Args:
            action: Physical commands `[M, A]` of which the reward of the step depends.
            pieces: Physical commands that act one after another, `[P, A, M]`.
            seconds: Time for which each of these acts, `[P, M]`. The sum is the control period.
            longest: Largest possible value of each row of `seconds`.
            running: Whether each copy is advanced, `[M]`.
        """
        self.advance(np.ascontiguousarray(pieces[0].T), running)

    def changing(self) -> dict[str, NDArray[Any]]:
        """Return all arrays `[M, ...]` that change during an episode, by name, except `observed` and `terminated`."""
        return {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays `[M, ...]` of the current state by name, except `observed` and `terminated`."""
        return {name: array.copy() for name, array in self.changing().items()}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state that `get_state` returned, bit for bit.

        The caller restores `observed` and `terminated`.
        """
        for name, array in self.changing().items():
            array[:] = state[name]

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return further results of the last step, such as terms of the reward, as new arrays `[M, ...]` by name."""
        return {}

    def frame(self, member: int) -> NDArray[np.uint8] | None:
        """Return an image uint8 `[height, width, 3]` of one copy of the plant, or None if `Plant.draw` draws it."""
        return None

    def close(self) -> None:  # noqa: B027 (most engines have no such resources)
        """Free the resources that Python does not free. The engine cannot be used after this call."""
