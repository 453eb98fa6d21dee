"""Sums of priorities over positions: which position holds the p-th part of all priority, after any change.

**Structure**: a tree of fixed shape per member. Leaves are float32 priorities, sixteen to a node and a cache line;
above them, sixteen float64 sums to a node, level upon level. A change adds up the sixteen numbers of each node on
its way to the top afresh. Sums thus depend on the leaves alone: nothing drifts, and a tree loaded from its leaves draws
as the one that was saved. It costs 4.6 bytes a position. Positions are buffer slots, or places in an age log.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.orders.node_vectors import borrow, request
from replaybench.replay.storage.columns import aligned_zeros

FAN: Final = 16


class SumState(NamedTuple):
    """The arrays of M members with P positions, as kernels take them.

    Attributes:
        leaf: float32 `[M, P']`, priorities; P' is P rounded up to whole nodes.
        sums: float64 `[M, Q]`, the sums of all levels, each level padded to whole nodes, the lowest first.
        level: int64 `[L]`, where each level begins in `sums`; the last one is a single node.
    """

    leaf: NDArray[np.float32]
    sums: NDArray[np.float64]
    level: NDArray[np.int64]

    @staticmethod
    def whole() -> tuple[str, ...]:
        """Return the fields that belong to no member."""
        return ("level",)


def make_sums(members: int, positions: int) -> SumState:
    """Return a tree of zeros; untouched memory is not used."""
    count = -(-max(1, positions) // FAN)
    padded, level, begin = count * FAN, [], 0
    while True:
        level.append(begin)
        width = -(-count // FAN) * FAN
        begin += width
        if width == FAN:
            break
        count = width // FAN
    return SumState(
        aligned_zeros((members, padded), np.float32), aligned_zeros((members, begin), np.float64), np.array(level)
    )


@kernel
def _add_up(values: Any, m: int, start: int) -> float:
    """Add sixteen numbers in four chains, always in the same order."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(start, start + 16, 4):
        a += values[m, j]
        b += values[m, j + 1]
        c += values[m, j + 2]
        d += values[m, j + 3]
    return (a + b) + (c + d)


@kernel
def sum_total(state: SumState, m: int) -> float:
    """Return the sum of all priorities of member m."""
    return float(_add_up(state.sums, m, state.level[-1]))


@kernel
def sum_set(state: SumState, m: int, position: int, priority: float) -> None:
    """Give a position a priority ≥ 0."""
    state.leaf[m, position] = priority
    node = position // 16
    state.sums[m, node] = _add_up(state.leaf, m, node * 16)
    for i in range(1, state.level.size):
        node //= 16
        state.sums[m, state.level[i] + node] = _add_up(state.sums, m, state.level[i - 1] + node * 16)


@kernel
def sum_update(state: SumState, m: int, position: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
    """Do `sum_set` for each of `position[B]` and `priority[B]` in turn, skipping positions below 0.

    Nodes near the top are common to many positions: a level with fewer nodes than B is added up once, at the end.
    """
    borrowed, batch, shift, i = borrow(state), position.size, 4, 0
    for b in range(batch):
        if position[b] >= 0:
            request(state.leaf, m * state.leaf.shape[1] + position[b])
            _request_node(borrowed, m, position[b] >> 8 << 4)
    for b in range(batch):
        if position[b] >= 0:
            state.leaf[m, position[b]] = priority[b]
    for b in range(batch):
        if position[b] >= 0:
            node = position[b] >> 4
            state.sums[m, node] = _add_up(borrowed.leaf, m, node << 4)
    for i in range(1, state.level.size):
        nodes = (state.level[i] - state.level[i - 1]) >> 4
        if nodes <= batch:
            for node in range(nodes):
                state.sums[m, state.level[i] + node] = _add_up(borrowed.sums, m, state.level[i - 1] + (node << 4))
            continue
        shift += 4
        for b in range(batch):
            if position[b] >= 0:
                node = position[b] >> shift
                state.sums[m, state.level[i] + node] = _add_up(borrowed.sums, m, state.level[i - 1] + (node << 4))


@kernel
def _request_node(state: SumState, m: int, start: int) -> None:
    request(state.sums, m * state.sums.shape[1] + start)
    request(state.sums, m * state.sums.shape[1] + start + 8)


@kernel
def _pass(values: Any, m: int, start: int, target: float) -> tuple[int, float]:
    """Return how many of sixteen numbers `target` passes, and what is left of it; without branches.

    A target that rounding has put beyond their sum passes all but the last number above 0, and stays beyond.
    """
    passed, before, total = 0, 0.0, 0.0
    for j in range(16):
        total += values[m, start + j]
        before = total if total <= target else before
        passed += total <= target
    if passed < 16:
        return passed, target - before
    last = 0
    for j in range(16):
        last = j if values[m, start + j] > 0 else last
    return last, np.inf


@kernel
def sum_find(state: SumState, m: int, target: float) -> int:
    """Return the first position whose cumulative priority exceeds `target`.

    A target that rounding has put beyond the end gives the last position with any priority.
    """
    child = 0
    for i in range(state.level.size - 1, -1, -1):
        passed, target = _pass(state.sums, m, state.level[i] + child * 16, target)
        child = child * 16 + passed
    passed, target = _pass(state.leaf, m, child * 16, target)
    return int(child * 16 + passed)


@kernel
def sum_search(state: SumState, m: int, target: NDArray[np.float64], position: NDArray[np.int64]) -> None:
    """Do `sum_find` for each of `target[B]`, which is used up, into `position[B]`."""
    position[:] = 0
    sum_descend(state, m, np.full(target.size, state.level.size + 1), target, position)


@kernel
def sum_descend(
    state: SumState, m: int, level: NDArray[np.int64], target: NDArray[np.float64], position: NDArray[np.int64]
) -> None:
    """Find each of `target[B]`, which is used up, below its own node `position[B]` of `level[B]`, there.

    Nodes of level 0 are positions; the one node of the highest level + 1 is the whole tree. All go down together, so
    that they wait for their cache lines at the same time.
    """
    borrowed = borrow(state)
    for i in range(state.level.size - 1, -1, -1):
        for b in range(target.size):
            if level[b] > i + 1:
                passed, target[b] = _pass(borrowed.sums, m, state.level[i] + (position[b] << 4), target[b])
                position[b] = (position[b] << 4) + passed
            if level[b] > i:
                if i > 0:
                    _request_node(borrowed, m, state.level[i - 1] + (position[b] << 4))
                else:
                    request(state.leaf, m * state.leaf.shape[1] + (position[b] << 4))
    for b in range(target.size):
        if level[b] > 0:
            passed, target[b] = _pass(borrowed.leaf, m, position[b] << 4, target[b])
            position[b] = (position[b] << 4) + passed


@kernel
def sum_rebuild(state: SumState, m: int) -> None:
    """Add up every node of member m after its leaves have been written."""
    for node in range(state.leaf.shape[1] // 16):
        state.sums[m, node] = _add_up(state.leaf, m, node * 16)
    for i in range(1, state.level.size):
        below = (state.level[i] - state.level[i - 1]) // 16
        for node in range(below):
            state.sums[m, state.level[i] + node] = _add_up(state.sums, m, state.level[i - 1] + node * 16)
