"""Replayed segments for kernels: one row a step, padding included."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from replaybench.controllers.agent import Batch, Floats
from replaybench.controllers.normaliser import Normaliser


class Segments(NamedTuple):
    """B segments of up to K steps of every member; row b·K + t is step t of segment b. For U updates, M·U rows for M.

    Attributes:
        observation: `[M, B·K + B, S]`, normalised; the last B rows are the successors of the segments' last steps.
        action: `[M, B·K, A]`.
        reward: float64 `[M, B·K]`, scaled for learning.
        goes_on: `[M, B]`, whether the successor of the last step has a value: no termination.
        length: int64 `[M, B]`, own steps of each segment; the rows of the others are zero.
        weight, actor_weight: `[M, B]`.
        rate_factor: `[M]`.
    """

    observation: Floats
    action: Floats
    reward: NDArray[np.float64]
    goes_on: NDArray[np.bool_]
    length: NDArray[np.int64]
    weight: Floats
    actor_weight: Floats
    rate_factor: Floats


def as_segments(batch: Batch, normaliser: Normaliser, dtype: DTypeLike) -> Segments:
    """Return a batch as segments; single steps are segments of one."""
    length = np.ones(batch.weight.shape, np.int64) if batch.length is None else batch.length.astype(np.int64)
    last = np.maximum(length - 1, 0)[:, :, None, None]
    observation = rows(batch, "observation", dtype)
    successor = np.take_along_axis(_stepwise(batch, "next_observation"), last, axis=2)[:, :, 0]
    terminated = np.take_along_axis(_stepwise(batch, "terminated"), last, axis=2)[:, :, 0, 0]
    scale = np.repeat(normaliser.rewards.factor, len(length) // len(normaliser.rewards.factor))
    return Segments(
        normaliser.observations(np.concatenate([observation, successor.astype(dtype)], axis=1)),
        rows(batch, "action", dtype),
        scale[:, None] * np.asarray(rows(batch, "reward", np.float64)[:, :, 0], np.float64),
        terminated == 0,
        length,
        batch.weight,
        batch.actor_weight,
        batch.rate_factor,
    )


def rows(batch: Batch, name: str, dtype: DTypeLike) -> Floats:
    """Return a column as a contiguous array `[M, B·K, width]`."""
    column = _stepwise(batch, name)
    members, _, _, width = column.shape
    return np.array(column, dtype, order="C").reshape(members, -1, width)


def _stepwise(batch: Batch, name: str) -> Floats:
    column = batch.columns[name]
    return column if column.ndim == 4 else column[:, :, None]
