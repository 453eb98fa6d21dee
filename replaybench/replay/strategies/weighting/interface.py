"""How what is replayed is weighted: what every such modifier of a sampling is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from replaybench.data.compilation.sequence import Call, make_all
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


class RunningWeighting(Running):
    """Weighs the batches of a population: with `calls` within a phase of updates, too; any other must have `weigh`."""

    def weigh(self, context: Context, usage: Usage, draws: Draws, weight: Floats) -> None:
        """Fill weight `[M, B]`."""
        calls = self.calls([context], [usage], draws, weight)
        if calls is None:
            raise NotImplementedError(f"{type(self).__name__} needs weigh or calls")
        make_all(calls)

    def calls(
        self, contexts: Sequence[Context], usages: Sequence[Usage], draws: Draws, weight: Floats
    ) -> Sequence[Call] | None:
        """Return the calls that do `weigh` in successive updates; None if it has none."""
        return None


@dataclass(frozen=True)
class Weighting(Term, ABC):
    """A weight for each replayed experience."""

    by_probability: ClassVar[bool] = False
    """Whether weights are made from the probabilities of the draws."""
    lasting: ClassVar[bool] = False
    """Whether `calls` hold while experiences arrive between the updates; see `Sampling`."""
    slot_bytes: ClassVar[int] = 0
    """About how many bytes a slot costs it."""

    all_networks = False
    """Whether all networks' losses are weighted, or the critic's only."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.lasting = vars(cls).get("lasting", False)  # a promise about a class's own weights is not inherited

    @property
    def steady(self) -> bool:
        """Whether weights do not depend on the progress of the run."""
        return False

    @abstractmethod
    def start(self, view: BufferView) -> RunningWeighting:
        """Return the running form."""
