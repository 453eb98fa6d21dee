"""Types of learners' settings with their bounds, and the base class that checks them."""

from __future__ import annotations

from typing import Annotated

from replaybench.data.bounds import Within
from replaybench.data.configuration import check

Positive = Annotated[float, Within(0, above=True)]
NonNegative = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
Number = Annotated[int, Within(1, 10**6)]
Episodes = Annotated[int, Within(0, 10**6)]
Units = Annotated[int, Within(1, 10_000)]
Widths = tuple[Units, ...]
"""Units of each hidden layer."""
Betas = tuple[Annotated[float, Within(0, 1 - 1e-9)], Annotated[float, Within(0, 1 - 1e-9)]]
"""Adam's decay rates, in [0, 1)."""


class Settings:
    """Base of frozen dataclasses of settings.

    Raises:
        UserError: a value has the wrong type or lies outside its bounds.
    """

    def __post_init__(self) -> None:
        check(self, type(self).__name__.removesuffix("Config"))
