"""Sampling of different experiences for actor and critic, `LA3P` (Sağlam et al., 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import CriticLoss, separate_samples
from replaybench.replay.orders.priority_sums import SumState, make_sums, sum_rebuild, sum_set
from replaybench.replay.storage.columns import Indices
from replaybench.replay.strategies.interface import BufferView, Context, Draws, RunningSampling, Sampling
from replaybench.replay.strategies.prioritised import RunningPERprop, draw_proportional
from replaybench.replay.strategies.uniform import draw_uniform
from replaybench.runtime.arrays import Floats32
from replaybench.runtime.errors import UserError
from replaybench.runtime.kernel import kernel


@dataclass(frozen=True)
class LA3P(Sampling):
    """Loss-adjusted approximate actor prioritised sampling (Sağlam et al., 2023, Algorithm 1).

    For each sample that serves both networks, `share` / (1 − `share`) samples serve the critic only, and as many the
    actor only. Samples for both are drawn uniformly, and the critic's loss is that of `PAL`. Samples for the critic are
    drawn as by `LAP`, with Huber's loss. Samples for the actor have P ∝ 1/p, with the priorities p of `LAP`, because a
    policy gradient is unreliable where the critic has large TD errors. A batch begins with the samples for the critic,
    then those for the actor. TD errors of samples for the actor do not change priorities.

    The authors' code does these updates one after the other, with B(1 − `share`) and two times B · `share` samples.
    Here they are one update, whose gradients are means over the samples of each network.
    """

    share: float = 0.5
    alpha: float = 0.4
    feedback = ("td_error",)
    by_place = steady = True
    importance_undefined = "its loss replaces them"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UserError(f"LA3P: share must lie in (0, 1], not {self.share:g}")
        if not 0 <= self.alpha < np.inf:
            raise UserError(f"LA3P: α must be a finite number ≥ 0, not {self.alpha:g}")

    @property
    def critic_loss(self) -> CriticLoss:
        return CriticLoss(1.0, self.alpha, averaged=True, separate=2 * self.share / (1 + self.share))

    def slot_bytes(self, in_turn: bool) -> int:
        return 10

    def start(self, view: BufferView) -> RunningSampling:
        return _RunningLA3P(self, view)


class _RunningLA3P(RunningPERprop):
    def __init__(self, rule: LA3P, view: BufferView) -> None:
        super().__init__(rule.alpha, 0.0, 1.0, view)
        self.loss = rule.critic_loss
        self.inverse = make_sums(len(view.members), view.capacity)  # of 1/p

    def stored(self, slots: Indices) -> None:
        super().stored(slots)
        _invert(self.sums, self.inverse, slots[:, None])

    def draw(self, context: Context, count: Indices, offers: Indices, draws: Draws) -> None:
        alone = separate_samples(self.loss, draws.idx.shape[1])
        parts = [
            Draws(draws.idx[:, part], draws.probability[:, part], draws.rate_factor)
            for part in (slice(alone), slice(alone, 2 * alone), slice(2 * alone, None))
        ]
        draw_proportional(self.sums, self.stream.state, parts[0])
        draw_proportional(self.inverse, self.stream.state, parts[1])
        draw_uniform(self.stream.state, count, parts[2])

    def annotate(self, idx: Indices, td_error: Floats32) -> None:
        alone = separate_samples(self.loss, idx.shape[1])
        learned = idx.copy()
        learned[:, alone : 2 * alone] = -1
        super().annotate(learned, td_error)
        _invert(self.sums, self.inverse, learned)

    def load_state_dict(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        super().load_state_dict(state)
        priority = self.sums.leaf
        np.divide(1.0, priority, out=self.inverse.leaf, where=priority > 0)
        self.inverse.leaf[priority == 0] = 0
        for m in range(len(priority)):
            sum_rebuild(self.inverse, m)


@kernel
def _invert(sums: SumState, inverse: SumState, slots: Indices) -> None:
    for m in range(slots.shape[0]):
        for slot in slots[m]:
            if slot >= 0:
                sum_set(inverse, m, slot, 1.0 / sums.leaf[m, slot])
