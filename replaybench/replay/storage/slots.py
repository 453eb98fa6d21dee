"""Which slots new experiences go to, and which still hold what was drawn from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.arrays import Indices

Bools = NDArray[np.bool_]


@kernel
def offer(offered: Bools, count: Indices, capacity: int, offers: Indices, slots: Indices) -> bool:
    """Count offers; fill in the next free slot of those who offer, −2 where there is none, −1 for the others.

    Returns whether retention has to choose.
    """
    full = False
    for m in range(slots.size):
        offers[m] += offered[m]
        slots[m] = -1 if not offered[m] else count[m] if count[m] < capacity else -2
        full |= slots[m] == -2
    return full


@kernel
def mask_evicted(serial: NDArray[np.uint32], idx: Indices, drawn: NDArray[np.uint32], live: Indices) -> None:
    """Copy slots idx `[M, B]`, with −1 where the slot has another occupant than the one drawn, or had none."""
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            live[m, b] = idx[m, b] if serial[m, idx[m, b]] == drawn[m, b] > 0 else -1
