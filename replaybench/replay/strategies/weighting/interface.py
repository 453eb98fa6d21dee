"""The interface of weightings of replayed experiences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from replaybench.replay.arrays import Floats, Indices
from replaybench.replay.strategies.running import Running
from replaybench.replay.strategies.sampling.draws import Draws
from replaybench.replay.strategies.term import Term
from replaybench.replay.strategies.view import BufferView, Context


class Usage(NamedTuple):
    """How a buffer has been used so far.

    Attributes:
        updates: batches drawn, the present one included; phase_end: those drawn when its phase will be over.
        offers, stored: experiences offered and stored at present, `[M]`.
    """

    updates: int
    phase_end: int
    offers: Indices
    stored: Indices


class RunningWeighting(Running, ABC):
    """Weighs the batches of a population."""

    @abstractmethod
    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats) -> None:
        """Fill weight `[M, B]`."""


@dataclass(frozen=True)
class Weighting(Term, ABC):
    """A weight for each replayed experience."""

    by_probability: ClassVar[bool] = False
    """Whether weights are made from the probabilities of the draws."""
    slot_bytes: ClassVar[int] = 0
    """About how many bytes a slot costs it."""

    all_networks = False
    """Whether all networks' losses are weighted, or the critic's only."""

    @property
    def steady(self) -> bool:
        """Whether weights do not depend on the progress of the run."""
        return False

    @abstractmethod
    def start(self, view: BufferView) -> RunningWeighting:
        """Return the running form."""
