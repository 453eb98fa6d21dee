"""Sums of priorities over a range of positions: how much lies in it, and which position of it holds the p-th part.

A range is made up of whole nodes of the tree (`replaybench.replay.orders.priority_sums`), which are added up by
themselves: a difference of two sums from the start would lose a range next to one priority 10¹⁶ times as large.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.orders.priority_sums import FAN, SumState, sum_descend


class Cover(NamedTuple):
    """The nodes that make up one range or several, in order; entry [0] of `upto` is 0.

    Attributes:
        node: int64 `[K]`, a node's place in its level.
        level: int64 `[K]`, 0 for single positions, i for sums of 16^i of them.
        upto: float64 `[K + 1]`, the sum of all earlier nodes.
    """

    node: NDArray[np.int64]
    level: NDArray[np.int64]
    upto: NDArray[np.float64]


@kernel
def cover_room(state: SumState) -> Cover:
    """Return room for the nodes of two ranges."""
    most = 4 * FAN * (state.level.size + 1)
    return Cover(np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most + 1))


@kernel
def _add_nodes(state: SumState, m: int, level: int, start: int, stop: int, cover: Cover, count: int) -> int:
    """Append those nodes of a level that have any priority."""
    for node in range(start, stop):
        value = np.float64(state.leaf[m, node]) if level == 0 else state.sums[m, state.level[level - 1] + node]
        if value > 0:
            cover.node[count], cover.level[count] = node, level
            cover.upto[count + 1] = cover.upto[count] + value
            count += 1
    return count


@kernel
def cover_range(state: SumState, m: int, start: int, stop: int, cover: Cover, count: int) -> int:
    """Append the nodes that make up the positions [start, stop), not empty, to `count` others; return how many."""
    ends = np.empty(state.level.size + 1, np.int64)
    level = 0
    while start < stop and start // FAN != (stop - 1) // FAN:
        whole = -(-start // FAN)
        count = _add_nodes(state, m, level, start, whole * FAN, cover, count)
        ends[level] = stop
        start, stop = whole, stop // FAN
        level += 1
    count = _add_nodes(state, m, level, start, stop, cover, count)
    for below in range(level - 1, -1, -1):
        count = _add_nodes(state, m, below, ends[below] // FAN * FAN, ends[below], cover, count)
    return count


@kernel
def cover_search(
    state: SumState, m: int, cover: Cover, count: int, target: NDArray[np.float64], position: NDArray[np.int64]
) -> None:
    """Fill `position[B]` with the first of the covered ones whose cumulative priority exceeds each of `target[B]`.

    Targets ascend, and are used up. One that rounding has put beyond the end gives the last position with any priority.
    """
    level, k = np.empty(target.size, np.int64), 0
    for b in range(target.size):
        while k < count - 1 and target[b] >= cover.upto[k + 1]:
            k += 1
        target[b] -= cover.upto[k]
        position[b], level[b] = cover.node[k], cover.level[k]
    sum_descend(state, m, level, target, position)
