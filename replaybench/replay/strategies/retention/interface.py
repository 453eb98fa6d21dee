"""Which experience is overwritten when a buffer is full: what every retention strategy is.

A strategy is a frozen dataclass; `start` returns its running form for a population. A new one is a file with both, and
a line in `replaybench.replay.strategies.registry`, or a user's file.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from replaybench.data.errors import UserError
from replaybench.replay.arrays import Indices
from replaybench.replay.strategies.running import Running
from replaybench.replay.strategies.term import Term
from replaybench.replay.strategies.view import BufferView

_MOST: Final = 1_000_000_000
"""Experiences in a buffer, as in studies."""


class RunningRetention(Running, ABC):
    """Chooses slots for a population whose buffers are full."""

    @abstractmethod
    def slots(self, offers: Indices, capacity: int, slots: Indices) -> None:
        """Fill `slots[m]` for every member whose entry is −2 (its buffer is full): a slot, or −1 for 'discard'.

        `offers` `[M]` counts each member's offers, the present one included.
        """


@dataclass(frozen=True)
class Retention(Term, ABC):
    """A retention strategy.

    Attributes:
        capacity: experiences that a bounded retention has room for, in place of the study's; None for that one.
    """

    capacity: int | None = field(default=None, kw_only=True)

    bounded: ClassVar[bool] = True
    """False if nothing is ever discarded: the buffer then grows to the number of experiences offered."""
    in_turn: ClassVar[bool] = False
    """Whether slots are filled and overwritten in turn, so that their order is that of age."""
    orders: ClassVar[tuple[str, ...]] = ()
    """Metrics by which slots must be kept in rank order."""
    traces: ClassVar[tuple[str, ...]] = ()
    """Traces that the learner must keep."""
    slot_bytes: ClassVar[int] = 0
    """About how many bytes a slot costs it beside rank orders."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.in_turn = vars(cls).get("in_turn", False)  # a promise about a class's own slots is not inherited

    def __post_init__(self) -> None:
        if self.capacity is not None and not (self.bounded and 1 <= self.capacity <= _MOST):
            allowed = f"a whole number from 1 to {_MOST}" if self.bounded else "left out: it keeps everything"
            raise UserError(f"{self.written_name()}: capacity must be {allowed}, not {self.capacity}")

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields that are written in its brackets, by name; `capacity` where there is one."""
        return {name: found for name, found in super().parameters().items() if cls.bounded or name != "capacity"}

    @abstractmethod
    def start(self, view: BufferView) -> RunningRetention:
        """Return the running form."""
