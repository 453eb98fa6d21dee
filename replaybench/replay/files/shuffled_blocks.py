"""Which block of a member comes next, when all of them are visited in a new random order again and again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_below
from replaybench.replay.arrays import State


class ShuffledBlocks:
    """Passes of each member through its own blocks; at first, a pass has just come to its end.

    Args:
        stream: the members' random numbers.
        blocks: int64 `[M]`, number of blocks of each.

    Attributes:
        order: uint32 `[M, K]`, the present pass.
        place: int64 `[M]`, how much of it is done.
        begun: int64 `[M]`, passes begun after the first.
    """

    def __init__(self, stream: Stream, blocks: NDArray[np.int64]) -> None:
        self.stream, self.blocks = stream, blocks
        self.order = np.tile(np.arange(blocks.max(initial=0), dtype=np.uint32), (len(blocks), 1))
        self.place, self.begun = blocks.copy(), np.zeros(len(blocks), np.int64)
        for m in range(len(blocks)):
            self._shuffle(m)

    def last(self, m: int, number: int) -> list[int]:
        """Return the last blocks of member m's present pass, at most `number`, in their order."""
        blocks: list[int] = self.order[m, max(0, self.blocks[m] - number) : self.blocks[m]].tolist()
        return blocks

    def following(self, m: int) -> int:
        """Return the next block of member m, of a new pass where one is over."""
        if self.place[m] == self.blocks[m]:
            self._shuffle(m)
            self.place[m], self.begun[m] = 0, self.begun[m] + 1
        self.place[m] += 1
        return int(self.order[m, self.place[m] - 1])

    def state_dict(self) -> State:
        """Return what changes, the random numbers included."""
        return {
            "stream_stream": self.stream.state,
            "stream_order": self.order,
            "stream_place": self.place,
            "stream_begun": self.begun,
        }

    def _shuffle(self, m: int) -> None:
        _shuffle(self.stream.state[m], self.order[m, : self.blocks[m]])


@kernel
def _shuffle(stream: NDArray[np.uint64], order: NDArray[np.uint32]) -> None:
    """Bring `order` into random order in place (Fisher and Yates)."""
    for i in range(order.size - 1, 0, -1):
        j = next_below(stream, i + 1)
        order[i], order[j] = order[j], order[i]
