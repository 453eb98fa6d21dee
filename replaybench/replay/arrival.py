"""The arrival of experiences as calls of kernels, for steps that follow each other without Python between them.

What `Replay.add` does with an experience of every member, these do with what stands in a row when they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call
from replaybench.data.kernels.put import put
from replaybench.replay.arrays import Floats
from replaybench.replay.buffer import Replay
from replaybench.replay.orders.rank_order import order_arrive_all
from replaybench.replay.own_strategies import ours
from replaybench.replay.storage.columns import write
from replaybench.replay.storage.slots import offer
from replaybench.replay.strategies.running import Running

Bools = NDArray[np.bool_]


class Arrival(NamedTuple):
    """What stores experiences of all members.

    Attributes:
        fields: where each field of the next experience is to be written, float32 `[M, width]`.
        calls: what stores it then.
    """

    fields: Mapping[str, Floats]
    calls: list[Call]


def arrival(replay: Replay, active: Bools, ended: Bools) -> Arrival | None:
    """Return what does `Replay.add` again and again, until an episode has `ended` `[M]`.

    None where this cannot be had: of units of several steps, of traces, where experiences are dropped or altered before
    they are stored, and of strategies that have no calls of kernels for it.
    """
    columns, retention = replay.columns, replay.retention
    if replay.assembly or replay.drop or replay.synth or replay.traces:
        return None
    parts = [part for part in (replay.sampling, replay.weighting) if part is not None]
    more = any(type(part).stored is not Running.stored for part in parts)
    if more or not ours(retention):  # a user's, which does more than its calls, or whose slots are to be checked
        return None
    # It makes room for an episode that begins: others ask for its arrays afterwards.
    counting = replay.episodes.counting(replay.collected, active, ended)
    slots = np.empty_like(replay.count)
    if (chosen := retention.calls(replay.offers, replay.slots, slots)) is None:
        return None
    row = np.zeros((len(replay.count), columns.width), np.float32)
    calls = [
        counting,
        Call(offer, (active, replay.count, replay.slots, replay.offers, slots)),
        *chosen,
        Call(write, (columns.rows, columns.serial, slots, replay.collected, row, replay.count)),
    ]
    for metric, order in replay.orders.items():
        keys = np.full(len(row), np.inf, np.float32)  # unknown, unless it is a column
        if metric in columns.spans:
            calls.append(Call(put, (row[:, columns.spans[metric]], keys[:, None])))
        calls.append(Call(order_arrive_all, (order.state, slots, keys)))
    for part in parts:
        calls += part.storing(slots)
    return Arrival({name: row[:, span] for name, span in columns.spans.items()}, calls)
