"""The two sweeps of fuzzy Q-iteration, `θ ← R + γ max_j Φ(x′) θ`, as kernels (Buşoniu et al. 2010).

The maximum stands outside the interpolation and runs over all U actions, so it is what costs time. Most of it can be
spared without changing a bit of the result: rounding is monotonic, so an action whose value another action matches
or exceeds at every corner of a cell is nowhere in that cell the better one.

Shapes: `theta` float64 `[N, U]` (nodes, actions); for each of the `N U` pairs, pair `i U + j` being action j at node
i, `reward` `[N U]` and the successor's `cell` `[N U]` and `weight` `[N U, K]` over the K corners of that cell;
`corners` int32 `[C, K]`. The weights of a successor that ends the episode are zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

Float64Array = NDArray[np.float64]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]


@kernel
def contenders(
    theta: Float64Array, corners: Int32Array, best: Int32Array, start: Int64Array, table: Float64Array
) -> Float64Array:
    """Copy out, cell by cell, the values of the actions that can be best somewhere in the cell.

    An action stays unless the best action of some corner is at least as good at all corners. Where the corners
    agree on their best action, it alone stays.

    Args:
        theta: values `[N, U]`.
        corners: `[C, K]`.
        best: written, the best action of each node `[N]`.
        start: written, `[C + 1]`; the contenders of cell c are the rows from `start[c]` to `start[c + 1]`.
        table: room for them, `[any, K]`.

    Returns:
        The table: the values of each contender at the corners `[rows, K]`, a larger array where `table` was small.
    """
    cells, K = corners.shape
    nodes, U = theta.shape
    for i in range(nodes):
        best[i] = np.argmax(theta[i])
    lead, stays = np.empty(U), np.empty(U)
    row = 0
    for c in range(cells):
        start[c] = row
        if row + U > table.shape[0]:
            larger = np.empty((2 * table.shape[0] + U, K))
            larger[:row] = table[:row]
            table = larger
        corner = corners[c]
        rival = best[corner[0]]
        agree = True
        for k in range(1, K):
            agree &= best[corner[k]] == rival
        if agree:
            for k in range(K):
                table[row, k] = theta[corner[k], rival]
            row += 1
            continue
        stays[:] = np.inf
        for q in range(K):
            rival = best[corner[q]]
            lead[:] = -np.inf  # of each action over the rival, at the corner where it is greatest
            for k in range(K):
                i = corner[k]
                other = theta[i, rival]
                for a in range(U):
                    difference = theta[i, a] - other
                    lead[a] = difference if difference > lead[a] else lead[a]
            for a in range(U):
                stays[a] = lead[a] if lead[a] < stays[a] else stays[a]
        for q in range(K):
            stays[best[corner[q]]] = 1.0
        for a in range(U):
            if stays[a] > 0.0:
                for k in range(K):
                    table[row, k] = theta[corner[k], a]
                row += 1
    start[cells] = row
    return table


@kernel
def synchronous(
    theta: Float64Array,
    cell: Int32Array,
    weight: Float64Array,
    reward: Float64Array,
    discount: float,
    start: Int64Array,
    table: Float64Array,
) -> float:
    """Sweep once, all from the values in `table`; writes `theta` and returns the largest change, ‖Δθ‖∞."""
    nodes, U = theta.shape
    K = weight.shape[1]
    largest = 0.0
    pair = 0
    for i in range(nodes):
        for j in range(U):
            first, last = start[cell[pair]], start[cell[pair] + 1]
            value = 0.0
            for k in range(K):
                value += weight[pair, k] * table[first, k]
            for row in range(first + 1, last):
                other = 0.0
                for k in range(K):
                    other += weight[pair, k] * table[row, k]
                value = max(value, other)
            value = reward[pair] + discount * value
            largest = max(largest, abs(value - theta[i, j]))
            theta[i, j] = value
            pair += 1
    return largest


@kernel
def asynchronous(
    theta: Float64Array,
    cell: Int32Array,
    weight: Float64Array,
    reward: Float64Array,
    discount: float,
    corners: Int32Array,
    best: Int32Array,
) -> float:
    """Sweep once in place, every value used as soon as it is written; returns the largest change, ‖Δθ‖∞.

    `best` `[N]` holds the best action of each node and is kept so.
    """
    nodes, U = theta.shape
    K = weight.shape[1]
    mixed = np.empty(U)
    largest = 0.0
    pair = 0
    for i in range(nodes):
        for j in range(U):
            corner = corners[cell[pair]]
            leader = best[corner[0]]
            agree = True
            value = 0.0
            for k in range(K):
                agree &= best[corner[k]] == leader
                value += weight[pair, k] * theta[corner[k], leader]
            if not agree:
                mixed[:] = 0.0
                for k in range(K):
                    share = weight[pair, k]
                    i_k = corner[k]
                    for a in range(U):
                        mixed[a] += share * theta[i_k, a]
                value = mixed.max()
            value = reward[pair] + discount * value
            largest = max(largest, abs(value - theta[i, j]))
            theta[i, j] = value
            if best[i] == j:
                best[i] = np.argmax(theta[i])
            elif value > theta[i, best[i]]:
                best[i] = j
            pair += 1
    return largest
