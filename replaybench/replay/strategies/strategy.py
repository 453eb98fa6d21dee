"""Every strategy by name, and which of them go together.

A `Strategy` is one point of the field: what enters a buffer, what is kept, what is replayed and how it is weighted.
Combinations that make no sense are refused here, with the reason, before anything is computed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from replaybench.data.errors import UserError
from replaybench.replay.strategies.entry.synth import Drop, Synth
from replaybench.replay.strategies.refer import ReFER, ReFER1, ReFER2
from replaybench.replay.strategies.retention.far_policy import FarPol
from replaybench.replay.strategies.retention.interface import FIFO, FULL, TDE, Expl, Resv, Retention
from replaybench.replay.strategies.sampling.attentive import AER
from replaybench.replay.strategies.sampling.interface import Sampling, Uniform
from replaybench.replay.strategies.sampling.proportional import PERprop
from replaybench.replay.strategies.sampling.rank_based import PER
from replaybench.replay.strategies.sampling.recent import ERE
from replaybench.replay.strategies.weighting.interface import FIS, IS

ENTRIES: Final = {"Drop": Drop, "Synth": Synth}
RETENTIONS: Final = {"FIFO": FIFO, "FULL": FULL, "Resv": Resv, "TDE": TDE, "Expl": Expl, "FarPol": FarPol}
SAMPLINGS: Final = {"Uniform": Uniform, "PER": PER, "PERprop": PERprop, "AER": AER, "ERE": ERE}
WEIGHTINGS: Final = {"IS": IS, "FIS": FIS}
REFER: Final = {"ReFER": ReFER, "ReFER-1": ReFER1, "ReFER-2": ReFER2}

_ALGORITHM_2: Final = IS(0.6, 0.6, normalise=True, all_networks=True)


@dataclass(frozen=True)
class Strategy:
    """What is kept and what is replayed; `refer`, which changes neither, is for the learner.

    Raises:
        UserError: the parts do not go together; says why.
    """

    retention: Retention
    sampling: Sampling
    weighting: IS | FIS | None = None
    drop: Drop | None = None
    synth: Synth | None = None
    refer: ReFER | ReFER1 | ReFER2 | None = None

    def __post_init__(self) -> None:
        if isinstance(self.weighting, IS) and self.sampling.why_no_importance:
            name = type(self.sampling).__name__
            raise UserError(f"IS makes no sense with {name}: {self.sampling.why_no_importance}; leave +IS out")

    @property
    def weights(self) -> IS | FIS | None:
        """The weighting in force: that of Wang & Ross (2019), Algorithm 2, for ERE+PER unless another is named."""
        if self.weighting is None and isinstance(self.sampling, ERE) and self.sampling.priorities:
            return _ALGORITHM_2
        return self.weighting

    @property
    def in_turn(self) -> bool:
        """Whether slots are filled and overwritten in turn, so that their order is that of age."""
        return self.retention.in_turn and (self.synth is None or self.synth.refresh == 1)

    @property
    def orders(self) -> tuple[str, ...]:
        """Metrics by which slots must be kept in rank order."""
        return tuple(dict.fromkeys((*self.retention.orders, *self.sampling.orders)))

    @property
    def by_td_error(self) -> bool:
        """Whether it goes by TD errors, which the learner must then return."""
        return "td_error" in self.orders or "td_error" in self.sampling.feedback

    def at(self, frequency: float) -> Strategy:
        """Return the strategy at a control rate [Hz], on which `Drop(rate)` depends."""
        return self if self.drop is None else dataclasses.replace(self, drop=self.drop.at(frequency))

    @property
    def entering(self) -> float:
        """Share of the offers that reach the retention strategy."""
        return 1.0 if self.drop is None else 1.0 - float(self.drop.probability)

    @property
    def slot_bytes(self) -> int:
        """About how many bytes a slot costs beside its row."""
        own = 2 * isinstance(self.weights, FIS) + 4 * isinstance(self.retention, FarPol)
        by_age = 10 * len(self.retention.orders)
        return 4 + 20 * len(self.orders) + by_age + own + self.sampling.slot_bytes(self.in_turn)

    def __str__(self) -> str:
        from replaybench.replay.strategies.notation import write

        return write(self)
