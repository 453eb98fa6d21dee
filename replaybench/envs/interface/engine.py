"""What moves the members of a population: the same few methods for equations, simulators and other people's code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream
from replaybench.envs.interface.signals import Signals


class Engine(ABC):
    """M members of a plant in motion, in physical units, without noise and without time limits.

    Args:
        num_envs: number of members M.
        states: width S of what can be observed.
        frequency: samples per second [Hz].

    Attributes:
        observed: float64 `[M, S]`, physical, what each member would show a perfect sensor.
        reward: float64 `[M]`, unscaled, of the last step.
        terminated: bool `[M]`, whether that step ended the task for good.
        truncated: bool `[M]`, whether it ended the episode although the task could go on, for a reason other than the
            plant's time limit.
        event: int64 `[M]`, bits that say what happened in it.
        draws: the members' random numbers, the same that `restart` is given, for what happens by chance within an
            episode; set by the population, which saves and restores their state.
        frequency: may be set between episodes through `set_frequency`.
    """

    draws: Stream

    def __init__(self, num_envs: int, states: int, frequency: float) -> None:
        self.observed = np.zeros((num_envs, states))
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)
        self.event = np.zeros(num_envs, np.int64)
        self.set_frequency(frequency)

    def set_frequency(self, frequency: float) -> None:
        """Sample at another rate [Hz]."""
        self.frequency = frequency

    @abstractmethod
    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Bring the chosen members `[M]` to the start of an episode and write their `observed`.

        Randomness comes from `draws`, from the chosen members' streams only (`draws.uniform(count, chosen)`); the other
        members stay as they are, bit for bit.
        """

    @abstractmethod
    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance the running members `[M]` by one sample under the physical `action` `[M, A]`.

        Their rows of `observed`, `reward` and `terminated` are written, and where there is something to say, those of
        `event` and `truncated`. Before, `reward`, `event` and `truncated` are 0; the other members' rows, and all that
        they depend on, are left as they are.
        """

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all state besides `observed` and `terminated`, arrays `[M, ...]` by name."""
        return {}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:  # noqa: B027 (some engines have no further state)
        """Continue from what `get_state` returned, bit for bit; the caller restores `observed` and `terminated`."""

    def infos(self) -> dict[str, NDArray[Any]]:
        """Return further facts of the last step, such as the terms of the reward, fresh arrays `[M, ...]` by name."""
        return {}

    def frame(self, member: int) -> NDArray[np.uint8] | None:
        """Return a picture uint8 `[height, width, 3]` of a member; None where the plant's own drawing is to be used."""
        return None

    def close(self) -> None:  # noqa: B027 (most engines have nothing to free)
        """Free what Python does not free by itself, such as processes; nothing may be called afterwards."""

    def step(self, signals: Signals, running: NDArray[np.bool_]) -> None:
        """Disturb the commanded actions, advance the running members, and sense where that brought them."""
        clear(self.reward, self.event, self.truncated)
        self.advance(signals.disturbed(running), running)
        self.sense(signals, running)

    def sense(self, signals: Signals, chosen: NDArray[np.bool_]) -> None:
        """Let the chosen members' sensors see them."""
        signals.sense(self.observed, chosen)


@kernel
def clear(reward: NDArray[np.float64], event: NDArray[np.int64], truncated: NDArray[np.bool_]) -> None:
    """Forget what the last step led to, `[M]` each."""
    for m in range(reward.size):
        reward[m], event[m], truncated[m] = 0.0, 0, False
