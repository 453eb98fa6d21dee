"""What a running cell tells of each round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Round(NamedTuple):
    """A round that a cell has done.

    Attributes:
        done: how many there are now.
        reward: what the plant tells of the training episodes that ended in it, mean over the members that have not
            failed; NaN where none has ended.
        failed: members of which a reward is not finite.
        steps: environment steps of a member so far, mean over members.
        latest: what the last greedy episode and the learner's metrics came to, by name, mean over sound members.
    """

    done: int
    reward: float = math.nan
    failed: int = 0
    steps: float = 0.0
    latest: tuple[tuple[str, float], ...] = ()


Report = Callable[[Round], bool]
"""Told of every round; returns False to ask the cell to stop."""
