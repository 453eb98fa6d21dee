"""`benchmarks/drafting_clock.py:Clocked`: drafting in which the age of an episode is seen, as a memory can hold it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.flow.plant import Drafting
from replaybench.envs.flow.vortex_engine import VortexWake
from replaybench.runtime.streams import Stream

TIMES = (1.0, 2.0, 4.0, 8.0)
"""Constants [T] of the clocks e^(−t/τ): what units that leak at these rates have left of what was in them at first."""


@dataclass(frozen=True, kw_only=True)
class Clocked(Drafting):
    """Drafting with four states more, which tell how long ago the episode began and nothing else."""

    name = "Clocked"
    state_names = (*Drafting.state_names, *(f"clock {time:g}" for time in TIMES))
    state_units = (*Drafting.state_units, *("",) * len(TIMES))
    state_center = (*Drafting.state_center, *(0.0,) * len(TIMES))
    state_scale = (*Drafting.state_scale, *(1.0,) * len(TIMES))

    @property
    def observation_limit(self) -> tuple[float, ...]:
        """Bound on |normalised state|."""
        return (*super().observation_limit, *(1.0,) * len(TIMES))

    def _engine_class(self) -> Any:
        return ClockedWake


class ClockedWake(VortexWake):
    """The wake, with clocks."""

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        """Begin an episode."""
        self.observed[chosen, -len(TIMES) :] = 1.0
        super().restart(chosen, draws)

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        """Advance by one sample."""
        self.observed[running, -len(TIMES) :] *= np.exp(-1.0 / (self.frequency * np.array(TIMES)))
        super().advance(action, running)
