"""Many draws and many new keys at a time, for `rank_order`: the same results as one by one, but faster.

Out of cache, the time goes into waiting for rows. So a batch descends together, level by level, and asks for the rows
that it will need. Updates come in chunks that pass through three stages: ask for the images; find the leaves and ask
for them; change them. A chunk is looked up again where nodes were split or merged meanwhile.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.orders.node_vectors import (
    INNER,
    LEAF,
    add_after,
    borrow,
    count_before,
    insert_leaf,
    remove_leaf,
    request,
)
from replaybench.replay.orders.rank_ages import positions_of, slot_at, take_position
from replaybench.replay.orders.rank_tree import (
    CHANGES,
    HEIGHT,
    LEAST_LEAF,
    NOTHING,
    ROOT,
    OrderState,
    column_of,
    entry_of,
    image_of,
    inner_row,
    leaf_row,
    place,
)

_CHUNK: Final = 16  # updates; the rows of two chunks must stay in the first two cache levels
_LARGE: Final = 4  # height from which the lowest inner nodes of some members lie out of cache
# A plan has one row for each removal and each insertion in turn, of these columns, and a last row for all of them.
_ENTRY, _LEAF_AT, _PATH = 0, 1, 2  # from _PATH on: flat positions in `child`, root first
_MEMBER, _COUNT, _INNER_CHANGES, _LEAF_CHANGES = 0, 1, 2, 3
_PLAN: Final = (2 * _CHUNK + 1, _PATH + 8)  # no tree of 2³¹ entries is higher than 8

Indices = NDArray[np.int64]


@kernel
def order_select_many(state: OrderState, m: int, ranks: Indices, slots: Indices) -> None:
    """Do `order_select` for each of `ranks[B]`, which are used up, into `slots[B]`."""
    borrowed = borrow(state)
    height = borrowed.head[m, HEIGHT]
    slots[:] = borrowed.head[m, ROOT]
    for level in range(height):
        for b in range(ranks.size):
            node = slots[b]
            i = int(count_before(borrowed.before, inner_row(borrowed, m, node), np.int32(ranks[b]))) - 1
            ranks[b] -= borrowed.before[m, node, i]
            slots[b] = borrowed.child[m, node, i]
            if level == height - 1:
                request(borrowed.leaf, leaf_row(borrowed, m, slots[b]) + ranks[b])
            elif level == height - 2 and height >= _LARGE:
                row = inner_row(borrowed, m, slots[b])
                for j in range(0, INNER, 16):
                    request(borrowed.before, row + j)
                    request(borrowed.child, row + j)
    for b in range(ranks.size):
        slots[b] = slot_at(borrowed, m, int(np.int64(borrowed.leaf[m, slots[b], ranks[b]] & np.uint64(0xFFFF_FFFF))))


@kernel
def _request_node(state: OrderState, m: int, node: int, leaf: bool) -> None:
    if leaf:
        for j in range(0, LEAF, 8):
            request(state.leaf, leaf_row(state, m, node) + j)
    else:
        row = inner_row(state, m, node)
        for j in range(0, INNER, 8):
            request(state.bound, row + j)
        for j in range(0, INNER, 16):
            request(state.before, row + j)
            request(state.child, row + j)


@kernel
def _make_plan(
    state: OrderState, m: int, positions: Indices, keys: NDArray[np.float32], start: int, plan: Indices
) -> None:
    """Find where a chunk's entries, the old ones and the new ones, lie or belong, and ask for those rows."""
    count, height = 0, state.head[m, HEIGHT]
    for b in range(start, min(start + _CHUNK, positions.size)):
        if positions[b] >= 0:
            plan[count, _ENTRY] = np.int64(entry_of(state.image[m, positions[b]], positions[b]))
            plan[count + 1, _ENTRY] = np.int64(entry_of(image_of(keys[b]), positions[b]))
            count += 2
    for k in range(count):
        plan[k, _LEAF_AT] = state.head[m, ROOT]
    for level in range(height):
        for k in range(count):
            row = inner_row(state, m, plan[k, _LEAF_AT])
            i = column_of(state, row, np.uint64(plan[k, _ENTRY]))
            node = int(state.child[m, plan[k, _LEAF_AT], i])
            plan[k, _PATH + level], plan[k, _LEAF_AT] = row + i, node
            if level == height - 1 or (level == height - 2 and height >= _LARGE):
                _request_node(state, m, node, level == height - 1)
    plan[-1, _MEMBER], plan[-1, _COUNT] = m, count
    plan[-1, _INNER_CHANGES], plan[-1, _LEAF_CHANGES] = state.head[m, CHANGES], state.head[m, CHANGES + 1]


