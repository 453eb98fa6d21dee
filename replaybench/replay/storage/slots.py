"""Units of replay (steps, segments, episodes), and statistics of the noise in sampled experiences.

The statistics show whether a strategy favours noisy samples. Strategies that favour large TD errors do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import State
from replaybench.runtime.arrays import Bools, Floats, Floats32, Integers
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel

_MOST: Final = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class Unit:
    """The type of unit (step, segment or episode) that a buffer stores and samples as a whole.

    Attributes:
        steps: Largest number of successive steps in a unit. They belong to one episode.
        episode: Whether a unit is a whole episode.
    """

    steps: int = 1
    episode: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= _MOST:
            raise UserError(f"a unit of replay has at least 1 and at most {_MOST} steps, not {self.steps}")


STEP = Unit()


def segment(steps: int) -> Unit:
    """Return the type of unit for buffers that store and sample segments of at most `steps` steps."""
    return Unit(steps)


def episode(most: int) -> Unit:
    """Return the type of unit for buffers that store and sample whole episodes of at most `most` steps."""
    return Unit(most, episode=True)


class Assembly:
    """The unit (segment or episode) that each member is collecting, and the lengths of its stored units.

    Attributes:
        rows: Steps of each member's unfinished unit; float32, shape `[M, steps · W]` for W values per step.
        filled: Number of steps in each unfinished unit; int64, shape `[M]`.
        length: Number of steps of each stored unit; uint16, shape `[M, N]` for N slots.
    """

    def __init__(self, unit: Unit, members: int, capacity: int, width: int) -> None:
        self.unit, self.width = unit, width
        self.rows = np.zeros((members, unit.steps * width), np.float32)
        self.filled = np.zeros(members, np.int64)
        self.length = np.zeros((members, capacity), np.uint16)

    def extend(self, row: Floats32, active: Bools, ended: Bools) -> Bools:
        """Append the step `row[m]` of each active member to the member's unit, a segment or episode.

        `ended` `[M]` marks members whose episode ends with this step, and with it the unit.

        Returns:
            Whether each member's unit is complete; bool, shape `[M]`.
        """
        if self.unit.episode and (active & (self.filled == self.unit.steps)).any():
            raise OverflowError(f"an episode is longer than the {self.unit.steps} steps of its unit of replay")
        steps = self.rows.reshape(len(self.rows), -1, self.width)
        steps[active, self.filled[active]] = row[active]
        self.filled += active
        full = self.filled == self.unit.steps if not self.unit.episode else ended
        complete: Bools = active & (full | ended)
        return complete

    def finish(self, complete: Bools, slots: Integers) -> None:
        """Record the lengths of complete units (segments or episodes), and begin new units.

        `slots[m]` is the buffer slot in which the unit of member m was stored, or −1 if it was discarded.
        """
        stored = np.flatnonzero(complete & (slots >= 0))
        self.length[stored, slots[stored]] = self.filled[stored]
        self.rows[complete] = 0
        self.filled[complete] = 0

    def lengths(self, idx: Integers) -> NDArray[np.uint16]:
        """Return the number of steps in each sampled slot `idx` `[M·U, B]`, for U batches of each member."""
        length: NDArray[np.uint16] = np.take_along_axis(self.length, idx.reshape(len(self.length), -1), axis=1)
        return length.reshape(idx.shape)

    def state_dict(self, stored: int) -> State:
        return {"unit_rows": self.rows, "unit_filled": self.filled, "length": self.length[:, :stored]}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        filled = np.asarray(state["unit_filled"])
        if ((filled < 0) | (filled > self.unit.steps - (not self.unit.episode))).any():
            raise ValueError(f"an incomplete unit does not fit into {self.unit.steps} steps")
        self.rows[:], self.filled[:] = state["unit_rows"], filled
        self.length[:, : state["length"].shape[1]] = state["length"]


def mean_over_steps(values: Floats32, length: NDArray[np.uint16]) -> Floats32:
    """Return the mean of `values` `[M, B, steps]` over the first `length` `[M, B]` steps of each sample."""
    own = np.arange(values.shape[2]) < length[:, :, None]
    total = np.where(own, values, 0).sum(axis=2)
    mean: Floats32 = (total / np.maximum(length, 1)).astype(np.float32)
    return mean


FIELDS = ("sensor_noise", "actuator_noise")


class NoiseTally:
    """Statistics of the absolute sensor and actuator noise in the sampled experiences, in normalised units.

    Attributes:
        total: Sum of the absolute noise of each state and action; float64, shape `[M, S + A]`.
        replays: Number of experiences that each member has sampled; int64, shape `[M]`.
    """

    def __init__(self, members: int, states: int, actions: int) -> None:
        self.total = np.zeros((members, states + actions))
        self.replays = np.zeros(members, np.int64)

    def count(self, sensor_noise: Floats32, actuator_noise: Floats32, stored: Bools) -> None:
        """Update the statistics with the noise of new samples, for U batches of B samples per member.

        Args:
            sensor_noise: Noise of the observations, shape `[M·U, B, S]`. It must be 0 for members without experiences.
            actuator_noise: Noise of the actions, shape `[M·U, B, A]`. It must be 0 for members without experiences.
            stored: Whether the buffer of each member contains experiences, so that its samples are counted.
        """
        states, members = sensor_noise.shape[2], len(self.total)
        _add(self.total[:, :states], sensor_noise.reshape(members, -1, states))
        _add(self.total[:, states:], actuator_noise.reshape(members, -1, actuator_noise.shape[2]))
        self.replays += sensor_noise.shape[0] // members * sensor_noise.shape[1] * stored

    def mean(self) -> Floats:
        """Return the mean absolute noise in each member's samples, shape `[M, S + A]`, or NaN without samples."""
        with np.errstate(invalid="ignore"):
            return self.total / self.replays[:, None]

    def state_dict(self, stored: int) -> State:
        return {"noise_total": self.total, "noise_replays": self.replays}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.total[:], self.replays[:] = state["noise_total"], state["noise_replays"]


@kernel
def _add(total: Floats, noise: Floats32) -> None:
    for m in range(noise.shape[0]):
        for b in range(noise.shape[1]):
            for d in range(noise.shape[2]):
                total[m, d] += abs(noise[m, b, d])
