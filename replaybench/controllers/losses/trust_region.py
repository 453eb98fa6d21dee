"""The trust region of Wang et al. (2017), section 3.3: a projection in the space of a policy's statistics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel


@kernel
def project(g: NDArray[np.float64], k: NDArray[np.float64], delta: float) -> None:
    """Replace g by z* = g − max{0, (kᵀg − δ)/‖k‖²} k, the nearest z with kᵀz ≤ δ (eq. 11 and 12).

    g `[n]` is a policy gradient with respect to the statistics φ of one state's policy, k `[n]` the gradient of
    D_KL(average policy ‖ policy) with respect to them, δ > 0; δ = ∞ leaves g as it is.
    """
    along, square = 0.0, 0.0
    for i in range(g.size):
        along += k[i] * g[i]
        square += k[i] * k[i]
    excess = (along - delta) / square
    if not excess <= 0.0:  # NaN passes on: a failed member must be seen
        for i in range(g.size):
            g[i] -= excess * k[i]
