"""Uniformly random actions, by which off-policy learners that need no behaviour density collect first experiences."""

from __future__ import annotations

from typing import Any

import numpy as np

from replaybench.controllers.exploration.process_noise import Bools, Explored, Floats, draw_uniform
from replaybench.controllers.setting import LearnerSetting


class RandomActions:
    """Random actions of every member, from a random stream of their own.

    An untrained policy stays near its mean; uniform actions cover the whole range.
    """

    def __init__(self, setting: LearnerSetting) -> None:
        self.stream = setting.stream("warm-up")
        self._uniform = np.full((len(setting.members), setting.task.action_size), 0.5)

    @property
    def action(self) -> Floats:
        """Each member's latest action, float32 `[M, A]`, uniform in [−1, 1]."""
        return (2.0 * self._uniform - 1.0).astype(np.float32)

    def draw(self, active: Bools) -> None:
        """Draw another action for each `active` `[M]` member; the others draw nothing."""
        draw_uniform(self.stream.state, active, self._uniform)

    def explored(self, greedy: Any) -> Explored:
        """Return the latest actions, and their distances from the `greedy` ones `[M, A]`."""
        return Explored(self.action, np.abs(self.action - greedy).sum(axis=1).astype(np.float32))
