"""Named random streams, one per member and purpose, which are the only source of randomness in the project.

A member is one of several independent learners, or copies of a plant. Its draws depend only on the root seed, the
member number and the purpose. They do not depend on the number of members or threads. Each stream is NumPy's
`SFC64(SeedSequence(root, spawn_key=(member, purpose)))`. The state is four uint64, so that Numba kernels can draw in
place and a checkpoint is one small array.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.runtime.errors import unknown
from replaybench.runtime.kernel import kernel

PURPOSES: Final = (
    "initialisation",
    "exploration",
    "sensor",
    "actuator",
    "retention",
    "sampling",
    "evaluation sensor",
    "evaluation actuator",
    "random controller",
    "drop",
    "synthesis",
    "stream",
    "update",
    "initial state",
    "evaluation initial state",
    "warm-up",
    "jitter",
    "evaluation jitter",
    "disturbance",
    "evaluation disturbance",
    "course",
    "evaluation course",
    "sampled control",
    "spread",
    "evaluation spread",
    "mix",
)
"""Purposes of streams. The index in this tuple is part of every seed, so append purposes and never reorder them."""

_TO_UNIT_INTERVAL: Final = 2.0**-53


@kernel
def next_uint64(s: NDArray[np.uint64]) -> Any:
    """Return 64 random bits from an SFC64 generator, and advance its state `s`, which is (a, b, c, counter)."""
    out = s[0] + s[1] + s[3]
    s[3] += np.uint64(1)
    s[0] = s[1] ^ (s[1] >> np.uint64(11))
    s[1] = s[2] + (s[2] << np.uint64(3))
    s[2] = ((s[2] << np.uint64(24)) | (s[2] >> np.uint64(40))) + out
    return out


@kernel
def next_double(s: NDArray[np.uint64]) -> Any:
    """Return a random float64 in [0, 1), which equals NumPy's `Generator.random` for the same SFC64 state `s`."""
    return (next_uint64(s) >> np.uint64(11)) * _TO_UNIT_INTERVAL


@kernel
def next_below(s: NDArray[np.uint64], n: int) -> int:
    """Return a random integer in [0, n) from an SFC64 state `s`, with a relative bias of order n · 2⁻⁵³."""
    return int(next_double(s) * n)


@kernel
def next_normal(s: NDArray[np.uint64]) -> Any:
    """Return a standard normal float64 from an SFC64 state `s` by the Box-Muller transform, with two uniform draws."""
    radius = np.sqrt(-2.0 * np.log(1.0 - next_double(s)))
    return radius * np.cos(2.0 * np.pi * next_double(s))


@kernel
def _fill_uniform(state: NDArray[np.uint64], rows: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = next_double(state[rows[row]])


@kernel
def _fill_normal(state: NDArray[np.uint64], rows: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = next_normal(state[rows[row]])


class Stream:
    """The random streams of M members for one purpose.

    Args:
        root: Root seed of the study.
        members: Numbers of the M members, 0 or above, from which their streams are seeded. Draws of a member therefore
            do not depend on which other members there are.
        purpose: One of `PURPOSES`.

    Attributes:
        state: State of each stream; uint64, shape `[M, 4]`. Kernels advance it in place.
    """

    def __init__(self, root: int, members: Sequence[int], purpose: str) -> None:
        if purpose not in PURPOSES:
            raise unknown("stream of random numbers", purpose, PURPOSES)
        self._members, self._number = members, PURPOSES.index(purpose)
        self.state: NDArray[np.uint64] = np.empty((len(members), 4), np.uint64)
        self.renew(root)

    def renew(self, root: int, chosen: NDArray[np.bool_] | None = None) -> None:
        """Restart the random streams of all members, or of those where `chosen` `[M]` is True, from a root seed."""
        for row in self._rows(chosen).tolist():
            seed = np.random.SeedSequence(root, spawn_key=(self._members[row], self._number))
            self.state[row] = np.random.SFC64(seed).state["state"]["state"]

    def uniform(self, count: int, chosen: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Draw `count` random numbers, uniform in [0, 1), for each of M members.

        The result is float64 of shape `[M, count]`. If `chosen`, bool of shape `[M]`, is given, random numbers are
        drawn only for the chosen members, and the result has a row for each of these.
        """
        rows = self._rows(chosen)
        out = np.empty((len(rows), count))
        _fill_uniform(self.state, rows, out)
        return out

    def normal(self, count: int, chosen: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Draw `count` random standard normal numbers for each of M members.

        The result is float64 of shape `[M, count]`. If `chosen`, bool of shape `[M]`, is given, random numbers are
        drawn only for the chosen members, and the result has a row for each of these.
        """
        rows = self._rows(chosen)
        out = np.empty((len(rows), count))
        _fill_normal(self.state, rows, out)
        return out

    def _rows(self, chosen: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return np.arange(len(self.state)) if chosen is None else np.flatnonzero(chosen)
