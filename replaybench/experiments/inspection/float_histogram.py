"""Counts of numbers by their leading bits, for quantiles and histograms of any amount of data of unknown range.

Numbers are counted in the 2^20 classes of sign, exponent and 11 leading bits of a float32: 8 MB, one pass, no sampling,
and quantiles with a relative error of 1/2048 (exact for integers below 4096).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_DROPPED: Final = 12
_SIGN: Final = np.uint32(1 << 31)


class FloatHistogram:
    """Counts of numbers.

    Attributes:
        infinite, undefined: number of infinite values and of NaN; quantiles ignore them.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(1 << (32 - _DROPPED), np.int64)
        self.infinite = self.undefined = 0

    def add(self, values: NDArray[Any]) -> None:
        """Count numbers of any shape."""
        with np.errstate(over="ignore"):
            numbers = np.asarray(values, np.float32).reshape(-1)
        finite = numbers[np.isfinite(numbers)]
        undefined = int(np.isnan(numbers).sum())
        self.undefined += undefined
        self.infinite += numbers.size - finite.size - undefined
        bits = (finite + np.float32(0)).view(np.uint32)  # −0 becomes 0
        ordered = np.where(bits < _SIGN, bits | _SIGN, ~bits)  # in the order of the numbers
        np.add.at(self._counts, ordered >> _DROPPED, 1)

    def classes(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the classes that occur, ascending, each as its number next to zero; and their counts."""
        found = np.flatnonzero(self._counts)
        low = found.astype(np.uint32) << _DROPPED
        bits = np.where(low >= _SIGN, low ^ _SIGN, ~(low | np.uint32((1 << _DROPPED) - 1)))
        return bits.view(np.float32).astype(np.float64), self._counts[found]

    def quantiles(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """Return the least numbers that these shares of all finite ones do not exceed; NaN without any."""
        numbers, counts = self.classes()
        if not numbers.size:
            return np.full(len(shares), np.nan)
        upto = np.cumsum(counts)
        rank = np.maximum(np.ceil(np.array(shares) * upto[-1]), 1)
        found: NDArray[np.float64] = numbers[np.searchsorted(upto, rank)]
        return found
