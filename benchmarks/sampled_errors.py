"""`benchmarks/sampled_errors.py:SACErrors`, SAC that also returns the TD errors of what it replays.

Sun et al. (2020, Figure 2) draw them by sampling on HalfCheetah; `sampled-errors.toml` runs the three.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.algorithms.sac import SAC, SACConfig
from replaybench.controllers.interface.agent import Batch, LearnerSetting
from replaybench.runtime.arrays import AnyFloats


@dataclass(frozen=True, kw_only=True)
class SACErrorsConfig(SACConfig):
    """Settings of SAC."""


class SACErrors(SAC):
    """SAC with the metric `td_error`: the mean |δ| over all batches since the last greedy episode, both critics'."""

    metric_names = ("temperature", "td_error")

    def __init__(self, config: SACErrorsConfig, setting: LearnerSetting) -> None:
        super().__init__(config, setting)
        self.sums = np.zeros((len(setting.members), 2))  # of batches' means, and how many

    def update(self, batch: Batch) -> Mapping[str, AnyFloats]:
        """Learn from a batch, and add up its TD errors."""
        found = super().update(batch)
        self.sums += np.abs(found["td_error"]).mean(axis=1, dtype=np.float64)[:, None] * (1, 0) + (0, 1)
        return found

    def metrics(self, stored: Mapping[str, AnyFloats]) -> Mapping[str, NDArray[Any]]:
        """Return those of SAC, and the mean; begin anew."""
        total, count = self.sums.T.copy()
        self.sums[:] = 0
        mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
        return {**super().metrics(stored), "td_error": mean}

    def _extra_state(self) -> dict[str, NDArray[Any]]:
        return {**super()._extra_state(), "td_error_sums": self.sums}
