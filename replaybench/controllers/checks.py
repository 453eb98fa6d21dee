"""Checks of learners' settings that fail in one line, naming the learner, the setting and what it may be."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from replaybench.data.errors import UserError

MOST = 10**6
MOST_UNITS = 10_000
"""Bounds that only a slip of the finger passes."""


def positive(learner: str, **values: float | None) -> None:
    """Check that each given value is a finite number above 0; None passes.

    Raises:
        UserError: one is not.
    """
    for name, value in values.items():
        if value is not None and not 0 < value < inf:
            raise UserError(f"{learner}: {name} must be a finite number above 0, not {value}")


def between(learner: str, low: float, high: float, **values: float | None) -> None:
    """Check that each given value is finite and lies in [low, high]; None passes.

    Raises:
        UserError: one does not.
    """
    for name, value in values.items():
        if value is not None and not (isfinite(value) and low <= value <= high):
            bounds = f"in [{low:g}, {high:g}]" if high < inf else f"finite and at least {low:g}"
            raise UserError(f"{learner}: {name} must be {bounds}, not {value}")


def betas(learner: str, decay: tuple[float, float]) -> None:
    """Check that both decay rates of Adam's moments lie in [0, 1).

    Raises:
        UserError: one does not.
    """
    if not all(0 <= beta < 1 for beta in decay):
        raise UserError(f"{learner}: both betas must be at least 0 and below 1, not {list(decay)}")


def counts(learner: str, **values: int) -> None:
    """Check that each value is at least 1 and at most `MOST`.

    Raises:
        UserError: one is not.
    """
    for name, value in values.items():
        if not 1 <= value <= MOST:
            raise UserError(f"{learner}: {name} must be at least 1 and at most {MOST}, not {value}")


def widths(learner: str, **hidden: Sequence[int]) -> None:
    """Check that all hidden layers have at least one unit and at most `MOST_UNITS`.

    Raises:
        UserError: one has none, or more.
    """
    for name, sizes in hidden.items():
        if not 1 <= min(sizes, default=1) <= max(sizes, default=1) <= MOST_UNITS:
            raise UserError(f"{learner}: all widths in {name} must lie in [1, {MOST_UNITS}], not {list(sizes)}")
