"""Retention strategies FIFO, FULL, Resv, TDE and Expl (de Bruin et al., 2018, section 7.1), and FarPol.

Novati & Koumoutsakos (2019) drop the oldest episodes. `FIFO` drops the oldest steps instead. The public code of these
authors can also drop the episode with the largest fraction of far-policy steps. `FarPol` implements this rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.orders.rank_law import Sums, first_sums, rank_at, rank_in_segment, segment_edges
from replaybench.replay.orders.rank_order import SIZE, OrderState, order_select
from replaybench.replay.storage.columns import Indices, State
from replaybench.replay.strategies.interface import BufferView, Drawing, Retention, RunningRetention, check_exponent
from replaybench.runtime.arrays import Floats32, Integers, Integers32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel
from replaybench.runtime.streams import next_below, next_double


@dataclass(frozen=True)
class FIFO(Retention):
    """First-in first-out retention, which overwrites the oldest experience."""

    in_turn = True

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningFIFO()


class _RunningFIFO(RunningRetention):
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        np.copyto(slots, (offers - 1) % capacity, where=slots == -2)


@dataclass(frozen=True)
class FULL(Retention):
    """Retention of all experiences, called FULL DB by de Bruin et al. (2018)."""

    bounded = False
    in_turn = True
    no_parameters = "FULL keeps everything and has no capacity; FIFO, Resv, TDE and Expl have the study's or their own"

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningFULL()


class _RunningFULL(RunningRetention):
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        raise OverflowError("a FULL buffer was offered more experiences or units than it has room for")


@dataclass(frozen=True)
class Resv(Retention):
    """Reservoir retention, which keeps every experience of the run with equal probability (Vitter, 1985).

    The i-th experience enters a full buffer of capacity C with probability C/i. It overwrites a stored experience that
    is drawn uniformly.
    """

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningResv(view, "retention")


class _RunningResv(Drawing, RunningRetention):
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        _reservoir(self.stream.state, offers, capacity, slots)


@kernel
def _reservoir(state: NDArray[np.uint64], offers: Indices, capacity: int, slots: Indices) -> None:
    for m in range(slots.size):
        if slots[m] == -2:
            place = next_below(state[m], offers[m])
            slots[m] = place if place < capacity else -1


_FEWEST_SEGMENTS: Final = 3
_RANKS_PER_SEGMENT: Final = 500


@dataclass(frozen=True)
class _Ranked(Retention):
    """Base class of rules that overwrite experiences with a small metric (de Bruin et al., 2018, section 7.1.2).

    The experience with the r-th smallest metric is overwritten with P ∝ r^−α (eq. 7). Among equal metrics the oldest
    experience has the first rank, as in the authors' public code. Equal metrics are common: if a learner rarely
    explores, nearly all exploration metrics are 0.

    Attributes:
        alpha: α, the exponent of the ranks.
        segments: Number of segments of equal probability into which ranks are cut. A segment is drawn, and a rank in it
            uniformly. `authors` takes max(3, C/500) segments for a capacity C, as the authors' public code does. None
            draws from r^−α exactly, which differs only for the first ranks.
    """

    alpha: float = 1.0
    segments: int | Literal["authors"] | None = "authors"
    slot_bytes = 12  # the order also stores ages, to rank equal metrics
    largest_bare = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exponent(self, self.alpha)
        if not (self.segments in ("authors", None) or (isinstance(self.segments, int) and self.segments >= 1)):
            name = type(self).__name__
            raise UserError(f"{name}: segments must be a whole number ≥ 1, authors or none, not {self.segments}")

    def start_by(self, metric: str, view: BufferView) -> RunningRetention:
        """Return the object that chooses the slots to overwrite by this metric during a run."""
        rule = max(_FEWEST_SEGMENTS, view.capacity // _RANKS_PER_SEGMENT)
        segments = rule if self.segments == "authors" else int(self.segments or 0)
        order = view.orders[metric].state
        return _RunningRanked(self.alpha, min(segments, view.capacity), order, view)


@dataclass(frozen=True)
class TDE(_Ranked):
    """Retention that overwrites experiences with a small TD error (de Bruin et al., 2018, section 7.1).

    The metric is |δ| in the last update that used the experience. It is infinite before the first such update.
    """

    orders = ("td_error",)

    def start(self, view: BufferView) -> RunningRetention:
        return self.start_by("td_error", view)


@dataclass(frozen=True)
class Expl(_Ranked):
    """Retention that overwrites experiences with little exploration (de Bruin et al., 2018, section 7.1).

    The metric is ‖a − π(s)‖₁ when the experience was collected. It is never recomputed.
    """

    orders = ("exploration",)

    def start(self, view: BufferView) -> RunningRetention:
        return self.start_by("exploration", view)


class _RunningRanked(Drawing, RunningRetention):
    def __init__(self, alpha: float, segments: int, order: OrderState, view: BufferView) -> None:
        super().__init__(view, "retention")
        self.order, self.alpha = order, alpha
        self.rank_sums = first_sums(alpha)
        self.edges = np.zeros(segments + 1, np.int64)
        self.edges_for = 0

    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        if self.edges_for != capacity and self.edges.size > 1:
            segment_edges(self.rank_sums, self.alpha, capacity, self.edges)
            self.edges_for = capacity
        _ranked_victims(self.order, self.stream.state, self.rank_sums, self.alpha, self.edges, slots)


@kernel
def _ranked_victims(
    order: OrderState, stream: NDArray[np.uint64], rank_sums: Sums, alpha: float, edges: Indices, slots: Indices
) -> None:
    for m in range(slots.size):
        if slots[m] != -2:
            continue
        size = int(order.head[m, SIZE])
        if edges.size > 1:
            place = next_double(stream[m]) * (edges.size - 1)
            rank, _ = rank_in_segment(edges, int(place), place - int(place))
        else:
            rank, _ = rank_at(rank_sums, alpha, size, next_double(stream[m]))
        slots[m] = order_select(order, m, size - 1 - min(rank, size - 1))


@dataclass(frozen=True)
class FarPol(Retention):
    """Retention that drops the episode with the largest fraction of far-policy steps, from its oldest step on.

    Far-policy steps have an importance weight outside of [1/c_max, c_max] (Novati & Koumoutsakos, 2019). The learner
    marks them by the value 1 of its trace `far`. When all steps of an episode have been dropped, the rule chooses the
    next episode. Among equal fractions, it chooses the oldest episode. It chooses the unfinished episode only if no
    other episode is stored.
    """

    traces = ("far",)
    slot_bytes = 4

    def start(self, view: BufferView) -> RunningRetention:
        return _RunningFarPol(view)


class _RunningFarPol(RunningRetention):
    """The object that chooses the slots to overwrite by `FarPol` during a run.

    Attributes:
        victim: First step of the episode that is being dropped, and first step of the episode after it, as numbers in
            order of collection; int64, shape `[M, 2]`.
        queue: Buffer slots with the remaining steps of the episode that is being dropped, the oldest step last; int32,
            shape `[M, N]` for N slots.
        waiting: Number of slots in the queue, or −1 if the queue must be rebuilt after loading; int64, shape `[M]`.
    """

    def __init__(self, view: BufferView) -> None:
        assert view.traces is not None  # `Replay` refuses this retention without traces
        members = len(view.members)
        self.serial, self.episodes = view.columns.serial, view.episodes
        self.far = view.traces.view("far")
        self.victim = np.zeros((members, 2), np.int64)
        self.queue = np.zeros((members, view.capacity), np.int32)
        self.waiting = np.zeros(members, np.int64)

    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        starts, known = self.episodes.starts, self.episodes.known
        _oldest_of_farthest(starts, known, self.serial, self.far, self.victim, self.queue, self.waiting, slots)

    def state_dict(self, stored: int) -> State:
        return {"far_victim": self.victim}

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        victim = np.asarray(state["far_victim"], np.int64)
        collected = np.asarray(state["collected"], np.int64)
        if ((victim < 0) | (victim > collected[:, None] + 1)).any() or (victim[:, 0] > victim[:, 1]).any():
            raise ValueError("the episode to be dropped was never collected")
        self.victim[:], self.waiting[:] = victim, -1


@kernel
def _oldest_of_farthest(
    starts: NDArray[np.uint32],
    known: Integers,
    serial: NDArray[np.uint32],
    far: Floats32,
    victim: Integers,
    queue: Integers32,
    waiting: Integers,
    slots: Indices,
) -> None:
    """Replace each −2 in `slots` by the slot of the oldest step in the episode that is being dropped."""
    for m in range(slots.size):
        if slots[m] != -2:
            continue
        if waiting[m] < 0:
            waiting[m] = _queue_steps(serial[m], victim[m], queue[m])
        if waiting[m] == 0:
            _choose(starts[m, : known[m]], serial[m], far[m], victim[m])
            waiting[m] = _queue_steps(serial[m], victim[m], queue[m])
        waiting[m] -= 1
        slots[m] = queue[m, waiting[m]]


@kernel
def _choose(starts: NDArray[np.uint32], serial: NDArray[np.uint32], far: Floats32, victim: Integers) -> None:
    """Choose the next episode to drop, and write the range of its steps' serial numbers to `victim`."""
    unfinished = starts.size - 1
    steps, n_far = np.zeros(starts.size, np.int64), np.zeros(starts.size, np.int64)
    episode, newest = 0, 0
    for slot in range(serial.size):
        number = int(serial[slot])
        # Neighbouring slots mostly hold neighbouring steps.
        if number < starts[episode] or (episode < unfinished and number >= starts[episode + 1]):
            episode = int(np.searchsorted(starts, number, side="right")) - 1
        steps[episode] += 1
        n_far[episode] += far[slot] > 0
        newest = max(newest, number)
    chosen = -1
    for episode in range(unfinished):
        if steps[episode] > 0 and (chosen < 0 or n_far[episode] * steps[chosen] > n_far[chosen] * steps[episode]):
            chosen = episode
    if chosen < 0:
        chosen = unfinished
    victim[0] = starts[chosen]
    victim[1] = starts[chosen + 1] if chosen < unfinished else newest + 1


@kernel
def _queue_steps(serial: NDArray[np.uint32], victim: Integers, queue: Integers32) -> int:
    slot_of = np.full(victim[1] - victim[0], -1, np.int32)
    for slot in range(serial.size):
        if victim[0] <= serial[slot] < victim[1]:
            slot_of[serial[slot] - victim[0]] = slot
    waiting = 0
    for step in range(slot_of.size - 1, -1, -1):
        if slot_of[step] >= 0:
            queue[waiting] = slot_of[step]
            waiting += 1
    return waiting
