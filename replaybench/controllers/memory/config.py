"""Settings of recurrent policies: the LSTM, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from replaybench.controllers.settings import Number, Settings, Units
from replaybench.data.bounds import Within


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Settings):
    """LSTMs for partially observed plants, with the numbers of Novati & Koumoutsakos (2019): 2 layers of 32 units.

    They come before the layers of each network; a critic's action joins after them. The paper has LSTMs only:
    `hidden = []`. Errors are propagated back over `window` steps.

    The paper does not state in which state a window starts. `stored`: in the state at which the step was collected,
    2 · layers · units numbers of each recurrent network, stored with every experience. `burn-in`: in zero, `burn_in`
    steps earlier, without learning from these (both in Kapturowski et al. 2019). `zero`: in zero.

    At first an LSTM keeps the share 1/(1 + exp(−`forget_bias`)) of its cells from step to step. At 1 it keeps much, as
    long lags need. −4 is better where a controller has to react to the present and first episodes are short.
    """

    layers: Number = 2
    units: Units = 32
    window: Annotated[int, Within(2, 10**6, "steps")] = 16
    start: Literal["stored", "burn-in", "zero"] = "stored"
    burn_in: Number = 8
    forget_bias: Annotated[float, Within(-10, 10)] = 1.0

    @property
    def steps(self) -> int:
        """Number of steps that are replayed with each sample, its own included."""
        return self.window + (self.burn_in if self.start == "burn-in" else 0)
