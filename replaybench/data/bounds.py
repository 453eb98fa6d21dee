"""Bounds on numbers and names that users and files give: part of the type of a field or an option, in one place.

`Seeds = Annotated[int, Within(1, 100_000)]`: studies, command line and facts of files that hold `Seeds` refuse the same
numbers. The bounds are those that only a slip of the finger, or a forged file, passes.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import Annotated, Final

from replaybench.data.errors import UserError, shown

MOST: Final = 10**9


@dataclass(frozen=True)
class Within:
    """A range of numbers in some unit, its ends included, but not the lower end of an `above` range."""

    low: float
    high: float = MOST
    unit: str = ""
    above: bool = False

    def check(self, value: float, what: str) -> None:
        """Raise `UserError`, naming `what`, for a number outside; NaN is outside of every range."""
        if self.low <= value <= self.high and not (self.above and value == self.low):
            return
        low = f"above {self.low:.10g}" if self.above else f"at least {self.low:.10g}"
        high = "" if math.isinf(self.high) else f" and at most {self.high:.10g}"
        raise UserError(f"{what} must be {low}{high}{self.unit and ' '}{self.unit}, not {shown(value)}")


@dataclass(frozen=True)
class OneLine:
    """Text without control characters and line breaks, which patterns, terminals and tables take for something else."""

    def check(self, value: str, what: str) -> None:
        """Raise `UserError`, naming `what`, for any other text."""
        if any(unicodedata.category(each) in ("Cc", "Zl", "Zp") for each in value):
            raise UserError(f"{what} holds a control character or line break: {shown(value)}; names are one line")


Bound = Within | OneLine

Name = Annotated[str, OneLine()]
"""A name of a plant, learner or strategy, or of one of their signals."""

Count = Annotated[int, Within(1)]
"""A number of things of which there is at least one."""
Whole = Annotated[int, Within(0)]
"""A number of things of which there may be none, or the place of one."""
Seeds = Annotated[int, Within(1, 100_000)]
Workers = Annotated[int, Within(1, 4096)]
RootSeed = Annotated[int, Within(0, 2**128 - 1)]

NOISE: Final = Within(0, 10, "normalised units")
Noise = Annotated[float, NOISE]
"""Standard deviation in normalised units."""
HERTZ: Final = Within(0, 1e5, "Hz", above=True)
Hertz = Annotated[float, HERTZ]
Seconds = Annotated[float, Within(0, math.inf, "s")]
Discount = Annotated[float, Within(0, 1)]
"""Discount factor of a control step."""

STEPS: Final = Within(1, 10**7, "steps")
"""Samples of an episode, and steps of integration in a sample."""
