"""Sampling with a geometric distribution of ages, `TruncGeo` (Korniak et al., 2026)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from replaybench.replay.orders.priority_sums import AgeState, age_place
from replaybench.replay.storage.columns import Indices
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling, Sampling
from replaybench.replay.strategies.recent import RunningByAge
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_double

_FLATTEST: Final = 1e-6
"""Largest decay over the whole buffer that counts as uniform, so that no quotient of two tiny numbers is computed."""
_STEEPEST: Final = 700.0
"""Decay above which e^(−decay) counts as 0, because e^decay overflows soon after."""


@dataclass(frozen=True)
class TruncGeo(Sampling):
    """Sampling with a truncated geometric distribution of ages (Korniak et al., 2026, after the paper's abstract).

    The experience of age k, where the newest has k = 0, is drawn with P(k) = p (1 − p)^k / (1 − (1 − p)^N), for N
    stored experiences. The parameter is the mean age in a full buffer as a share of its capacity C. With x that solves
    1/x − 1/(e^x − 1) = `mean_age`, p = 1 − e^(−x/C). With `FULL` retention, C is the number of stored experiences. The
    largest mean age, 0.5, is uniform sampling.
    """

    mean_age: float = 0.25
    independent = steady = by_place = True

    def __post_init__(self) -> None:
        if not 0.001 <= self.mean_age <= 0.5:
            raise UserError(
                f"TruncGeo({self.mean_age:g}): the mean age is a share of the capacity, from 0.001 to 0.5 (uniform)"
            )

    @property
    def decay(self) -> float:
        """Logarithm of the ratio of the newest experience's probability to that of the oldest, x in the formula."""
        if _mean(_FLATTEST) <= self.mean_age:
            return 0.0
        return float(brentq(lambda x: _mean(x) - self.mean_age, _FLATTEST, 1 / self.mean_age, xtol=1e-14))

    def slot_bytes(self, in_turn: bool) -> int:
        return 0 if in_turn else 15

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningTruncGeo(self.decay, view)


def _mean(x: float) -> float:
    """Return the mean of the density ∝ e^(−x·t) on 0 ≤ t ≤ 1."""
    return 1 / x - (1 / math.expm1(x) if x < _STEEPEST else 0.0)


class _RunningTruncGeo(RunningByAge):
    def __init__(self, decay: float, view: BufferView) -> None:
        super().__init__(view)
        self.decay = decay

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        rate = self.decay / (np.full(len(count), self.view.capacity) if self.view.bounded else count)
        ring = self.view.capacity if self.view.in_turn else 0
        _draw_geometric(self.stream.state, self.ages.state, ring, rate, count, offers, draws)


@kernel
def _draw_geometric(
    stream: NDArray[np.uint64], ages: AgeState, ring: int, rate: Floats, count: Indices, offers: Indices, draws: Draws
) -> None:
    """Draw ages k with P(k) ∝ e^(−rate·k). `ring` is the number of slots if they are in age order, else 0."""
    for m in range(draws.idx.shape[0]):
        flat = rate[m] * count[m] <= _FLATTEST
        for b in range(draws.idx.shape[1]):
            share = next_double(stream[m])
            if flat:
                age, draws.probability[m, b] = share * count[m], 1.0 / count[m]
            else:
                whole = np.expm1(-rate[m] * count[m])
                age = np.floor(-np.log1p(share * whole) / rate[m])
                draws.probability[m, b] = np.expm1(-rate[m]) * np.exp(-rate[m] * age) / whole
            k = min(int(age), count[m] - 1)
            draws.idx[m, b] = (offers[m] - 1 - k) % ring if ring else ages.slot_at[m, age_place(ages, m, count[m], k)]
