"""Compiled sweeps of fuzzy Q-iteration, θ ← R + γ max_j Φ(x′) θ (Buşoniu et al., 2010).

The maximum over all U actions takes most of the time. Therefore the maximum is taken only over the actions that can be
best in a grid cell (contenders). These are the best action of each corner, and every action that exceeds each of these
at some corner. Other actions are nowhere better in the cell, not even by rounding, which is monotonic.

`theta` contains the action values θ of N nodes, float64 `[N, U]`. `corners` contains the nodes at the K corners of each
cell, int32 `[C, K]`. Pair i·U + j is action j at node i, with its `reward` R, the `cell` of its next state x′, and a
`weight` Φ for each corner of that cell. Weights are zero if the episode ends.
"""

import numpy as np

from replaybench.runtime.arrays import Floats, Integers, Integers32
from replaybench.runtime.kernel import kernel


@kernel
def contenders(
    theta: Floats, corners: Integers32, best: Integers32, start: Integers, choice: Integers32,
    table: Floats,
) -> tuple[Integers32, Floats]:  # fmt: skip
    """Copy, for each grid cell, the values of the actions that can be best somewhere in the cell (contenders).

    The best action of each corner is a contender. Another action is one unless the best action of some corner is at
    least as good at all corners.

    Args:
        theta: Action values of the nodes, shape `[N, U]`.
        corners: Nodes at the K corners of each cell, shape `[C, K]`.
        best: Output: the best action of each node, shape `[N]`.
        start: Output: first row of each cell in the results, and the number R of rows; shape `[C + 1]`.
        choice: Array for the result `choice`, of any length.
        table: Array for the result `table`, with as many rows as `choice`.

    Returns:
        choice: Action of each contender in the first R entries. A new array if the given one is too small.
        table: Values of each contender at the K corners, in the first R rows. A new array if `choice` is new.
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
            longer = np.empty(larger.shape[0], np.int32)
            for r in range(row):  # assigned slices would take seconds to compile
                longer[r] = choice[r]
                for k in range(K):
                    larger[r, k] = table[r, k]
            choice, table = longer, larger
        corner = corners[c]
        rival = best[corner[0]]
        agree = True
        for k in range(1, K):
            agree &= best[corner[k]] == rival
        if agree:
            for k in range(K):
                table[row, k] = theta[corner[k], rival]
            choice[row] = rival
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
                choice[row] = a
                row += 1
    start[cells] = row
    return choice, table


@kernel
def synchronous(
    theta: Floats, cell: Integers32, weight: Floats, reward: Floats, discount: float,
    start: Integers, table: Floats,
) -> float:  # fmt: skip
    """Do a sweep of fuzzy Q-iteration with `start` and `table` from `contenders`, and return the largest change.

    The new action values of all nodes are written to `theta` `[N, U]`.
    """
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
    theta: Floats, cell: Integers32, weight: Floats, reward: Floats, discount: float,
    corners: Integers32, best: Integers32,
) -> float:  # fmt: skip
    """Do a sweep of fuzzy Q-iteration in place, and return the largest change of an action value.

    `best` `[N]` contains the index of the best action at each node on entry, and is updated, too.
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


@kernel
def places(
    corners: Integers32, start: Integers, choice: Integers32, count: Integers32
) -> tuple[Integers, Integers, Integers32]:
    """Find the positions of each pair of a grid node and an action in the table that `contenders` returned.

    `start` and `choice` are arrays from `contenders`. `count` `[N, U]` is a scratch array, which is zero before and
    after the call.

    Returns:
        pairs: Indices i·U + j of the P pairs that the table contains, ascending; shape `[P]`.
        first: Index in `where` of the first position of each pair, and the length of `where`; shape `[P + 1]`.
        where: Positions in the flat table (row · K + corner), sorted by pair.
    """
    (cells, K), U = corners.shape, count.shape[1]
    flat = count.reshape(-1)
    for c in range(cells):
        for row in range(start[c], start[c + 1]):
            for k in range(K):
                flat[corners[c, k] * U + choice[row]] += 1
    pairs = np.flatnonzero(flat)
    first = np.empty(len(pairs) + 1, np.int64)
    first[0] = 0
    for p in range(len(pairs)):
        first[p + 1] = first[p] + flat[pairs[p]]
        flat[pairs[p]] = p
    used, where = np.zeros(len(pairs), np.int32), np.empty(first[-1], np.int32)
    for c in range(cells):
        for row in range(start[c], start[c + 1]):
            for k in range(K):
                p = flat[corners[c, k] * U + choice[row]]
                where[first[p] + used[p]] = row * K + k
                used[p] += 1
    flat[pairs] = 0
    return pairs, first, where


@kernel
def evaluate(
    cell: Integers32, weight: Floats, reward: Floats, discount: float, start: Integers,
    table: Floats, first: Integers, where: Integers32, backwards: bool,
) -> float:  # fmt: skip
    """Update the values of P pairs of a node and an action in the table of `contenders`. Return the largest change.

    The table is updated in place. The maximum is taken over contenders only. If the value of a pair appears on both
    sides of its equation, the equation is solved for this value, because repeated sweeps would converge more slowly.
    `cell`, `weight` and `reward` are those of the pairs. `first` and `where` are results of `places`. If `backwards` is
    True, the sweep runs from the last pair to the first.
    """
    flat = table.reshape(-1)
    K, last = weight.shape[1], cell.shape[0] - 1
    largest = 0.0
    for n in range(last + 1):
        p = last - n if backwards else n
        before, after = start[cell[p]], start[cell[p] + 1]
        old, own, mine = flat[where[first[p]]], 0.0, -1
        for place in where[first[p] : first[p + 1]]:
            row = place // K
            if before <= row < after:
                own, mine = discount * weight[p, place - row * K], row
        best = -np.inf
        for row in range(before, after):
            value = 0.0
            for k in range(K):
                value += weight[p, k] * table[row, k]
            value = reward[p] + discount * value
            if row == mine:
                value = (value - own * old) / (1.0 - own)
            best = max(best, value)
        largest = max(largest, abs(best - old))
        for place in where[first[p] : first[p + 1]]:
            flat[place] = best
    return largest
