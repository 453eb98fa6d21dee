"""Rank-based probabilities P ∝ rank^−α (Schaul et al., 2016; de Bruin et al., 2018, eq. 7).

The cumulative sums Σ_{r ≤ k} r^−α are tabulated for k ≤ 1024. The Euler–Maclaurin formula gives the sums for larger k,
up to rounding. The argument `sums` of all functions is the table for α that `first_sums` returns.
"""

from typing import Final

import numpy as np

from replaybench.runtime import elementwise
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.kernel import kernel

_HEAD: Final = 1024  # the formula's first neglected term is then below 1e-16 of the sum for every α of use

Sums = Floats


def first_sums(alpha: float) -> Sums:
    """Return the table of the sums Σ_{r ≤ k} r^−α for k = 0 … 1024."""
    return np.concatenate([[0.0], np.cumsum(elementwise.power(np.arange(1.0, _HEAD + 1), -alpha))])


@kernel
def partial_sum(sums: Sums, alpha: float, k: int) -> float:
    """Return the sum Σ_{r ≤ k} r^−α for any k, where `sums` is `first_sums(alpha)`."""
    m = sums.size - 1
    if k <= m:
        return float(sums[k])
    ratio, power = k / m, 1.0 - alpha
    fm, fk = m**-alpha, k**-alpha
    if power == 0.0:
        integral = np.log(ratio)
    elif alpha == 0.0:
        integral = float(k - m)
    else:
        integral = m * fm * np.expm1(power * np.log(ratio)) / power
    slope = -alpha * (fk / k - fm / m) / 12
    third = alpha * (alpha + 1) * (alpha + 2) * (fk / float(k) ** 3 - fm / float(m) ** 3) / 720
    return float(sums[m] + integral + (fk - fm) / 2 + slope + third)


@kernel
def ranks_below(sums: Sums, alpha: float, count: int, mass: float) -> int:
    """Return the largest k ≤ `count` for which Σ_{r ≤ k} r^−α ≤ `mass`, where `sums` is `first_sums(alpha)`."""
    m = sums.size - 1
    if count <= m or mass < sums[m]:
        return int(np.searchsorted(sums[1 : min(count, m) + 1], mass, side="right"))
    power = 1.0 - alpha
    excess = (mass - sums[m]) * m ** (alpha - 1.0)
    log_ratio = excess if power == 0.0 else np.log1p(max(power * excess, -1.0 + 1e-16)) / power
    k = int(min(float(count), m * np.exp(min(log_ratio, 50.0))))
    while k < count and partial_sum(sums, alpha, k + 1) <= mass:
        k += 1
    while k > m and partial_sum(sums, alpha, k) > mass:
        k -= 1
    return k


@kernel
def segment_edges(sums: Sums, alpha: float, count: int, edges: Integers) -> None:
    """Cut the ranks 0 … count − 1 into B segments of equal probability under P ∝ (rank + 1)^−α.

    The result is written to `edges` `[B + 1]`, with B ≤ count. Segment b gets the ranks edges[b] … edges[b + 1] − 1.
    Each segment gets at least one rank. Under a steep distribution, this moves later edges to higher ranks.
    """
    segments = edges.size - 1
    edges[0], edges[segments] = 0, count
    total = partial_sum(sums, alpha, count)
    for b in range(1, segments):
        quantile = ranks_below(sums, alpha, count, total * b / segments)
        edges[b] = min(max(quantile, edges[b - 1] + 1), count - segments + b)


@kernel
def rank_in_segment(edges: Integers, segment: int, share: float) -> tuple[int, int]:
    """Return the rank at a fraction `share`, in [0, 1), of a segment, and the number of ranks in the segment.

    Segment b has the ranks edges[b] … edges[b + 1] − 1.
    """
    low = edges[segment]
    width = edges[segment + 1] - low
    return low + int(share * width), width


@kernel
def rank_at(sums: Sums, alpha: float, count: int, share: float) -> tuple[int, float]:
    """Return the rank at which the cumulative probability reaches `share`, and the probability of that rank.

    Ranks begin at 0 and have the probabilities P ∝ (rank + 1)^−α. `sums` is `first_sums(alpha)`.
    """
    total = partial_sum(sums, alpha, count)
    rank = min(ranks_below(sums, alpha, count, share * total), count - 1)
    return rank, (rank + 1.0) ** -alpha / total
