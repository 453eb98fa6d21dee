"""A strategy: entry, retention, sampling, weighting. Combinations that make no sense are refused here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from replaybench.data.errors import UserError
from replaybench.replay.strategies.entry.drop import Drop
from replaybench.replay.strategies.entry.synth import Synth
from replaybench.replay.strategies.refer import ReFER1
from replaybench.replay.strategies.retention.interface import Retention
from replaybench.replay.strategies.sampling.interface import Sampling
from replaybench.replay.strategies.term import Term
from replaybench.replay.strategies.weighting.interface import Weighting


@dataclass(frozen=True)
class Strategy:
    """Entry, retention, sampling and weighting; `refer` is for the learner.

    Raises:
        UserError: the parts do not go together.
    """

    retention: Retention
    sampling: Sampling
    weighting: Weighting | None = None
    drop: Drop | None = None
    synth: Synth | None = None
    refer: ReFER1 | None = None

    def __post_init__(self) -> None:
        if self.weighting and self.weighting.by_probability and self.sampling.importance_undefined:
            weighting, sampling = self.weighting.written_name(), self.sampling.written_name()
            why = self.sampling.importance_undefined
            raise UserError(f"{weighting} makes no sense with {sampling}: {why}; leave +{weighting} out")

    @property
    def weights(self) -> Weighting | None:
        """The weighting in force: the one named, else the one that belongs to the sampling, if any."""
        return self.weighting or self.sampling.weighting

    @property
    def anneals(self) -> bool:
        """Whether sampling or weights may depend on the progress of the run."""
        return not (self.sampling.steady and (self.weights is None or self.weights.steady))

    @property
    def in_turn(self) -> bool:
        """Whether slots are filled and overwritten in turn, so that their order is that of age."""
        return self.retention.in_turn and (self.synth is None or self.synth.refresh == 1)

    def room(self, default: int) -> int:
        """Return how many experiences are kept: the retention's own capacity, or else `default`."""
        return self.retention.capacity or default

    @property
    def orders(self) -> tuple[str, ...]:
        """Metrics by which slots must be kept in rank order."""
        return tuple(dict.fromkeys((*self.retention.orders, *self.sampling.orders)))

    @property
    def by_td_error(self) -> bool:
        """Whether it depends on TD errors, which the learner must then return."""
        return "td_error" in self.orders or "td_error" in self.sampling.feedback

    def at(self, frequency: float) -> Strategy:
        """Return the strategy at a control rate [Hz], on which `Drop(rate)` depends."""
        return self if self.drop is None else dataclasses.replace(self, drop=self.drop.at(frequency))

    @property
    def entry_share(self) -> float:
        """Share of the offers that reach the retention strategy."""
        return 1.0 if self.drop is None else 1.0 - float(self.drop.probability)

    @property
    def slot_bytes(self) -> int:
        """About how many bytes a slot costs beside its row."""
        weights = self.weights.slot_bytes if self.weights else 0
        parts = self.retention.slot_bytes + self.sampling.slot_bytes(self.in_turn) + weights
        return 4 + 20 * len(self.orders) + parts

    @property
    def terms(self) -> tuple[Term, ...]:
        """Its parts, in the order in which they are written."""
        parts = (self.drop, self.synth, self.retention, self.sampling, self.weighting, self.refer)
        return tuple(part for part in parts if part is not None)

    def __str__(self) -> str:
        entries = "".join(f"{entry}*" for entry in (self.drop, self.synth) if entry)
        behind = "".join(f"+{term}" for term in (self.weighting, self.refer) if term)
        return f"{entries}{self.retention}[{self.sampling}{behind}]"
