"""How much noise the replayed experiences carry (de Bruin et al. 2018, table 6).

Strategies that favour large TD errors also favour noisy samples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.arrays import Floats, State

FIELDS = ("sensor_noise", "actuator_noise")


class NoiseTally:
    """Mean absolute noise, in normalised units, over all experiences replayed so far.

    Attributes:
        total: float64 `[M, S + A]`, summed.
        replays: int64 `[M]`, experiences that each member has replayed.
    """

    def __init__(self, members: int, states: int, actions: int) -> None:
        self.total = np.zeros((members, states + actions))
        self.replays = np.zeros(members, np.int64)

    def count(self, sensor_noise: Floats, actuator_noise: Floats, stored: NDArray[np.bool_]) -> None:
        """Count batches with noise `[M·U, B, S]` and `[M·U, B, A]`, U successive rows of each member.

        It is zero for members that have nothing `stored` `[M]`.
        """
        states, members = sensor_noise.shape[2], len(self.total)
        _add(self.total[:, :states], sensor_noise.reshape(members, -1, states))
        _add(self.total[:, states:], actuator_noise.reshape(members, -1, actuator_noise.shape[2]))
        self.replays += sensor_noise.shape[0] // members * sensor_noise.shape[1] * stored

    def mean(self) -> NDArray[np.float64]:
        """Return the mean `[M, S + A]`; NaN before the first replay."""
        with np.errstate(invalid="ignore"):
            return self.total / self.replays[:, None]

    def state_dict(self, stored: int) -> State:
        """Return the sums."""
        return {"noise_total": self.total, "noise_replays": self.replays}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `state_dict`."""
        self.total[:], self.replays[:] = state["noise_total"], state["noise_replays"]


@kernel
def _add(total: NDArray[np.float64], noise: Floats) -> None:
    for m in range(noise.shape[0]):
        for b in range(noise.shape[1]):
            for d in range(noise.shape[2]):
                total[m, d] += abs(noise[m, b, d])
