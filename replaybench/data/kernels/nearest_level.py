"""Evenly spaced values in [−1, 1], of which an action is one: which of them is nearest.

Plants that take choices and learners that make them must agree on that, and know nothing of each other.
"""

from __future__ import annotations

import math

from replaybench.data.kernel import kernel


@kernel
def nearest_level(value: float, count: int) -> int:
    """Return the place, from 0, of the value nearest to `value` among `count` ≥ 2 from −1 to 1.

    The lower of two that are equally near; the first for NaN.
    """
    place = 0.5 * (value + 1.0) * (count - 1) - 0.5
    if not place > 0.0:
        return 0
    if place > count - 2:
        return count - 1
    return math.ceil(place)