@kernel
def _find_leaf(state: OrderState, m: int, plan: Indices, k: int) -> None:
    """Find the leaf of an entry anew under the same inner node."""
    height = state.head[m, HEIGHT]
    if height:
        row = plan[k, _PATH + height - 1] & -INNER
        i = column_of(state, row, np.uint64(plan[k, _ENTRY]))
        plan[k, _PATH + height - 1] = row + i
        plan[k, _LEAF_AT] = state.child[m, row // INNER - m * state.child.shape[1], i]


@kernel
def _count_path(state: OrderState, plan: Indices, k: int, height: int, change: int) -> None:
    for level in range(height):
        column = plan[k, _PATH + level] & (INNER - 1)
        add_after(state.before, plan[k, _PATH + level] - column, column, change)


@kernel
def _can_move(state: OrderState, m: int, source: int, target: int) -> bool:
    """Return whether one leaf can lose an entry and another gain one without a split or a merge."""
    spare, room = state.leaf[m, source, LEAST_LEAF] != NOTHING, state.leaf[m, target, LEAF - 1] == NOTHING
    return bool(source == target or (spare & room))


@kernel
def _carry_out(state: OrderState, plan: Indices) -> None:
    """Change what was planned. The tree and the images may have changed since, so each step looks first."""
    m, count = plan[-1, _MEMBER], plan[-1, _COUNT]
    for k in range(0, count, 2):
        old, new = np.uint64(plan[k, _ENTRY]), np.uint64(plan[k + 1, _ENTRY])
        position, image = int(new & np.uint64(0xFFFF_FFFF)), np.uint32(new >> np.uint64(32))
        current = state.image[m, position]
        if current == image:
            continue
        if not current or current != old >> np.uint64(32) or plan[-1, _INNER_CHANGES] != state.head[m, CHANGES]:
            place(state, m, position, image)
            continue
        if plan[-1, _LEAF_CHANGES] != state.head[m, CHANGES + 1]:
            _find_leaf(state, m, plan, k)
            _find_leaf(state, m, plan, k + 1)
        if _can_move(state, m, plan[k, _LEAF_AT], plan[k + 1, _LEAF_AT]):
            height = state.head[m, HEIGHT]
            _count_path(state, plan, k, height, -1)
            remove_leaf(state.leaf, leaf_row(state, m, plan[k, _LEAF_AT]), old)
            _count_path(state, plan, k + 1, height, 1)
            insert_leaf(state.leaf, leaf_row(state, m, plan[k + 1, _LEAF_AT]), new)
            state.image[m, position] = image
        else:
            place(state, m, position, image)


@kernel
def _update(state: OrderState, positions: Indices, keys: NDArray[np.float32]) -> None:
    plans = np.empty((2, *_PLAN), np.int64)
    width, parts = state.image.shape[1], -(-positions.shape[1] // _CHUNK)
    chunks = positions.shape[0] * parts
    for turn in range(chunks + 2 if chunks else 0):
        row, start = turn // parts, turn % parts * _CHUNK
        if turn < chunks:
            for b in range(start, min(start + _CHUNK, positions.shape[1])):
                request(state.image, row * width + max(positions[row, b], 0))
        if 0 < turn <= chunks:
            row, start = (turn - 1) // parts, (turn - 1) % parts * _CHUNK
            _make_plan(state, row, positions[row], keys[row], start, plans[turn & 1])
        if turn > 1:
            _carry_out(state, plans[1 - (turn & 1)])


@kernel
def order_update_all(state: OrderState, slots: Indices, keys: NDArray[np.float32]) -> None:
    """Give each of `slots[M, B]` in turn its new `keys[M, B]`, skipping slots below 0.

    Where ties go by age, slots that are not in the order are skipped too.
    """
    borrowed = borrow(state)
    if state.position_of.shape[1]:
        _update(borrowed, positions_of(borrowed, slots), keys)
    else:  # positions are slots, and a copy would cost as much as the update
        _update(borrowed, slots, keys)


@kernel
def order_arrive_all(state: OrderState, slots: Indices, keys: NDArray[np.float32]) -> None:
    """Give the new occupants of `slots[M]` their `keys[M]`, skipping slots below 0; they are the newest."""
    borrowed = borrow(state)
    positions = slots.copy().reshape((slots.size, 1))
    if state.position_of.shape[1]:
        for m in range(slots.size):
            if slots[m] >= 0:
                positions[m, 0] = take_position(borrowed, m, slots[m])
    _update(borrowed, positions, keys.reshape((keys.size, 1)))
