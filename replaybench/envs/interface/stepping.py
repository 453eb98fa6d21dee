"""A population's step as calls of kernels, to be made again and again without Python between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call


class Stepping(NamedTuple):
    """Calls of kernels that do what `PopulationEnv.step` does, and what they leave behind each time.

    Attributes:
        action: float32 `[M, A]`, to be filled in before.
        calls: to be made in turn, while a member is `running`, bool `[M]`.
        observation, sensor_noise: float32 `[M, S]`, before the first call, too; actuator_noise: float32 `[M, A]`;
            reward: float64 `[M]`; terminated: bool `[M]`; over: bool `[M]`, whose episode has ended in whatever way.
        most: steps until the time of one of the running members is over.
    """

    action: NDArray[np.float32]
    calls: Sequence[Call]
    observation: NDArray[np.float32]
    sensor_noise: NDArray[np.float32]
    actuator_noise: NDArray[np.float32]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    over: NDArray[np.bool_]
    running: NDArray[np.bool_]
    most: int
