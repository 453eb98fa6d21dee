"""White Gaussian exploration, whose density at every action is known: what learners with importance weights need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from replaybench.controllers.exploration.process_noise import (
    Explored,
    Floats,
    decayed,
    disturbed,
    draw_active,
)
from replaybench.data.errors import UserError
from replaybench.data.kernel import kernel
from replaybench.data.kernels import elementwise
from replaybench.data.streams import Stream, next_double


@dataclass(frozen=True, kw_only=True)
class GaussianNoise:
    """a = π(s) + σ · N(0, 1), independent in every sample and dimension (σ = 0.2 in Novati & Koumoutsakos 2019).

    σ falls linearly from `sigma` at the first episode to `last_sigma` at episode `decay_episodes`; without `last_sigma`
    it stays. `truncate` = c draws within ±cσ. For ReF-ER it is 3: the importance weight of an action z σ from the mean
    changes by exp(z Δ/σ) when the mean moves by Δ, so that the few actions far out would be far-policy as soon as the
    policy moves at all. The constant by which truncation raises the density cancels in importance weights.

    Actions are stored and returned unclipped, because the density of a clipped one is not the Gaussian's; the
    environment clips what it applies. `clip` bounds them to ±1 all the same, for learners that use no density.
    """

    form: Literal["gaussian"] = "gaussian"
    sigma: float = 0.2
    last_sigma: float | None = None
    decay_episodes: int = 500
    truncate: float | None = None
    clip: bool = False

    def __post_init__(self) -> None:
        last = self.sigma if self.last_sigma is None else self.last_sigma
        if not (0 < self.sigma < np.inf and 0 < last < np.inf):
            raise UserError("exploration: sigma and last_sigma must be finite and above 0")
        if self.truncate is not None and not 0 < self.truncate < np.inf:
            raise UserError("exploration: truncate must be finite and above 0, in standard deviations; 3 for ReF-ER")
        if self.decay_episodes < 1:
            raise UserError("exploration: decay_episodes must be at least 1")


class RunningGaussian:
    """The noise of every member.

    Args:
        root, members: seed of the study and member numbers.
        actions: action dimensions A.

    Attributes:
        sigma: float64 `[M, 1]`, standard deviation in each member's episode, before truncation.
    """

    def __init__(self, config: GaussianNoise, root: int, members: Sequence[int], actions: int) -> None:
        self.config = config
        self.stream = Stream(root, members, "exploration")
        self.noise = np.zeros((len(members), actions))
        self.sigma = np.full((len(members), 1), config.sigma)

    def start_episode(self, episode: int, members: NDArray[np.bool_]) -> None:
        """Let this episode (counted from 0) say the σ of the chosen `members` `[M]`."""
        config = self.config
        last = config.sigma if config.last_sigma is None else config.last_sigma
        self.sigma[members] = decayed(config.sigma, last, config.decay_episodes, episode)

    def advance(self, observation: Floats, active: NDArray[np.bool_]) -> None:
        """Draw the noise of the `active` `[M]` members."""
        bound = self.config.truncate
        if bound is None:
            draw_active(self.stream.state, active, self.noise)
        else:
            self.noise[active] = truncated_normal(_draw_uniform(self.noise, self.stream.state, active), bound)[active]

    def disturb(self, action: Floats, observation: Floats) -> Explored:
        """Return action + noise for policy actions `[M, A]`.

        Unclipped, the extras are the density they come from: `behaviour_mean` and `behaviour_log_sigma`, both `[M, A]`.
        """
        explored = disturbed(action, self.sigma[:, 0], self.noise, np.inf, 1.0 if self.config.clip else np.inf)
        if self.config.clip:
            return explored
        log_sigma = np.repeat(elementwise.log(self.sigma).astype(np.float32), action.shape[1], axis=1)
        density = {"behaviour_mean": action.astype(np.float32, copy=False), "behaviour_log_sigma": log_sigma}
        return explored._replace(extras=density)

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Return streams, the present noise and σ."""
        return {"stream": self.stream.state, "noise": self.noise, "sigma": self.sigma}


def truncated_normal(uniform: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """Return standard normals within ±bound from as many uniform numbers in [0, 1), by the inverse distribution."""
    outside = ndtr(-bound)
    drawn = ndtri(outside + uniform * (1.0 - 2.0 * outside))
    within: NDArray[np.float64] = np.clip(drawn, -bound, bound)  # rounding may step over it, a wide one to infinity
    return within


@kernel
def _draw_uniform(
    like: NDArray[np.float64], stream: NDArray[np.uint64], active: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return uniform numbers in the shape of `like`; where not active 0.5, which nobody reads."""
    drawn = np.full_like(like, 0.5)
    for m in range(like.shape[0]):
        if active[m]:
            for a in range(like.shape[1]):
                drawn[m, a] = next_double(stream[m])
    return drawn
