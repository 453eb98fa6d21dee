"""What learners that may have a memory share: when it is cleared, moves on, and is looked into."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Floats
from replaybench.controllers.learner import Learner
from replaybench.controllers.memory.memory import Memory


class RememberingLearner(Learner):
    """Base of learners whose networks may be recurrent.

    Their `policy` and `value` take observations for themselves, as if an episode began with each, unless they are given
    what is remembered before them.

    Attributes:
        memory: without settings for it, one that holds nothing.
    """

    memory: Memory

    def seen(self, observation: Floats) -> Floats:
        """Return observations `[M, …, S]` as networks are given them."""
        return self.normaliser.observations(observation)

    def policy(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return the greedy actions `[M, N, A]` for observations `[M, N, S]`, with the memory `[M, N, H]`."""
        raise NotImplementedError

    def sample(self, observation: Floats, state: Floats | None = None) -> Floats:
        """Return what the policy would do without further exploration; a stochastic one draws, with its own stream."""
        return self.policy(observation, state)

    def remember(self, observation: Floats, state: Floats) -> Floats:
        """Return the memory `[M, N, H]` after observations `[M, N, S]` from the one before."""
        return self.memory.next(self.seen(observation), state)

    def greedy(self) -> Any:
        """Return what acts without exploration, `act(observation [M, S]) -> [M, A]`, in an episode that begins."""
        return Evaluation(self) if self.memory.size else self


class Evaluation:
    """A learner in an evaluation episode, whose memory is apart from that of training.

    Args:
        learner: its weights must stay as they are until the episode is over.
    """

    def __init__(self, learner: RememberingLearner) -> None:
        self.learner = learner
        self.state: NDArray[np.floating] = np.zeros_like(learner.memory.before[:, None])

    def act(self, observation: Floats) -> Floats:
        """Return the greedy actions `[M, A]` for the next observations `[M, S]`."""
        row = observation[:, None]
        action = self.learner.policy(row, self.state)[:, 0]
        self.state = self.learner.remember(row, self.state)
        return action
