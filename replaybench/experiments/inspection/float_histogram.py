"""Counts of numbers by their leading bits, for quantiles and histograms of any amount of data of unknown range.

Numbers are counted in at most 2^20 classes of equal sign, exponent and 11 leading bits of a float32: one pass, no
sampling, and quantiles with a relative error of 1/2048 (exact for integers below 4096).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_KEPT: Final = np.uint32(~0xFFF & 0xFFFFFFFF)


class FloatHistogram:
    """Counts of numbers.

    Attributes:
        numbers: the number next to zero of each class that occurs, float32 ascending; counts: of each, int64.
        infinite, undefined: number of infinite values and of NaN, which have no class.
    """

    def __init__(self) -> None:
        self.numbers, self.counts = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self.infinite = self.undefined = 0

    def add(self, values: NDArray[Any]) -> None:
        """Count numbers of any shape."""
        with np.errstate(over="ignore"):
            numbers = np.asarray(values, np.float32).reshape(-1)
        finite, undefined = numbers[np.isfinite(numbers)], int(np.isnan(numbers).sum())
        self.undefined += undefined
        self.infinite += numbers.size - finite.size - undefined
        near = (finite.view(np.uint32) & _KEPT).view(np.float32)
        self.numbers, place = np.unique(np.concatenate([self.numbers, near]), return_inverse=True)
        weights = np.concatenate([self.counts, np.ones(len(near), np.int64)])
        self.counts = np.bincount(place, weights, len(self.numbers)).astype(np.int64)

    def quantiles(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """Return the least numbers that these shares of all finite ones do not exceed; NaN without any."""
        if not self.numbers.size:
            return np.full(len(shares), np.nan)
        upto = np.cumsum(self.counts)
        rank = np.maximum(np.ceil(np.array(shares) * upto[-1]), 1)
        found: NDArray[np.float64] = self.numbers[np.searchsorted(upto, rank)].astype(np.float64)
        return found
