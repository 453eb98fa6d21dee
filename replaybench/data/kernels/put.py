"""Copies as a call of a kernel, for rows of calls in which one array is filled from another."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from replaybench.data.kernel import kernel


@kernel
def put(values: NDArray[Any], place: NDArray[Any]) -> None:
    """Copy values `[M, width]` of any type."""
    for m in range(place.shape[0]):
        for i in range(place.shape[1]):
            place[m, i] = values[m, i]
