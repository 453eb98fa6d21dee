"""Recency and entropy of replayed experiences (Korniak et al., 2026; only the abstract was available)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices
from replaybench.runtime import elementwise
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.kernel import kernel

REPLAYED: Final = {
    "recency": "mean age of replayed experiences, divided by the number of stored ones (0: the newest)",
    "entropy": "entropy of replay, divided by that of uniform replay",
}
"""The statistics of replayed experiences, with descriptions."""


class ReplayTally:
    """The draws of M members while their buffers do not change, and statistics of these draws."""

    def __init__(self) -> None:
        self._idx: list[Indices] = []
        self._probability: list[Floats] = []

    def count(self, idx: Indices, probability: Floats) -> None:
        """Add draws with their buffer slots and probabilities, shape `[M, n]` each."""
        self._idx.append(idx.copy())
        self._probability.append(probability.copy())

    def measure(self, serial: NDArray[np.uint32], collected: Integers, stored: Integers) -> dict[str, Floats]:
        """Return recency and entropy of the draws, shape `[M]` each, or NaN for members without experiences.

        Recency is the mean age k of the draws, divided by N, where k = 0, …, N − 1 and 0 is the newest of the N stored
        experiences. Uniform draws have 1/2 − 1/(2N).

        Entropy is divided by ln N, so that uniform draws have 1. If the probabilities P of all draws are known, it is
        the mean of −ln P over the draws. Otherwise it is estimated from the numbers of draws of each experience, with a
        correction for experiences that were not drawn (Chao & Shen, 2003).

        Args:
            serial: Serial number of the experience in each slot, shape `[M, N]`.
            collected: Number of experiences that each member has collected, shape `[M]`.
            stored: Number of experiences in each buffer, shape `[M]`.
        """
        if not self._idx:
            return {name: np.full(len(stored), np.nan) for name in REPLAYED}
        idx, count = np.concatenate(self._idx, axis=1), np.maximum(stored, 1)
        information = -elementwise.log(np.concatenate(self._probability, axis=1)).mean(axis=1)
        for m in np.flatnonzero(np.isnan(information)):
            information[m] = _estimated_entropy(np.unique_counts(idx[m]).counts)
        recency = _mean_ages(idx, serial, collected, stored) / count
        entropy = np.where(count == 1, 1.0, information / elementwise.log(np.maximum(count, 2.0)))
        return {name: np.where(stored > 0, own, np.nan) for name, own in zip(REPLAYED, (recency, entropy), strict=True)}


def _estimated_entropy(counts: Integers) -> float:
    """Return the entropy of a distribution of which n draws gave these counts, shape `[K]` (Chao & Shen, 2003)."""
    n = int(counts.sum())
    covered = 1 - min(int((counts == 1).sum()), n - 1) / n
    share = covered * counts / n
    return float(-(share * elementwise.log(share) / (1 - (1 - share) ** n)).sum())


@kernel
def _mean_ages(idx: Indices, serial: NDArray[np.uint32], collected: Integers, stored: Integers) -> Floats:
    """Return the mean number of stored experiences that are newer than a draw, shape `[M]`."""
    means = np.zeros(idx.shape[0])
    for m in range(idx.shape[0]):
        newer = np.zeros(collected[m] + 2, np.int64)
        for slot in range(stored[m]):
            newer[serial[m, slot] - 1] = 1
        for number in range(collected[m], -1, -1):
            newer[number] += newer[number + 1]
        for slot in idx[m] if stored[m] > 0 else idx[m, :0]:
            means[m] += newer[serial[m, slot]] / idx.shape[1]
    return means
