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
    """

    done: int
    reward: float = math.nan
    failed: int = 0


Report = Callable[[Round], bool]
"""Told of every round; returns False to ask the cell to stop."""
