"""A finite set of actions out of continuous ones: some levels per dimension and all their combinations."""

from __future__ import annotations

import numpy as np

from replaybench.controllers.layers import Floats
from replaybench.data.errors import UserError

MOST = 1000
"""Most combinations: each is an output of a network, and learners that store probabilities store one for each."""


class ActionLevels:
    """Levels spread evenly over [−1, 1] in each dimension, both ends included.

    Attributes:
        table: float32 `[n, A]`, the actions; the last dimension changes fastest.

    Raises:
        UserError: fewer than 2 levels, or more than `MOST` combinations.
    """

    def __init__(self, levels: int, actions: int) -> None:
        if levels < 2:
            raise UserError(f"levels must be at least 2, not {levels}")
        if levels**actions > MOST:
            fitting = int(np.floor(MOST ** (1 / actions) + 1e-9))
            remedy = f"set levels to at most {fitting}" if fitting > 1 else "take a learner with continuous actions"
            raise UserError(f"levels = {levels} in {actions} dimensions are {levels**actions} actions; {remedy}")
        grid = np.meshgrid(*[np.linspace(-1.0, 1.0, levels, dtype=np.float32)] * actions, indexing="ij")
        self.table: Floats = np.stack(grid, axis=-1).reshape(-1, actions)
