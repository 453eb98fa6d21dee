"""What a sampler fills in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.arrays import Floats, Indices


class Draws(NamedTuple):
    """What a sampler fills in.

    Attributes:
        idx: slots int64 `[M, B]`.
        probability: chance of each draw, float64 `[M, B]`; NaN where it is not known.
        rate_factor: factor on each member's learning rate, float32 `[M]`.
    """

    idx: Indices
    probability: NDArray[np.float64]
    rate_factor: Floats
