"""Progress report of a running cell after each round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Round(NamedTuple):
    """A finished round of a cell.

    Attributes:
        done: number of finished rounds.
        reward: mean score of the training episodes that ended in it, over members that have not failed; NaN if none.
        failed: number of members with a reward that is not finite.
        steps: environment steps of a member so far, mean over members.
        latest: latest greedy reward and learner metrics by name, means over members that have not failed.
    """

    done: int
    reward: float = math.nan
    failed: int = 0
    steps: float = 0.0
    latest: tuple[tuple[str, float], ...] = ()


Report = Callable[[Round], bool]
"""Called after every round; returns False to stop the cell."""
