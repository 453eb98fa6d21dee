"""Controllers that learn nothing, as rows of tables, and whether any learner beats random control."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NONE_BEATS_RANDOM: Final = "No learner beats random control"
"""The headline of results in which no learner does."""


def beats_random(final: Floats, random: float) -> bool:
    """Return whether runs end above random control, by the mean of their final rewards `[...]`; failed runs are NaN.

    True where the reward of random control is not known (NaN), False where every run failed.
    """
    finite = final[np.isfinite(final)]
    return bool(np.isnan(random) or (finite.size and finite.mean() > random))
