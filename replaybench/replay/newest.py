"""Read experiences without drawing: no random stream advances, and nothing counts as replayed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from replaybench.replay.arrays import Floats
from replaybench.replay.batch import ReplayBatch
from replaybench.replay.buffer import Replay
from replaybench.replay.storage.columns import gather


def newest_batch(replay: Replay) -> ReplayBatch:
    """Return each member's B newest stored experiences or units, the newest first.

    Where it has fewer, the rest has weight and length 0: it must not count in means over steps either.
    """
    columns, batch = replay.columns, replay.batch_size
    members = len(columns.serial)
    order = np.argsort(-columns.serial.astype(np.int64), axis=1, kind="stable")[:, :batch]
    idx = np.zeros((members, batch), np.int64)
    idx[:, : order.shape[1]] = order
    rows = np.zeros((members, batch, columns.rows.shape[2]), np.float32)
    serial = np.zeros((members, batch), np.uint32)
    gather(columns.rows, columns.serial, idx, rows, serial)
    there = np.arange(batch) < replay.count[:, None]
    weight = there.astype(np.float32)
    length = np.ones(idx.shape, np.uint16) if replay.assembly is None else replay.assembly.lengths(idx)
    return ReplayBatch(
        columns=columns.views(rows),
        idx=idx,
        serial=serial,
        probability=np.full(idx.shape, np.nan),
        weight=weight,
        actor_weight=weight.copy(),
        rate_factor=(replay.count > 0).astype(np.float32),
        length=there * length,
    )


def spread_sample(replay: Replay, count: int) -> Mapping[str, Floats]:
    """Return every field `[M, count, …]` of experiences spread evenly over each member's slots in use."""
    idx = np.arange(count) * replay.count[:, None] // count
    return replay.columns.views(np.take_along_axis(replay.columns.rows, idx[:, :, None], axis=1))
