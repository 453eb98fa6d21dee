"""Retention that spreads the stored experiences over the observed states, `Cover`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Retention, RunningRetention
from replaybench.runtime.arrays import Floats32, Integers, Integers32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True)
class Cover(Retention):
    """Retention that overwrites the oldest experience in the fullest part of the observation space.

    Every observed variable is divided into `bins` equal intervals of its normalised range [−1, 1]. Values outside count
    in the first or last interval. If there are more than 4096 cells, and more than twice the number of slots, they are
    hashed, so that a few cells may count as one. Among equally full cells, the cell that became so full first loses
    its oldest experience. If all cells hold one experience, `Cover` is therefore the same as `FIFO`. Of a segment, the
    first observation counts. The rule is our own: plants that stay near a set point fill other buffers with one state.
    """

    bins: int = 8
    largest_bare = 100.0  # FIFO(5000) names a capacity, and so would a user of Cover(5000)
    needs_observation = True
    slot_bytes = 76

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.bins <= 10_000:
            raise UserError(f"Cover({self.bins}): bins must be from 2 to 10,000")

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningCover(self.bins, view)


_MOST_EXACT: Final = 4096


class _Cells(NamedTuple):
    """The cells of M members, with C buffer slots and H cells each. −1 stands for no slot and no cell.

    Attributes:
        cell_of: Cell of each slot; int32, shape `[M, C]`.
        newer: Slot of the next newer experience in the same cell; int32, shape `[M, C]`.
        ends: Slots of the oldest and of the newest experience in each cell; int32, shape `[M, H, 2]`.
        size: Number of experiences in each cell; int32, shape `[M, H]`.
        neighbours: Cells before and after each cell in the list of equally full cells; int32, shape `[M, H, 2]`.
        levels: First and last cell of each list, by the size of its cells; int32, shape `[M, C + 1, 2]`.
        fullest: Size of the fullest cell; int64, shape `[M]`.
    """

    cell_of: Integers32
    newer: Integers32
    ends: Integers32
    size: Integers32
    neighbours: Integers32
    levels: Integers32
    fullest: Integers


class _RunningCover(RunningRetention):
    def __init__(self, bins: int, view: BufferView) -> None:
        members, slots = len(view.members), view.capacity
        span = view.columns.spans["observation"]
        exact = min(bins ** (span.stop - span.start), _MOST_EXACT)
        cells = 1 << (max(2 * slots, exact) - 1).bit_length()

        def none(*shape: int) -> Integers32:
            return np.full((members, *shape), -1, np.int32)

        size = np.zeros((members, cells), np.int32)
        self.cells = _Cells(
            none(slots),
            none(slots),
            none(cells, 2),
            size,
            none(cells, 2),
            none(slots + 1, 2),
            np.zeros(members, np.int64),
        )
        self.columns, self.bins = view.columns, bins

    def stored(self, slots: Indices) -> None:
        _store(self.cells, self._observations(), self.bins, slots)

    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        _choose_oldest(self.cells, slots)

    def _observations(self) -> Floats32:
        return self.columns.rows[:, :, self.columns.spans["observation"]]

    def state_dict(self, stored: int) -> State:
        place = np.zeros_like(self.cells.cell_of[:, :stored], np.uint32)
        _list_places(self.cells, place)
        return {"cover_place": place}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        for array in self.cells:
            array[...] = -1
        self.cells.size[:], self.cells.fullest[:] = 0, 0
        for m, place in enumerate(np.asarray(state["cover_place"])):
            serial = self.columns.serial[m]
            slots = np.argsort(serial, kind="stable")[np.count_nonzero(serial == 0) :]
            if slots.size and slots.max() >= len(place):
                raise ValueError("its list of cells lacks slots that are stored")
            by_place = slots[np.argsort(place[slots], kind="stable")]
            _rebuild(self.cells, m, self._observations(), self.bins, slots, by_place)


@kernel
def _cell(observations: Floats32, m: int, slot: int, bins: int, cells: int) -> int:
    """Return the cell of a stored observation, as a number below `cells`, a power of two."""
    exact = bins ** np.float64(observations.shape[2]) <= cells
    number = np.uint64(0)
    for s in range(observations.shape[2]):
        share = 0.5 * (np.float64(observations[m, slot, s]) + 1.0)
        place = np.uint64(min(share, 1.0) * bins) if share > 0 else np.uint64(0)  # NaN is in the first interval
        number = number * np.uint64(bins) + min(place, np.uint64(bins - 1))
        if not exact:
            number = (number ^ (number >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return int(number if exact else number >> np.uint64(64 - np.log2(cells)))


@kernel
def _take_out(c: _Cells, m: int, cell: int) -> None:
    """Remove a cell from the list of equally full cells."""
    size, before, after = c.size[m, cell], c.neighbours[m, cell, 0], c.neighbours[m, cell, 1]
    if before >= 0:
        c.neighbours[m, before, 1] = after
    else:
        c.levels[m, size, 0] = after
    if after >= 0:
        c.neighbours[m, after, 0] = before
    else:
        c.levels[m, size, 1] = before


@kernel
def _append(c: _Cells, m: int, cell: int) -> None:
    """Append a cell to the list of equally full cells."""
    size = c.size[m, cell]
    last = c.levels[m, size, 1]
    c.neighbours[m, cell, 0], c.neighbours[m, cell, 1], c.levels[m, size, 1] = last, -1, cell
    if last >= 0:
        c.neighbours[m, last, 1] = cell
    else:
        c.levels[m, size, 0] = cell
    c.fullest[m] = max(c.fullest[m], size)


@kernel
def _resize(c: _Cells, m: int, cell: int, change: int) -> None:
    if c.size[m, cell] > 0:
        _take_out(c, m, cell)
    c.size[m, cell] += change
    if c.size[m, cell] > 0:
        _append(c, m, cell)
    if c.fullest[m] > 0 and c.levels[m, c.fullest[m], 0] < 0:
        c.fullest[m] -= 1


@kernel
def _queue(c: _Cells, m: int, slot: int, cell: int) -> None:
    """Make a slot the newest of its cell."""
    newest = c.ends[m, cell, 1]
    if newest >= 0:
        c.newer[m, newest] = slot
    else:
        c.ends[m, cell, 0] = slot
    c.cell_of[m, slot], c.newer[m, slot], c.ends[m, cell, 1] = cell, -1, slot


@kernel
def _store(c: _Cells, observations: Floats32, bins: int, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] < 0:
            continue
        left = c.cell_of[m, slots[m]]
        if left >= 0:  # `slots` is the oldest of its cell, because `_choose_oldest` chose it
            c.ends[m, left, 0] = c.newer[m, slots[m]]
            if c.ends[m, left, 0] < 0:
                c.ends[m, left, 1] = -1
            _resize(c, m, left, -1)
        cell = _cell(observations, m, slots[m], bins, c.size.shape[1])
        _queue(c, m, slots[m], cell)
        _resize(c, m, cell, 1)


@kernel
def _choose_oldest(c: _Cells, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] == -2:
            slots[m] = c.ends[m, c.levels[m, c.fullest[m], 0], 0]


@kernel
def _list_places(c: _Cells, place: NDArray[np.uint32]) -> None:
    """Write the place of each cell in the lists, from 1, to the slot of its oldest experience."""
    for m in range(place.shape[0]):
        number = 0
        for size in range(1, c.fullest[m] + 1):
            cell = c.levels[m, size, 0]
            while cell >= 0:
                number += 1
                place[m, c.ends[m, cell, 0]] = number
                cell = c.neighbours[m, cell, 1]


@kernel
def _rebuild(c: _Cells, m: int, observations: Floats32, bins: int, by_age: Integers, by_place: Integers) -> None:
    """Restore cells from stored observations. `by_age` are the slots from the oldest, `by_place` those of the lists."""
    for slot in by_age:
        cell = _cell(observations, m, slot, bins, c.size.shape[1])
        _queue(c, m, slot, cell)
        c.size[m, cell] += 1
    for slot in by_place:
        if c.ends[m, c.cell_of[m, slot], 0] == slot:
            _append(c, m, c.cell_of[m, slot])
