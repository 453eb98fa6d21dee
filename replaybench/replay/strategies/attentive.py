"""Attentive experience replay, `AER` (Sun et al., 2020)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.storage.columns import Indices, borrow
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling
from replaybench.replay.strategies.uniform import Annealed
from replaybench.runtime.arrays import Floats, Floats32, Integers
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_below


@dataclass(frozen=True)
class AER(Annealed):
    """Attentive experience replay, which samples states that are similar to the agent's state (Sun et al., 2020).

    For a batch of B samples, ⌈λB⌉ distinct candidates are drawn uniformly. The B candidates that are most similar to a
    recent observation of the agent form the batch. Similarity is the cosine of the two observations, or 0 if one of
    them is zero. Among equally similar candidates, those drawn first are selected. The batch is in the order of the
    draws. If fewer than ⌈λB⌉ experiences are stored, all of them are candidates. λ falls linearly from λ₀ = `first` to
    1 over the fraction `alpha` of the run. λ also multiplies the learning rate.
    """

    needs_state = True
    importance_undefined = "the chances of its draws are not known"

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningAER(self, view)


class _Scratch(NamedTuple):
    """Temporary arrays for drawing n candidate experiences, from which AER selects a batch.

    Attributes:
        slots: Candidate slots, shape `[n]`.
        similarity: Similarity of each candidate to the agent's state, shape `[n]`.
        norm: Squared norm of each candidate's observation, shape `[n]`.
        seen: Hash table of drawn slots; int64, shape `[2^q]`. Entries below `turn` << 32 are from earlier draws.
        turn: Number of draws so far, each of n candidates; int64, shape `[1]`.
        pool: Slots to draw from without replacement if few experiences are stored; int64, shape `[2n]`.
    """

    slots: Integers
    similarity: Floats
    norm: Floats
    seen: Integers
    turn: Integers
    pool: Integers


def _scratch(n: int) -> _Scratch:
    table = np.full(1 << (4 * n).bit_length(), -1, np.int64)
    turn, pool = np.zeros(1, np.int64), np.zeros(2 * n, np.int64)
    return _Scratch(np.zeros(n, np.int64), np.zeros(n), np.zeros(n), table, turn, pool)


class _RunningAER(RunningSampling):
    def __init__(self, description: AER, view: BufferView) -> None:
        super().__init__(view)
        self.description, self.columns = description, view.columns
        self.scratch = _scratch(0)

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        if context.state is None:
            raise ValueError("AER needs the state that each agent attends to: Context(state=[M, S])")
        widening = self.description.factor(context.progress)
        wanted = math.ceil(widening * draws.idx.shape[1])
        if wanted > self.scratch.similarity.size:
            self.scratch = _scratch(wanted)
        draws.rate_factor[:] = widening
        span = self.columns.spans["observation"]
        state = np.ascontiguousarray(context.state)
        _draw_similar(self.stream.state, self.columns.rows, span.start, state, count, wanted, self.scratch, draws)


@kernel
def _draw_similar(
    stream: NDArray[np.uint64],
    rows: Floats32,
    first: int,
    state: Floats32,
    count: Indices,
    wanted: int,
    scratch: _Scratch,
    draws: Draws,
) -> None:
    own = borrow(scratch)
    for m in range(draws.idx.shape[0]):
        n = min(wanted, count[m])
        _draw_distinct(stream[m], count[m], n, own)
        _compare(rows, m, first, state[m], n, own)
        _keep_best(n, own, draws.idx[m])
        draws.probability[m] = np.nan


@kernel
def _keep_best(n: int, scratch: _Scratch, kept: Indices) -> None:
    """Write the B most similar of n candidates to `kept` in draw order. If n < B, candidates are repeated."""
    count, slots, similarity = min(kept.size, n), scratch.slots, scratch.similarity
    bar = np.partition(similarity[:n], n - count)[n - count]  # similarity of the last of the best
    above = 0
    for i in range(n):
        above += similarity[i] > bar
    ties, b = count - above, 0
    for i in range(n):
        tied = similarity[i] == bar
        keep = (similarity[i] > bar) | (tied & (ties > 0))
        ties -= tied
        kept[min(b, kept.size - 1)] = slots[i] if keep else kept[min(b, kept.size - 1)]
        b += keep
    for i in range(count, kept.size):
        kept[i] = kept[i - count]


@kernel
def _draw_distinct(stream: NDArray[np.uint64], count: int, n: int, scratch: _Scratch) -> None:
    """Draw n of `count` slots without replacement, by redrawing repeated slots or by a shuffle of all slots."""
    slots = scratch.slots
    if count < 2 * n:
        for i in range(count):
            scratch.pool[i] = i
        for i in range(n):
            j = i + next_below(stream, count - i)
            scratch.pool[i], scratch.pool[j] = scratch.pool[j], scratch.pool[i]
            slots[i] = scratch.pool[i]
        return
    scratch.turn[0] += 1
    mark, mask = scratch.turn[0] << 32, scratch.seen.size - 1
    for i in range(n):
        repeated = True
        while repeated:
            slot, repeated = next_below(stream, count), False
            place = (slot * 0x9E3779B1 >> 7) & mask
            while scratch.seen[place] >= mark and not repeated:
                repeated = scratch.seen[place] == mark | slot
                place = (place + 1) & mask
        scratch.seen[place] = mark | slot
        slots[i] = slot


@kernel
def _compare(rows: Floats32, m: int, first: int, state: Floats32, n: int, scratch: _Scratch) -> None:
    own = 0.0
    for s in range(state.size):
        own += np.float64(state[s]) * np.float64(state[s])
    for i in range(n):
        product, norm = 0.0, 0.0
        for s in range(state.size):
            stored = np.float64(rows[m, scratch.slots[i], first + s])
            product += stored * np.float64(state[s])
            norm += stored * stored
        scratch.similarity[i], scratch.norm[i] = product, norm
    for i in range(n):  # separately, so that roots and quotients are vectorised
        scale = np.sqrt(own * scratch.norm[i])
        similarity = scratch.similarity[i] / scale
        # A zero vector has no direction, and a failed member's NaN no similarity.
        similarity = similarity if (scale > 0) & (similarity == similarity) else 0.0
        scratch.similarity[i] = similarity
