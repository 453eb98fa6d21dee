"""P ∝ rank^−α: the distribution from which ranks are drawn (Schaul et al. 2016; de Bruin et al. 2018, eq. 7).

Its cumulative sums Σ_{r ≤ k} r^−α are tabulated for k ≤ 1024 (`first_sums`, the argument `sums` of the functions here).
The Euler–Maclaurin formula gives the others, up to rounding.
"""

from typing import Final

import numpy as np

from replaybench.runtime import elementwise
from replaybench.runtime.arrays import Floats, Integers
from replaybench.runtime.kernel import kernel

_HEAD: Final = 1024  # the formula's first neglected term is then below 1e-16 of the sum for every α of use

Sums = Floats


def first_sums(alpha: float) -> Sums:
    """Return Σ_{r ≤ k} r^−α for k = 0 … 1024."""
    return np.concatenate([[0.0], np.cumsum(elementwise.power(np.arange(1.0, _HEAD + 1), -alpha))])


@kernel
def partial_sum(sums: Sums, alpha: float, k: int) -> float:
    """Return Σ_{r ≤ k} r^−α, where `sums` is `first_sums(alpha)`."""
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
    """Return the largest k ≤ `count` with Σ_{r ≤ k} r^−α ≤ `mass`."""
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
    """Cut ranks 0 … count−1 into B ≤ count segments of equal probability: segment b is edges[b] … edges[b+1]−1.

    Each segment has at least one rank; if the distribution is steep, this moves later edges up.
    """
    segments = edges.size - 1
    edges[0], edges[segments] = 0, count
    total = partial_sum(sums, alpha, count)
    for b in range(1, segments):
        quantile = ranks_below(sums, alpha, count, total * b / segments)
        edges[b] = min(max(quantile, edges[b - 1] + 1), count - segments + b)


@kernel
def rank_in_segment(edges: Integers, segment: int, share: float) -> tuple[int, int]:
    """Return the rank at the fraction `share` of a segment, and the segment's width."""
    low = edges[segment]
    width = edges[segment + 1] - low
    return low + int(share * width), width


@kernel
def rank_at(sums: Sums, alpha: float, count: int, share: float) -> tuple[int, float]:
    """Return the rank (from 0) at which the cumulative probability reaches `share`, and its own probability."""
    total = partial_sum(sums, alpha, count)
    rank = min(ranks_below(sums, alpha, count, share * total), count - 1)
    return rank, (rank + 1.0) ** -alpha / total
