"""Leaving offers out (de Bruin et al. 2018, section 6.4, [DE])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.streams import next_double
from replaybench.replay.strategies.running import Drawing
from replaybench.replay.strategies.term import Term
from replaybench.replay.strategies.view import BufferView

BASE_FREQUENCY: Final = 50.0


@dataclass(frozen=True)
class Drop(Term):
    """Discard each offer with this probability; "rate" drops 1 − 50/f at f Hz, nothing at 50 Hz and below."""

    probability: float | Literal["rate"] = "rate"
    always_written = True  # a bare `Drop` would not say how much

    def __post_init__(self) -> None:
        if self.probability != "rate" and not (isinstance(self.probability, int | float) and 0 <= self.probability < 1):
            raise UserError(f"Drop({self.probability}): give a probability in [0, 1), or rate for 1 − 50/f")

    def at(self, frequency: float) -> Drop:
        """Return the same with its probability at this control rate [Hz]."""
        if self.probability != "rate":
            return self
        return Drop(max(0.0, 1.0 - BASE_FREQUENCY / frequency))


class RunningDrop(Drawing):
    """Decides for a population which offers reach the buffer."""

    def __init__(self, description: Drop, view: BufferView) -> None:
        if isinstance(description.probability, str):
            raise UserError("Drop(rate) needs the control rate: write parse(…).at(frequency)")
        super().__init__(view, "drop")
        self.probability = description.probability

    def filter(self, offered: NDArray[np.bool_]) -> None:
        """Set `offered` `[M]` to False where the offer is discarded; members without an offer draw nothing."""
        _drop(self.stream.state, self.probability, offered)


@kernel
def _drop(stream: NDArray[np.uint64], probability: float, offered: NDArray[np.bool_]) -> None:
    for m in range(offered.size):
        if offered[m] and next_double(stream[m]) < probability:
            offered[m] = False
