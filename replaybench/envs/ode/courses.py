"""Random courses of exogenous states, such as set points, which no equation of a plant determines."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.envs.interface.declarations import NUMBER
from replaybench.runtime import elementwise
from replaybench.runtime.errors import UserError, shown

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """The base class of courses through random values, which are uniform in [low, high] and `hold` seconds apart.

    Args:
        low: Lower bound of the values, in the unit of the state.
        high: Upper bound of the values.
        hold: Time from one random value to the next [s].
    """

    low: float
    high: float
    hold: float

    def __post_init__(self) -> None:
        for name in ("low", "high", "hold"):
            if not NUMBER.fits(value := getattr(self, name)):
                raise UserError(f"{type(self).__name__}: {name} must be {NUMBER.words}, not {shown(value)}")
        if not (self.low < self.high and self.hold > 0):
            raise UserError(f"{self} must have low below high, and a positive hold")

    def at(self, last: Floats, following: Floats, share: Floats) -> Floats:
        """Return the values of M copies of the plant, `[M]`.

        Args:
            last: Uniform random numbers in [0, 1) of the last random value, `[M]`.
            following: Those of the next random value.
            share: Share in [0, 1) of the time between the two values that has passed.
        """
        return self.low + (self.high - self.low) * (last + self.progress(share) * (following - last))

    @staticmethod
    def progress(share: Floats) -> Floats:
        """Return the share in [0, 1] of the way from one random value to the next."""
        raise NotImplementedError


class Steps(Course):
    """A course that holds each random value for `hold` seconds, and then steps to the next one."""

    @staticmethod
    def progress(share: Floats) -> Floats:
        return np.zeros_like(share)


class Ramps(Course):
    """A course that moves from one random value to the next at a constant speed."""

    @staticmethod
    def progress(share: Floats) -> Floats:
        return share


class Sines(Course):
    """A course that moves from one random value to the next along half a period of a sine."""

    @staticmethod
    def progress(share: Floats) -> Floats:
        return 0.5 - 0.5 * elementwise.cos(np.pi * share)
