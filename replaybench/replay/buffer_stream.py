"""`BufferStream`, which samples batches from a buffer file that does not fit into memory.

Batches are block-shuffled, not uniform over the buffer. At any time, batches contain experiences from a few contiguous
blocks only. Over a pass, all experiences are sampled equally often on average. Strategies are not supported.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import ReplayBatch
from replaybench.replay.storage.columns import Columns, Indices, State, gather
from replaybench.replay.storage.schema import open_buffer
from replaybench.replay.strategies.interface import Context
from replaybench.runtime.arrays import Floats32, Integers
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import Stream, next_below

BLOCK_ROWS = 1024
HELD_BLOCKS = 16


class BufferStream(AbstractContextManager["BufferStream"]):
    """An iterator over random batches from a buffer file that does not fit into memory.

    M learners are trained together. Each uses one recording (the experiences of one member in the file). A
    recording is cut into contiguous blocks of at most `block_rows` experiences. Block sizes differ by at most one. A
    pass reads all blocks of a recording in a new random order. `held` blocks are in memory. Batches are drawn
    uniformly, with replacement, from the experiences in these blocks.

    After every `replays` · n / `held` draws, the next block of the pass replaces the block that has been in memory
    longest. Here, n is the number of experiences in memory. Each experience is therefore drawn `replays` times per pass
    on average. Replacements take place between batches. The mean also holds for the first pass, because the first
    blocks in memory are the end of an earlier pass. If a recording has at most `held` blocks, all its blocks stay in
    memory, and sampling is uniform over the recording.

    The blocks take M · held · block_rows · (4 W + 4) bytes for experiences of W numbers. The order of the blocks takes
    4 bytes per block, and the checksums take 1/4096 of the file's size.

    Args:
        path: A buffer file.
        batch_size: Number of samples B in the batch of each learner.
        root: Root seed of the draws.
        members: Numbers of the M learners. The draws of a learner depend only on `root` and the learner's number.
        recordings: Index of the recording in the file that each learner receives. None assigns the recordings in turn,
            by learner number.
        replays: Mean number of draws of each experience per pass.
        block_rows: Largest number of experiences in a block. Larger values approach uniform sampling.
        held: Number of blocks of each recording in memory. Larger values approach uniform sampling.

    Attributes:
        columns: The experiences in memory.
        passes: Random orders of the blocks, and the position of each learner in its order.

    Raises:
        UserError: The file is damaged, is not a buffer, or lacks one of the recordings.
    """

    def __init__(
        self,
        path: Path,
        batch_size: int,
        root: int,
        members: Sequence[int],
        *,
        recordings: Sequence[int] | None = None,
        replays: float = 1.0,
        block_rows: int = BLOCK_ROWS,
        held: int = HELD_BLOCKS,
    ) -> None:
        if min(batch_size, block_rows, held) < 1 or not 0 < replays < np.inf:
            raise UserError("a stream needs a batch size, block rows, held blocks and replays above 0")
        if recordings is not None and len(recordings) != len(members):
            raise ValueError(f"{len(members)} members replay {len(recordings)} recordings; name one for each")
        self._stack = ExitStack()
        file = self._stack.enter_context(open_buffer(path))
        try:
            file.check_recordings(recordings or ())
        except BaseException:
            self.close()
            raise
        self.record = file.record
        turns = [member % file.members for member in members]
        self.recordings = turns if recordings is None else list(recordings)
        self.count = file.count[self.recordings]
        m, self.block_rows, self.held, self.replays = len(members), block_rows, held, replays
        self.columns = Columns(m, held * block_rows, file.facts.fields, file.steps)
        self._lengths = np.zeros((m, held * block_rows), np.uint16) if file.steps > 1 else None
        self.passes = ShuffledBlocks(Stream(root, members, "stream"), -(-self.count // block_rows))
        self._drawn, self._oldest = np.zeros(m), np.zeros(m, np.int64)
        self._number = np.full((m, held), -1)
        self._start, self._size = np.zeros((m, held), np.int64), np.zeros((m, held), np.int64)
        for member in range(m):
            for slot, number in enumerate(self.passes.last(member, held)):
                self._load(member, slot, number)
        shape = m, batch_size
        self._slot, self._idx = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._serial = np.zeros(shape, np.uint32)
        self._gathered = np.zeros((*shape, self.columns.rows.shape[2]), np.float32)
        self._views, self._rate_factor = self.columns.views(self._gathered), (self.count > 0).astype(np.float32)
        self._weight = np.repeat(self._rate_factor[:, None], batch_size, axis=1)
        self._probability = np.repeat(1.0 / np.maximum(self.count, 1)[:, None], batch_size, axis=1)

    def sample(self, context: Context | None = None) -> ReplayBatch:
        """Sample one batch for each learner.

        In the batch, `idx` contains buffer slots of the file, and `probability` is an average over a pass through the
        file. If a learner's recording is empty, its samples, weights and learning-rate factor are 0. The next call
        overwrites the arrays.
        """
        context = context or Context()
        self._advance()
        _draw(self.passes.stream.state, self._start, self._size, self.block_rows, self._slot, self._idx)
        gather(self.columns.rows, self.columns.serial, self._slot, self._gathered, self._serial)
        self._drawn += self._slot.shape[1]
        return ReplayBatch(
            columns=self._views,
            idx=self._idx,
            serial=self._serial,
            probability=self._probability,
            weight=self._weight,
            actor_weight=self._weight,
            rate_factor=self._rate_factor,
            length=None if self._lengths is None else np.take_along_axis(self._lengths, self._slot, axis=1),
            update=context.update,
            updates_in_phase=context.updates_in_phase,
        )

    def annotate(self, batch: ReplayBatch, annotations: Mapping[str, Floats32]) -> None:
        """Do nothing, because a stream does not support strategies."""

    def __iter__(self) -> Iterator[ReplayBatch]:
        """Yield batches of experiences without end."""
        while True:
            yield self.sample()

    def state_dict(self) -> State:
        """Return the arrays from which another stream with the same arguments continues with the same batches."""
        return {
            **self.passes.state_dict(),
            "stream_drawn": self._drawn,
            "stream_oldest": self._oldest,
            "stream_blocks": self._number,
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays that `state_dict` returned, for a stream with the same arguments."""
        held = np.asarray(state["stream_blocks"])
        for name, array in self.state_dict().items():
            array[...] = state[name]
        for member, slot in np.argwhere(held >= 0):
            self._load(int(member), int(slot), int(held[member, slot]))

    def close(self) -> None:
        """Close the buffer file."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _advance(self) -> None:
        """Replace the blocks in memory whose experiences have been drawn often enough."""
        for m in np.flatnonzero(self.passes.blocks > self.held).tolist():
            while self._drawn[m] >= (due := self.replays * self._size[m].sum() / self.held):
                self._drawn[m] -= due
                self._load(m, int(self._oldest[m]), self.passes.following(m))
                self._oldest[m] = (self._oldest[m] + 1) % self.held

    def _load(self, m: int, slot: int, number: int) -> None:
        """Read block `number` of the m-th learner's recording into place `slot` of the learner's blocks in memory."""
        count, blocks = int(self.count[m]), int(self.passes.blocks[m])
        start, stop = number * count // blocks, (number + 1) * count // blocks
        self._number[m, slot], self._start[m, slot], self._size[m, slot] = number, start, stop - start
        place = slice(slot * self.block_rows, slot * self.block_rows + stop - start)

        def read(name: str) -> np.ndarray:
            return self.record.read(name, member=self.recordings[m], rows=slice(start, stop))

        for name in self.columns.fields:
            self.columns.column(name)[m, place] = read(name)
        self.columns.serial[m, place] = read("serial")
        if self._lengths is not None:
            self._lengths[m, place] = read("length")


@kernel
def _draw(
    stream: NDArray[np.uint64], start: Indices, size: Indices, block_rows: int, slot: Indices, idx: Indices
) -> None:
    """Draw B experiences for each learner uniformly from the blocks in memory, with replacement.

    The row of each experience in memory is written to `slot`. Its buffer slot in the file is written to `idx`. Both
    arrays have the shape `[M, B]`.
    """
    for m in range(slot.shape[0]):
        total = size[m].sum()
        for b in range(slot.shape[1]):
            at, block = next_below(stream[m], total), 0
            while at >= size[m, block] and block < size.shape[1] - 1:
                at -= size[m, block]
                block += 1
            slot[m, b] = block * block_rows + at
            idx[m, b] = start[m, block] + at


class ShuffledBlocks:
    """The random order in which each of M learners reads the blocks of its recording, pass after pass.

    A recording is cut into blocks of successive experiences. In a pass, a learner reads each block once. Initially,
    each learner is at the end of a pass.

    Args:
        stream: Random streams of the M learners.
        blocks: Number of blocks of each learner's recording; int64, shape `[M]`.

    Attributes:
        order: Block indices in the order of the current pass; uint32, shape `[M, K]` for at most K blocks.
        place: Number of blocks that each learner has read in the current pass; int64, shape `[M]`.
        begun: Number of passes that each learner has begun after the initial one; int64, shape `[M]`.
    """

    def __init__(self, stream: Stream, blocks: Integers) -> None:
        self.stream, self.blocks = stream, blocks
        self.order = np.tile(np.arange(blocks.max(initial=0), dtype=np.uint32), (len(blocks), 1))
        self.place, self.begun = blocks.copy(), np.zeros(len(blocks), np.int64)
        for m in range(len(blocks)):
            self._shuffle(m)

    def last(self, m: int, number: int) -> list[int]:
        """Return the last `number` block indices of the m-th learner's current pass, or all if the pass has fewer."""
        blocks: list[int] = self.order[m, max(0, self.blocks[m] - number) : self.blocks[m]].tolist()
        return blocks

    def following(self, m: int) -> int:
        """Return the index of the m-th learner's next block. If its current pass is over, a new pass begins."""
        if self.place[m] == self.blocks[m]:
            self._shuffle(m)
            self.place[m], self.begun[m] = 0, self.begun[m] + 1
        self.place[m] += 1
        return int(self.order[m, self.place[m] - 1])

    def state_dict(self) -> State:
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
    for i in range(order.size - 1, 0, -1):
        j = next_below(stream, i + 1)
        order[i], order[j] = order[j], order[i]
