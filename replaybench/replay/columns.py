"""Stored experiences of a population: `[M, N]` slots, one contiguous float32 row each.

A row holds every field of an experience side by side, so that storing or fetching one costs one cache line, not
one per field; named columns are views. Each slot carries the serial number of its occupant (1 = the member's first
offer, 0 = empty), by which a stale annotation of an evicted experience is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel


class Columns:
    """Room for `capacity` experiences of each member.

    Args:
        members, capacity: M and N.
        fields: width of each field, in storage order.

    Attributes:
        rows: float32 `[M, N, W]`; memory is reserved at once but only touched when written.
        serial: uint32 `[M, N]`.
    """

    def __init__(self, members: int, capacity: int, fields: Mapping[str, int]) -> None:
        self.fields = dict(fields)
        ends = np.cumsum(list(self.fields.values())).tolist()
        self._spans = {
            name: slice(end - width, end) for (name, width), end in zip(self.fields.items(), ends, strict=True)
        }
        self.rows = np.zeros((members, capacity, ends[-1]), np.float32)
        self.serial = np.zeros((members, capacity), np.uint32)

    def column(self, name: str) -> NDArray[np.float32]:
        """Return the view `[M, N, width]` of one field."""
        return self.rows[:, :, self._spans[name]]

    def views(self, rows: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Split gathered rows `[M, B, W]` into named views `[M, B, width]`."""
        return {name: rows[:, :, span] for name, span in self._spans.items()}


@kernel
def write(
    rows: NDArray[np.float32],
    serial: NDArray[np.uint32],
    slots: NDArray[np.int64],
    offers: NDArray[np.int64],
    new: NDArray[np.float32],
) -> None:
    """Store row `new[m]` as offer number `offers[m]` of each member whose slot is not −1."""
    for m in range(slots.size):
        if slots[m] >= 0:
            rows[m, slots[m]] = new[m]
            serial[m, slots[m]] = offers[m]


@kernel
def gather(
    rows: NDArray[np.float32],
    serial: NDArray[np.uint32],
    idx: NDArray[np.int64],
    out: NDArray[np.float32],
    out_serial: NDArray[np.uint32],
) -> None:
    """Fetch slots idx `[M, B]` into out `[M, B, W]` with their serial numbers `[M, B]`."""
    for m in range(idx.shape[0]):
        for b in range(idx.shape[1]):
            slot = idx[m, b]
            out_serial[m, b] = serial[m, slot]
            for w in range(out.shape[2]):
                out[m, b, w] = rows[m, slot, w]
