"""What learners that may have a memory share: when it is cleared, moves on, and is looked into; and ReF-ER's schedules.

They are those of Novati & Koumoutsakos (2019), who have LSTMs in the place of networks and ReF-ER in the place of
replay, and change nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch, Floats
from replaybench.controllers.learner import Learner
from replaybench.controllers.memory.memory import Memory
from replaybench.controllers.networks.mlp import Shape
from replaybench.controllers.networks.network import Inputs, Learned
from replaybench.controllers.refer.rules import ReFER
from replaybench.controllers.setting import LearnerSetting


class RememberingLearner(Learner):
    """Base of learners whose networks may be recurrent, and which support ReF-ER.

    Their `policy` and `value` take observations for themselves, as if an episode began with each, unless they are given
    what is remembered before them.

    Args:
        config, setting, shapes, slow, initial: see `Learner`.
        rate: learning rate of the network that holds the policy.

    Attributes:
        memory: without settings for it, one that holds nothing.
        refer: without settings for it, one whose rules do not hold.
    """

    supports_refer = True

    def __init__(
        self,
        config: Any,
        setting: LearnerSetting,
        shapes: Mapping[str, Shape],
        slow: Iterable[str],
        rate: float,
        **initial: Any,
    ) -> None:
        super().__init__(config, setting, shapes, slow, config.memory, **initial)
        self.memory = Memory(config.memory, self.networks)
        self.window = self.memory.window
        self.refer = ReFER(setting.refer, len(setting.members), rate)

    def learned(self, name: str, samples: int | None = None) -> Learned:
        """Return what an update of this network works on, with room for so many samples, else for a batch."""
        return self._with_tape(name, self.memory.tape(name, samples or self.batch_size))

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Begin an episode of the chosen `members` `[M]` with nothing remembered."""
        self.memory.forget(members)

    def on_recorded_step(
        self, experience: Mapping[str, Floats], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> Mapping[str, Floats]:
        """Return what is remembered before a recorded experience, in place of what the recording learner remembered."""
        remembered = self._remember_recorded(experience, ended, active)
        self.memory.forget(ended)
        return remembered

    def _remember_recorded(
        self, experience: Mapping[str, Floats], ended: NDArray[np.bool_], active: NDArray[np.bool_]
    ) -> dict[str, Floats]:
        super().on_recorded_step(experience, ended, active)
        self.memory.advance(self.seen(experience["observation"]), active)
        return self.memory.remembered()

    def inputs(self, batch: Batch) -> tuple[Inputs, Inputs]:
        """Return what networks are evaluated on, for the samples of a batch and for their successors."""
        return self.memory.inputs(batch, self.seen)

    def behaviours(self, batch: Batch) -> tuple[Floats, Floats]:
        """Return mean and log σ of what chose each action, `[M, B, A]`; `[M, B, 0]` where that is not stored."""
        if "behaviour_log_sigma" not in self.fields:
            return super().behaviours(batch)
        return batch.columns["behaviour_mean"], batch.columns["behaviour_log_sigma"]

    def rate_factor(self, batch: Batch, first: int) -> Floats:
        """Return the factor on learning rates, which ReF-ER anneals, `[M]`."""
        return self.refer.slowed(batch.rate_factor, first)

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
