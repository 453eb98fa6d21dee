"""By which numbers experiences are ranked: when they arrive, and again when a stored buffer is loaded.

A metric that is a column is read there, of a unit of several steps their mean; others are told, and infinite until
then. In rank order NaN marks slots without an occupant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.replay.arrays import Floats
from replaybench.replay.storage.columns import Columns
from replaybench.replay.storage.units import Assembly, mean_over_steps


def arriving_keys(
    metric: str, experience: Mapping[str, NDArray[Any]], row: Floats, columns: Columns, assembly: Assembly | None
) -> Floats:
    """Return a metric of new occupants, whose columns are `row` `[M, steps · width]`: float32 `[M]`."""
    if metric not in columns.spans:
        given = experience.get(metric)
        return np.full(len(row), np.inf, np.float32) if given is None else np.asarray(given[:, 0], np.float32)
    steps = row.reshape(len(row), -1, columns.width)[:, :, columns.spans[metric].start]
    if assembly is None:
        return np.ascontiguousarray(steps[:, 0])
    return mean_over_steps(steps[:, None], assembly.filled[:, None].astype(np.uint16))[:, 0]


def stored_keys(
    metric: str,
    state: Mapping[str, NDArray[Any]],
    columns: Columns,
    assembly: Assembly | None,
    count: NDArray[np.int64],
) -> Floats:
    """Return a metric of what a buffer's state holds, float32 `[M, n]`, of `count` `[M]` experiences each."""
    keys = np.asarray(state[metric], np.float32)
    if metric in columns.fields:
        steps = keys[..., 0]
        keys = steps if assembly is None else mean_over_steps(steps, np.asarray(state["length"]))
        keys = np.where(np.isnan(keys), np.inf, keys)
        keys = np.where(np.arange(keys.shape[1]) < count[:, None], keys, np.nan).astype(np.float32)
    return keys
