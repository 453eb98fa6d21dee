"""TD3 with behaviour cloning, for learning from recordings alone (Fujimoto & Gu 2021, "A minimalist approach").

A policy that maximises a critic finds actions of which nothing is recorded, where no experience corrects the critic.
Here the actor also pays for its distance from what the recording did in the same state. All else is TD3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from replaybench.controllers.agent import Batch
from replaybench.controllers.algorithms.td3 import TD3, TD3Config, fit_critics, follow
from replaybench.controllers.checks import between
from replaybench.controllers.experiences import Experiences
from replaybench.controllers.losses.twin_critics import TwinRoom, Twins
from replaybench.controllers.networks.adam import adam_step
from replaybench.controllers.networks.mlp import Floats, backward, forward
from replaybench.controllers.networks.network import Learned
from replaybench.controllers.normaliser import NormaliseConfig
from replaybench.data.kernel import kernel


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(TD3Config):
    """Settings; `alpha` and normalised observations are the paper's (section 5, table 3).

    `alpha` weighs the critic against imitation: towards 0 the policy copies the recording, large values give TD3. The
    paper divides by the deviation plus 1e-3, the normaliser here by at least 1e-2. It has 256-256 units, batches of 256
    and rates of 3e-4 for 10⁶ updates on robots; widths, batch and rates are those of `TD3`, with which 20,000 updates
    are enough for a pendulum (with 3e-4 they are not). Noise of exploration counts only where it acts, in sweeps.
    """

    called: ClassVar[str] = "TD3+BC"
    alpha: float = 2.5
    normalise: NormaliseConfig = field(default_factory=lambda: NormaliseConfig(observations=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        between(self.called, 0, np.inf, alpha=self.alpha)


class TD3BC(TD3):
    """M independent learners as TD3's, whose actors stay near the actions they are shown."""

    several_at_once = True

    def update(self, batch: Batch) -> dict[str, Floats]:
        """Update as TD3 does, the actor by its own rule; annotate what TD3 does."""
        arguments = self._arguments(batch)
        _update(self.config.alpha, *arguments)
        return {"td_error": arguments[-1]}


@kernel
def _update(
    alpha: float, actor: Learned, critics: Twins, room: TwinRoom, x: Experiences, stream: NDArray[np.uint64],
    smoothing: float, smoothing_clip: float, tau: float, policy_delay: int, first: int, delta: Floats,
) -> None:  # fmt: skip
    """Updates of every member: critics as TD3's, the actor by π = argmax mean_b [λ Q₁(s_b, π(s_b)) − (π(s_b) − a_b)²].

    λ = alpha / mean_b |Q₁| (eq. 4 and 5), no gradient in it. Q₁ is that of π(s_b), as in the authors' code; the paper
    writes that of the recorded actions. The square is a mean over the actions' dimensions.
    """
    batch, actions = x.action.shape[1], x.action.shape[2]
    kind = room.q.dtype.type
    pi, y = np.empty((batch, actions), room.q.dtype), np.empty_like(room.q)
    nothing = np.empty((batch, 0), room.q.dtype)
    updates = x.action.shape[0] // actor.network.parameters.shape[0]
    for row in range(x.action.shape[0]):
        m, step = row // updates, first + row % updates
        fit_critics(actor, critics, room, x, row, m, stream, smoothing, smoothing_clip, step, pi, y, delta)
        if step % policy_delay:
            continue
        forward(actor.network, m, actor.tape, x.observation[row], nothing, pi)
        forward(critics[0].network, m, room.tape, x.observation[row], pi, room.q)
        size = 0.0
        for b in range(batch):
            size += abs(room.q[b, 0]) / batch
        for b in range(batch):
            room.d_q[b, 0] = kind(-alpha / (size * batch)) * x.actor_weight[row, b]
        backward(critics[0].network, m, room.tape, room.d_q, False, room.d_action)
        for b in range(batch):
            pull = kind(2 / (batch * actions)) * x.actor_weight[row, b]
            for a in range(actions):
                room.d_action[b, a] += pull * (pi[b, a] - x.action[row, b, a])
        backward(actor.network, m, actor.tape, room.d_action, True, nothing)
        adam_step(actor.network, m, actor.adam, step // policy_delay, x.rate_factor[row])
        follow(actor, critics, m, tau)
