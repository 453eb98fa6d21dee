"""A phase of updates as calls of kernels, for draws that depend on what a learner returned in the update before.

What `Replay` does batch by batch for all members, these do for one member after the other: `run` (see there) makes the
calls, the learner's in between, and nothing returns to Python until the phase is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from replaybench.data.compilation.sequence import Call
from replaybench.data.kernel import kernel
from replaybench.replay.arrays import Floats
from replaybench.replay.batch import ReplayBatch
from replaybench.replay.buffer import Replay
from replaybench.replay.orders.rank_order import order_update_all
from replaybench.replay.storage.slots import still_there
from replaybench.replay.strategies.sampling.interface import RunningSampling
from replaybench.replay.strategies.view import Context
from replaybench.replay.strategies.weighting.interface import RunningWeighting


def sampling_calls(replay: Replay, contexts: Sequence[Context]) -> tuple[ReplayBatch, list[Call]] | None:
    """Return a batch and the calls that fill it for one after the other of successive updates, to be made by `run`.

    They do what `Replay.sample` does, member by member. `annotation_calls` of this batch are to follow in each update.
    None where this cannot be had, and nothing is done: of units of several steps, windows, where noise is tallied,
    where a member stores nothing yet, and of strategies and traces that have no calls of kernels.
    """
    followed = replay.traces is None or hasattr(replay.traces.rule, "calls")
    if replay.assembly or replay.noise is not None or replay.window > 1 or not followed or (replay.count == 0).any():
        return None
    room, before, updates = replay.room_for(1), replay.updates, len(contexts)
    numbered = [context._replace(updates_before=before + u) for u, context in enumerate(contexts)]
    drawing = type(replay.sampling)
    if drawing.draw is not RunningSampling.draw or drawing.annotate is not RunningSampling.annotate:
        return None  # a user's, which does more than its calls, or than those that it inherits
    if replay.weighting is not None and type(replay.weighting).weigh is not RunningWeighting.weigh:
        return None
    calls = replay.sampling.calls(numbered, replay.count, replay.offers, room.draws)
    weighing: Sequence[Call] | None = ()
    if replay.weighting is not None:
        usages = [replay.usage_after(context, before + u + 1, replay.count) for u, context in enumerate(contexts)]
        weighing = replay.weighting.calls(numbered, usages, room.draws, room.weight)
    if calls is None or weighing is None:
        return None
    replay.updates += updates
    replay.mute(replay.count == 0)
    further, traces = [room.fetch(replay.columns)], None
    if replay.traces is not None and replay.traces.rule.names:
        traces = replay.traces.of(room.draws.idx)
        further.append(replay.traces.gathering(room.draws.idx, traces))
    return replay.batch_of(contexts[0], traces=traces), [*calls, *weighing, *further]


def annotation_calls(replay: Replay, batch: ReplayBatch, annotations: Mapping[str, Floats], updates: int) -> list[Call]:
    """Return the calls that do `Replay.annotate` in each of so many updates, those of which `sampling_calls` told."""
    if not replay.uses_feedback:
        return []
    if "td_error" not in annotations and replay.strategy.by_td_error:
        raise ValueError(f"{replay.strategy} needs td_error from the learner")
    live = np.empty_like(batch.idx)
    calls = [Call(still_there, (replay.columns.serial, batch.idx, batch.serial, live))]
    if replay.traces is not None:
        calls += replay.traces.calls(live, annotations, updates)
    td_error = annotations.get("td_error")
    if td_error is not None and replay.strategy.by_td_error:
        size = np.empty(td_error.shape, np.float32)
        calls.append(Call(_sizes, (td_error, size)))
        if "td_error" in replay.orders:
            calls.append(Call(order_update_all, (replay.orders["td_error"].state, live, size)))
        calls += replay.sampling.annotation_calls(live, size)
    return calls


@kernel
def _sizes(td_error: NDArray[np.floating], size: Floats) -> None:
    for m in range(size.shape[0]):
        for b in range(size.shape[1]):
            size[m, b] = abs(td_error[m, b])
