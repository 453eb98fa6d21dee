"""The sum of a few numbers in compiled code, with the bits of NumPy's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel


@kernel
def total(values: NDArray[np.float32]) -> np.float32:
    """Return the sum of numbers, up to 128 of them in the order in which NumPy adds them: eight sums side by side."""
    eights, found = values.size - values.size % 8, np.float32(0)
    if eights > 0:
        t = values[:8].copy()
        for i in range(8, eights):
            t[i % 8] += values[i]
        found = ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]))
    for i in range(eights, values.size):
        found += values[i]
    return found
