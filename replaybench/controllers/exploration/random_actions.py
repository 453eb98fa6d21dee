"""Uniformly random actions, by which learners whose updates ask for nobody's probabilities gather first experiences.

An untrained policy tries little: a squashed Gaussian stays near its own mean, a deterministic actor near zero. Uniform
actions cover the range instead. Only learners that replay any action as it is may use them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.exploration.process_noise import Explored, Floats
from replaybench.data.kernel import kernel
from replaybench.data.streams import Stream, next_double


class RandomActions:
    """The random actions of every member, from a stream of their own.

    Args:
        root, members: seed of the study and member numbers `[M]`.
        actions: action dimensions A.

    Attributes:
        action: float32 `[M, A]`, uniform in [−1, 1], each member's latest.
    """

    def __init__(self, root: int, members: Sequence[int], actions: int) -> None:
        self.stream = Stream(root, members, "warm-up")
        self.action = np.zeros((len(members), actions), np.float32)

    def draw(self, active: NDArray[np.bool_]) -> None:
        """Draw another action for each `active` `[M]` member; the others draw nothing."""
        _draw_actions(self.stream.state, active, self.action)

    def explored(self, greedy: Floats) -> Explored:
        """Return the latest actions, and how far they are from the `greedy` ones `[M, A]`."""
        return Explored(self.action.copy(), np.abs(self.action - greedy).sum(axis=1).astype(np.float32))


@kernel
def _draw_actions(stream: NDArray[np.uint64], active: NDArray[np.bool_], action: Floats) -> None:
    for m in range(action.shape[0]):
        if active[m]:
            for a in range(action.shape[1]):
                action[m, a] = 2.0 * next_double(stream[m]) - 1.0
