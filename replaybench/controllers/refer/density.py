"""ReF-ER for a learner with a deterministic policy m(s): the density with which it explores.

With Gaussian noise the policy that acts is π = N(m(s), σ²), with the σ of the present episode, and the behaviour is
stored with each experience. This gives importance weights and the divergence from past behaviours (Novati &
Koumoutsakos 2019, sections 2 and 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.exploration.forms import ExplorationConfig
from replaybench.controllers.exploration.gaussian_noise import GaussianNoise, RunningGaussian
from replaybench.controllers.exploration.process_noise import Exploration
from replaybench.controllers.losses.gaussian import divergence
from replaybench.controllers.networks.mlp import Floats
from replaybench.controllers.refer.far_count import FarCount
from replaybench.controllers.refer.rules import ReFER
from replaybench.controllers.setting import LearnerSetting
from replaybench.data.errors import UserError
from replaybench.data.kernels import elementwise

BEHAVIOUR: Final = ("behaviour_mean", "behaviour_log_sigma")
"""The fields that hold the Gaussian from which each action was drawn."""


def need_density(learner: str, exploration: ExplorationConfig) -> None:
    """Check that exploration has a density, as ReF-ER needs.

    Raises:
        UserError: it has none; says what to set.
    """
    if not isinstance(exploration, GaussianNoise) or exploration.clip:
        raise UserError(
            f"{learner}: ReF-ER needs a behaviour density; set it in the study's table of the learner, unclipped: "
            f'[learner.{learner}] with exploration = {{ form = "gaussian" }}'
        )


class Density:
    """The density of exploration, and ReF-ER by it.

    Args:
        setting: of the learner.
        exploration: the learner's; None if the learner does not support ReF-ER.
        steps: its count of updates, int64 `[1]`.
        refer: the learner's ReF-ER.

    Attributes:
        known: whether there is a density: the noise is Gaussian and not clipped.
        fields, traces, names: fields to store, the rule of traces, and the names of `metrics`.
    """

    def __init__(
        self, setting: LearnerSetting, exploration: Exploration | None, steps: NDArray[np.int64], refer: ReFER
    ) -> None:
        gaussian = exploration if isinstance(exploration, RunningGaussian) and not exploration.config.clip else None
        self.gaussian, self.known, self.refer = gaussian, gaussian is not None, refer
        members, actions = len(setting.members), setting.task.action_size
        self._no_log_sigma = np.zeros(members)
        self.fields = dict.fromkeys(BEHAVIOUR, actions) if self.known else {}
        self.traces = FarCount(refer, steps, members) if self.known and refer.on else None
        self.names = () if not self.known else ("kl",) if self.traces is None else ("kl", "far", "beta")

    @property
    def log_sigma(self) -> NDArray[np.float64]:
        """log σ of each member's present policy, `[M]`."""
        return elementwise.log(self.gaussian.sigma[:, 0]) if self.gaussian else self._no_log_sigma

    def metrics(self, stored: Mapping[str, Floats], mean: Callable[[Floats], Floats]) -> Mapping[str, NDArray[Any]]:
        """Return `kl`, the mean of D_KL(μ‖π) over a sample `[M, n, …]` of experiences; with ReF-ER `far`, `beta`."""
        if not self.known:
            return {}
        present = np.asarray(mean(stored["observation"]), np.float64)
        mu_mean, mu_log_sigma = (stored[name].astype(np.float64) for name in self.fields)
        kl = divergence(present, np.broadcast_to(self.log_sigma[:, None, None], present.shape), mu_mean, mu_log_sigma)
        measured: dict[str, NDArray[Any]] = {"kl": kl.mean(axis=1)}
        if self.traces is not None:
            measured |= {"far": self.traces.fraction, "beta": self.refer.beta.copy()}
        return measured

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return β and the counts, as views."""
        return {"beta": self.refer.beta, **self.traces.state_dict()} if self.traces else {}
