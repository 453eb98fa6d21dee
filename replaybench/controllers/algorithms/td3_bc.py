"""TD3 with behaviour cloning, for learning from recordings alone (Fujimoto & Gu 2021, "A minimalist approach").

A policy that maximises a critic finds unrecorded actions, where no experience corrects the critic. Here the actor also
minimises its distance from the recorded action in the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replaybench.controllers.algorithms.td3 import TD3, TD3Config
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.controllers.setting import LearnerSetting
from replaybench.controllers.settings import NonNegative


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(TD3Config):
    """Settings; `alpha` and normalised observations are the paper's (section 5, table 3).

    `alpha` weighs the critic against imitation: towards 0 the policy copies the recording, large values give TD3. The
    paper divides by the deviation plus 1e-3, the normaliser here by at least 1e-2. It has 256-256 units, batches of 256
    and rates of 3e-4 for 10⁶ updates on robots; widths, batch and rates are those of `TD3`, with which 20,000 updates
    are enough for a pendulum (with 3e-4 they are not). Exploration noise acts in sweeps only.
    """

    alpha: NonNegative = 2.5
    normalise: NormaliseConfig = field(default_factory=lambda: NormaliseConfig(observations=True))


class TD3BC(TD3):
    """M independent learners as TD3's, whose actors stay near the recorded actions."""

    several_at_once = True

    def __init__(self, config: TD3BCConfig, setting: LearnerSetting) -> None:
        super().__init__(config, setting)
        self.imitation = config.alpha
