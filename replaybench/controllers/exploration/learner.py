"""What learners with a deterministic policy m(s) share: exploration around it, and ReF-ER by the density of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Floats
from replaybench.controllers.exploration.forms import make_exploration
from replaybench.controllers.exploration.process_noise import Explored
from replaybench.controllers.memory.learner import RememberingLearner
from replaybench.controllers.memory.memory import FIELD
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.refer.density import Density, need_density
from replaybench.controllers.registry import name_of
from replaybench.controllers.setting import LearnerSetting


class DeterministicLearner(RememberingLearner):
    """Base of learners with a deterministic policy.

    Args:
        config, setting, shapes, slow, initial: see `Learner`.
        actor: name of the network whose outputs are the policy.
        rate: its learning rate.

    Raises:
        UserError: ReF-ER is asked for and the exploration has no density.

    Attributes:
        exploration: what disturbs m(s).
        density: of actions under `exploration`, and what holds under ReF-ER.
    """

    def __init__(
        self,
        config: Any,
        setting: LearnerSetting,
        shapes: Mapping[str, Shape],
        slow: Iterable[str],
        actor: str,
        rate: float,
        **initial: Any,
    ) -> None:
        super().__init__(config, setting, shapes, slow, rate, **initial)
        self.exploration = make_exploration(config.exploration, setting, self.networks[actor])
        self.density = Density(setting, self.exploration, self.steps, self.refer)
        self.fields = {**self.density.fields, **self.memory.fields}
        self.traces, self.metric_names = self.density.traces, self.memory.metric_names(self.density.names)

    @classmethod
    def check_refer(cls, config: Any) -> None:
        """Check that there is a behaviour density.

        Raises:
            UserError: there is none.
        """
        need_density(name_of(cls), config.exploration)

    def mean(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return m(s) `[M, N, A]`, around which there is exploration, for observations `[M, N, S]`."""
        raise NotImplementedError

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin an episode of exploration of the chosen `members` `[M]`, with nothing remembered."""
        super().start_episode(episode, members)
        self.exploration.start_episode(episode, members)

    def _advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        seen = self.seen(observation)
        self.memory.advance(seen, active)
        self.exploration.advance(seen, active)

    def re_explore(self, observation: Floats) -> Explored:
        """Return m(s) for another observation, disturbed as in the present step."""
        mean = self.mean(observation[:, None], self.memory.before[:, None])[:, 0]
        return self.memory.with_memory(self.exploration.disturb(mean, self.seen(observation)))

    def metrics(self, stored: Mapping[str, Floats]) -> Mapping[str, NDArray[Any]]:
        """Return what is known of the stored behaviours: see `Density`."""
        return self.density.metrics(stored, lambda observation: self.mean(observation, stored.get(FIELD)))

    def _further(self) -> dict[str, NDArray[Any]]:
        exploration = {f"exploration_{name}": array for name, array in self.exploration.state_dict().items()}
        return {**exploration, **self.density.state_dict(), **self.memory.state_dict()}
