"""Settings of learners that remember: what their recurrent networks are like, and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from replaybench.controllers.checks import between, counts, widths
from replaybench.data.errors import UserError


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """LSTMs for partially observed plants, with the numbers of Novati & Koumoutsakos (2019): 2 layers of 32 units.

    They stand before the layers of each network, which then see what the LSTM makes of the observations; an action
    joins behind it. The paper has LSTMs only: `hidden = []`. Errors are propagated back over `window` steps.

    The paper does not say in which state such a window starts. `stored`: in the state that was there when the step was
    collected, 2 · layers · units numbers of each recurrent network beside every experience. `burn-in`: in zero,
    `burn_in` steps earlier, through which nothing is learned (both in Kapturowski et al. 2019). `zero`: in zero.

    `forget_bias` says how much of its cells an LSTM keeps from step to step at first, 1/(1 + exp(−bias)). At 1 it keeps
    much, which long lags need. Where a controller is to answer to what it sees now, and episodes are still too short to
    teach it that the past counts less, it is better to begin at −4.
    """

    layers: int = 2
    units: int = 32
    window: int = 16
    start: Literal["stored", "burn-in", "zero"] = "stored"
    burn_in: int = 8
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        counts("memory", layers=self.layers, window=self.window, burn_in=self.burn_in)
        widths("memory", units=[self.units])
        between("memory", -10, 10, forget_bias=self.forget_bias)
        if self.window < 2:
            raise UserError(f"memory: window must be at least 2 steps, not {self.window}; or leave memory out")

    @property
    def steps(self) -> int:
        """Steps that are replayed with each sample, its own included."""
        return self.window + (self.burn_in if self.start == "burn-in" else 0)
