"""A finite set of actions: evenly spaced levels of each dimension, and all combinations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from replaybench.controllers.networks.mlp import Floats
from replaybench.data.errors import UserError

MOST = 1000
"""Most combinations: each is an output of a network, and learners that store probabilities store one for each."""

USUAL = 15
"""Levels per dimension of continuous actions where a study asks for none: those of de Bruin et al. (2018)."""


class ActionLevels:
    """Levels spread evenly over [−1, 1] in each dimension, both ends included.

    Args:
        levels: levels of every dimension, as set; None takes the plant's choices, or `USUAL` levels.
        actions: number of dimensions A.
        choices: how many values the plant takes in each, empty if any.

    Attributes:
        counts: int64 `[A]`, levels of each dimension.
        table: float32 `[n, A]`, the actions; the last dimension changes fastest.

    Raises:
        UserError: fewer than 2 levels, more than `MOST` combinations, or other levels than the plant takes.
    """

    def __init__(self, levels: int | None, actions: int, choices: Sequence[int] = ()) -> None:
        counts = tuple(choices) or (USUAL if levels is None else levels,) * actions
        if levels is not None and set(counts) != {levels}:
            own = " × ".join(map(str, counts))
            raise UserError(f"levels = {levels}, but the plant takes {own} choices; leave levels out")
        if min(counts) < 2:
            raise UserError(f"levels must be at least 2, not {min(counts)}")
        if (combinations := prod(counts)) > MOST:
            raise UserError(_too_many(counts, combinations, bool(choices)))
        self.counts = np.array(counts, np.int64)
        grid = np.meshgrid(*[np.linspace(-1.0, 1.0, count, dtype=np.float32) for count in counts], indexing="ij")
        self.table: Floats = np.stack(grid, axis=-1).reshape(-1, actions)


def _too_many(counts: tuple[int, ...], combinations: int, own: bool) -> str:
    if own:
        shown = " × ".join(map(str, counts))
        return f"the plant's {shown} choices are {combinations} actions; no learner takes more than {MOST}"
    levels, actions = counts[0], len(counts)
    fitting = int(np.floor(MOST ** (1 / actions) + 1e-9))
    remedy = f"set levels to at most {fitting}" if fitting > 1 else "take a learner with continuous actions"
    return f"levels = {levels} in {actions} dimensions are {combinations} actions; {remedy}"
