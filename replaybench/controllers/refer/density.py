"""What a learner with a deterministic policy needs for ReF-ER: the density with which it explores.

With Gaussian noise the policy that acts is π = N(m(s), σ²), σ that of the present episode, and what acted when an
experience was collected is stored beside it. Then importance weights exist, and the divergence from past behaviours can
be measured and held down (Novati & Koumoutsakos 2019, sections 2 and 3). With other exploration there is nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch
from replaybench.controllers.exploration.forms import ExplorationConfig
from replaybench.controllers.exploration.gaussian_noise import GaussianNoise, RunningGaussian
from replaybench.controllers.exploration.process_noise import Exploration
from replaybench.controllers.losses.gaussian import divergence
from replaybench.controllers.networks.mlp import Floats
from replaybench.controllers.refer.far_count import FarCount
from replaybench.controllers.refer.rules import ReFER, Rules, Settings
from replaybench.data.errors import UserError


def need_density(learner: str, exploration: Exploration | ExplorationConfig) -> None:
    """Check that a learner that explores so, or with such settings, has a behaviour density, as ReF-ER needs.

    Raises:
        UserError: it has none; says what to set.
    """
    config = exploration.config if isinstance(exploration, RunningGaussian) else exploration
    if not isinstance(config, GaussianNoise) or config.clip:
        raise UserError(
            f'{learner}: ReF-ER needs a behaviour density; set exploration = {{ form = "gaussian" }}, unclipped'
        )


class Density:
    """The density of exploration, and ReF-ER by it.

    Args:
        learner: its name.
        settings: ReF-ER as the strategy states it, or None.
        exploration: the learner's.
        steps: its count of updates, int64 `[1]`.
        members, actions: M and A.
        learning_rate: η of the network that holds the policy.

    Attributes:
        known: whether there is one: the noise is Gaussian and not clipped.
        fields, traces, names: what the learner must store, its trace rule, and what `metrics` returns.

    Raises:
        UserError: ReF-ER is asked for and there is none.
    """

    def __init__(
        self,
        learner: str,
        settings: Settings | None,
        exploration: Exploration,
        steps: NDArray[np.int64],
        members: int,
        actions: int,
        learning_rate: float,
    ) -> None:
        if settings is not None:
            need_density(learner, exploration)
        gaussian = exploration if isinstance(exploration, RunningGaussian) and not exploration.config.clip else None
        self.gaussian, self.known, self.steps = gaussian, gaussian is not None, steps
        self.members = members
        self.refer = ReFER(settings, members, learning_rate)
        self.fields = {"behaviour_mean": actions, "behaviour_log_sigma": actions} if self.known else {}
        self.traces = FarCount(self.refer, steps, members) if settings is not None else None
        self.names = () if not self.known else ("kl",) if self.traces is None else ("kl", "far", "beta")

    @property
    def log_sigma(self) -> NDArray[np.float64]:
        """log σ of each member's present policy, `[M]`."""
        return np.log(self.gaussian.sigma[:, 0]) if self.gaussian else np.zeros(self.members)

    def rules(self) -> Rules:
        """Return what holds in this update."""
        return self.refer.rules(int(self.steps[0]))

    def annealed(self) -> float:
        """Return the factor on learning rates in this update."""
        return self.refer.annealed(int(self.steps[0]))

    def behaviour(self, batch: Batch) -> tuple[Floats, Floats]:
        """Return the stored behaviours' means and log σ `[M, B, A]`; `[M, B, 0]` where they are not known."""
        if self.known:
            return batch.columns["behaviour_mean"], batch.columns["behaviour_log_sigma"]
        nothing = batch.action[:, :, :0]
        return nothing, nothing

    def metrics(self, stored: Mapping[str, Floats], mean: Callable[[Floats], Floats]) -> Mapping[str, NDArray[Any]]:
        """Return `kl`, the mean of D_KL(μ‖π) over a sample `[M, n, …]` of what is stored; with ReF-ER `far`, `beta`."""
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
