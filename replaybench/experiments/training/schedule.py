"""How many updates follow how many steps, and what is a phase for strategies that act along one.

Where learners are updated after each episode, its updates are a phase, as in Wang & Ross (2019). Where they are updated
every so many steps, ERE's phases are as long as the longest episode's all the same, and go on from one to the next.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

from replaybench.data.errors import UserError
from replaybench.replay.strategies.strategy import Strategy


class Replaying(Protocol):
    """A learner, or its settings. A `segment` of steps is replayed as one, if there is such a number."""

    @property
    def batch_size(self) -> int:
        """Samples of one update."""

    @property
    def replays_per_experience(self) -> float:
        """How often each step is replayed, in the mean."""


def updates_after(steps: int, episode: int, strategy: Strategy, learner: Replaying) -> float:
    """Return how many updates follow so many steps, in the mean, where an episode has up to `episode` of them.

    Its last segment may be short, so that segments replay fewer steps than their length in the mean.
    """
    uses = steps * strategy.entry_share * learner.replays_per_experience
    segments = math.ceil(episode / getattr(learner, "segment", 1))
    return float(uses / (learner.batch_size * episode / segments))


def with_phases(strategy: Strategy, learner: Replaying, steps: int, every: int) -> Strategy:
    """Return the strategy with the length of ERE's phases written out, where that is not the schedule's own.

    Args:
        strategy: any strategy, at its control rate.
        learner: who replays.
        steps: of the longest episode.
        every: steps after which the learner is updated, 0 for after each episode.

    Raises:
        UserError: there would be phases of a single update.
    """
    if not strategy.sampling.needs_phase:
        return strategy
    updates = updates_after(max(steps, every), steps, strategy, learner)
    if updates < 2:
        raise UserError(
            f"{strategy} narrows to the newest during a phase of updates, and {max(steps, every)} steps are followed "
            f"by {updates:.2g}; name the length of a phase, e.g. ERE(phase=1000), or raise replays_per_experience"
        )
    if not 0 < every < steps:
        return strategy
    return dataclasses.replace(strategy, sampling=strategy.sampling.in_phases(int(updates)))
