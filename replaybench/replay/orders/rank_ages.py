"""Ties by age: positions of slots in the order, if of equal keys the newest occupant's is first.

The tree orders equal keys by position. Here each new occupant takes the next position down from the last. When none is
left, those in use move up in their order, and the tree is built anew. A quarter of the positions is spare, which costs
10 bytes a slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.replay.orders.rank_tree import TAKEN, OrderState, build, place


def positions_for(capacity: int) -> int:
    """Return how many positions C slots need."""
    return capacity + capacity // 4 + 1


@kernel
def _move_up(state: OrderState, m: int) -> None:
    """Move the positions in use to the end, and build the tree anew."""
    free = state.image.shape[1]
    for position in range(free - 1, -1, -1):
        if state.image[m, position]:
            free -= 1
            slot = state.slot_at[m, position]
            state.image[m, free], state.slot_at[m, free] = state.image[m, position], slot
            state.position_of[m, slot] = free
    state.image[m, :free] = 0
    state.head[m, TAKEN] = free
    build(state, m)


@kernel
def take_position(state: OrderState, m: int, slot: int) -> int:
    """Take a slot out of the order and give it the next position, that of the newest."""
    old = state.position_of[m, slot]
    if old >= 0:
        place(state, m, old, np.uint32(0))
    if state.head[m, TAKEN] == 0:
        _move_up(state, m)
    position = state.head[m, TAKEN] - 1
    state.head[m, TAKEN] = position
    state.slot_at[m, position], state.position_of[m, slot] = slot, position
    return int(position)


@kernel
def position_of(state: OrderState, m: int, slot: int) -> int:
    """Return a slot's position, −1 if it has none."""
    return int(state.position_of[m, slot] if state.position_of.shape[1] else np.int64(slot))


@kernel
def slot_at(state: OrderState, m: int, position: int) -> int:
    """Return the slot of a position; of one out of range, as an empty order gives, the slot of the last."""
    if not state.slot_at.shape[1]:
        return position
    return int(state.slot_at[m, min(position, state.slot_at.shape[1] - 1)])


@kernel
def positions_of(state: OrderState, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of `slots` `[M, B]`, −1 for slots below 0 and absent ones."""
    positions = np.empty(slots.shape, np.int64)
    for m in range(slots.shape[0]):
        for b in range(slots.shape[1]):
            positions[m, b] = position_of(state, m, slots[m, b]) if slots[m, b] >= 0 else -1
    return positions
