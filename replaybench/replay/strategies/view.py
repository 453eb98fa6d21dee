"""What a running strategy may read: the buffer, and the run's progress with every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replaybench.data.streams import Stream
from replaybench.replay.arrays import Floats
from replaybench.replay.orders.rank_order import RankOrder
from replaybench.replay.storage.columns import Columns
from replaybench.replay.storage.episode_starts import EpisodeStarts
from replaybench.replay.storage.traces import Traces


class BufferView(NamedTuple):
    """The buffer that a strategy works for.

    Attributes:
        root, members: seed of the study and member numbers `[M]`.
        capacity: slots of each member.
        bounded: whether the buffer has a size of its own; a FULL buffer is only as large as its run needs.
        in_turn: whether slots are filled and overwritten in turn, so that their order is that of age.
        columns: what is stored; strategies only read it.
        orders: rank orders by metric; strategies only draw from them.
        episodes: where episodes began; strategies only read it.
        traces: what the learner derives along episodes, None if it does not; strategies only read it.
    """

    root: int
    members: Sequence[int]
    capacity: int
    bounded: bool
    in_turn: bool
    columns: Columns
    orders: Mapping[str, RankOrder]
    episodes: EpisodeStarts
    traces: Traces | None

    def stream(self, purpose: str) -> Stream:
        """Return the members' random streams for a purpose."""
        return Stream(self.root, self.members, purpose)


class Context(NamedTuple):
    """What a strategy may depend on besides the stored experiences.

    Attributes:
        update, updates_in_phase: which update of its phase this is, from 0, and of how many.
        progress: 0 at the first episode of the run, 1 at its end.
        state: the state `[M, S]` that each agent attends to, as it was observed; None where nothing asks for it.
        updates_before: how many updates of the whole run came before this one; `Replay` fills it in.
    """

    update: int = 0
    updates_in_phase: int = 1
    progress: float = 0.0
    state: Floats | None = None
    updates_before: int = 0
