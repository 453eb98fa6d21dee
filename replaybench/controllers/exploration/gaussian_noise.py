"""White Gaussian exploration, whose density at every action is known, as importance weights need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from replaybench.controllers.exploration.process_noise import (
    Bools,
    Doubles,
    Explored,
    decayed,
    disturbed,
    draw_normal,
    draw_uniform,
)
from replaybench.controllers.settings import Number, Positive, Settings
from replaybench.data.kernels import elementwise
from replaybench.data.streams import Stream


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Settings):
    """a = π(s) + σ · N(0, 1), independent in every sample and dimension (σ = 0.2 in Novati & Koumoutsakos 2019).

    σ falls linearly from `sigma` at the first episode to `last_sigma` at episode `decay_episodes`; without `last_sigma`
    it is constant. `truncate` = c draws within ±cσ; use 3 with ReF-ER. The importance weight of an action z σ from the
    mean changes by exp(z Δ/σ) when the mean moves by Δ, so that the few actions far out would become far-policy at
    once. Truncation raises the density by a constant, which cancels in importance weights.

    Actions are stored and returned unclipped, because a clipped action has no Gaussian density; the environment clips
    what it applies. `clip` bounds them to ±1, for learners that use no density.
    """

    form: Literal["gaussian"] = "gaussian"
    sigma: Positive = 0.2
    last_sigma: Positive | None = None
    decay_episodes: Number = 500
    truncate: Positive | None = None
    clip: bool = False


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

    def start_episode(self, episode: int, members: Bools) -> None:
        """Set σ of the chosen `members` `[M]` for this episode, counted from 0."""
        config = self.config
        last = config.sigma if config.last_sigma is None else config.last_sigma
        self.sigma[members] = decayed(config.sigma, last, config.decay_episodes, episode)

    def advance(self, observation: Any, active: Bools) -> None:
        """Draw the noise of the `active` `[M]` members."""
        bound = self.config.truncate
        if bound is None:
            draw_normal(self.stream.state, active, self.noise)
        else:
            uniform = np.full_like(self.noise, 0.5)
            draw_uniform(self.stream.state, active, uniform)
            self.noise[active] = truncated_normal(uniform, bound)[active]

    def disturb(self, action: Any, observation: Any) -> Explored:
        """Return action + noise for policy actions `[M, A]`.

        Unclipped, the extras are the density: `behaviour_mean` and `behaviour_log_sigma`, both `[M, A]`.
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


def truncated_normal(uniform: Doubles, bound: float) -> Doubles:
    """Return standard normals within ±bound from as many uniform numbers in [0, 1), by the inverse distribution."""
    outside = ndtr(-bound)
    drawn = ndtri(outside + uniform * (1.0 - 2.0 * outside))
    within: Doubles = np.clip(drawn, -bound, bound)  # rounding may exceed it; for a wide bound it gives infinity
    return within
