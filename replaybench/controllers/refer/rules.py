"""Remember and Forget for Experience Replay in a learner (Novati & Koumoutsakos 2019, section 3).

The strategy states the settings (`FIFO[Uniform+ReFER]`). Here are the schedules of c_max and of the learning rate, and
the weight β of every member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from replaybench.data.kernel import kernel

RHO_LIMIT: Final = 1e3
"""Bound on ρ where Rule 2 is alone (section 5.3)."""


class ReFERSettings(Protocol):
    """ReF-ER as a strategy states it.

    C: ratios from 1/(1 + C) to 1 + C are near-policy at first; A: annealing per update; and which rules apply. With
    Rule 2 also D `far`, the aim for the share of far-policy experiences; β at first and its step (None: the learning
    rate); and the divergence `kl`.
    """

    @property
    def c(self) -> float:
        """C."""

    @property
    def anneal(self) -> float:
        """A."""

    @property
    def rules(self) -> Sequence[int]:
        """Which of the rules 1 and 2 apply."""


class Rules(NamedTuple):
    """ReF-ER in one update, for kernels.

    Attributes:
        c_max: ρ in (1/c_max, c_max) is near-policy.
        mask: Rule 1, whether far-policy samples give no gradient ĝ.
        pull: Rule 2, whether the divergence from past behaviours is penalised.
        mu_pi: whether this is D_KL(μ‖π), else D_KL(π‖μ).
        limit: bound on ρ.
        beta: float64 `[M]`.
    """

    c_max: float
    mask: bool
    pull: bool
    mu_pi: bool
    limit: float
    beta: NDArray[np.float64]


class ReFER:
    """The rules of a population; without settings none applies, β is 1, and c_max = 5 only defines far-policy.

    Args:
        settings: of the strategy, or None.
        members: M.
        learning_rate: η of the policy's network, the step of β by default.

    Attributes:
        beta: float64 `[M]`.
    """

    def __init__(self, settings: Any, members: int, learning_rate: float) -> None:
        rules = () if settings is None else settings.rules
        self.on, self.mask, self.pull = settings is not None, 1 in rules, 2 in rules
        self.c: float = 4.0 if settings is None else settings.c
        self.anneal: float = 0.0 if settings is None else settings.anneal
        self.beta = np.ones(members)
        self.learning_rate = learning_rate
        self.far, self.beta_rate, self.mu_pi = 1.0, None, True
        if self.pull:
            self.far, self.beta_rate, self.mu_pi = settings.far, settings.beta_rate, settings.kl == "mu_pi"
            self.beta[:] = settings.beta
        limit = RHO_LIMIT if self.pull and not self.mask else np.inf
        self._rules = Rules(self.c_max(1), self.mask, self.pull, self.mu_pi, limit, self.beta)

    def annealed(self, update: int) -> float:
        """Return 1/(1 + A·t), the factor on learning rates and on C (eq. 13); t counts updates from 1."""
        return 1.0 / (1.0 + self.anneal * update)

    def rules(self, update: int) -> Rules:
        """Return the rules in update t."""
        return self._rules._replace(c_max=self.c_max(update)) if self.anneal else self._rules

    def slowed(self, rate_factor: NDArray[np.float32], update: int) -> NDArray[np.float32]:
        """Return factors on learning rates `[M]`, annealed as of update t."""
        return rate_factor * np.float32(self.annealed(update)) if self.anneal else rate_factor

    def c_max(self, update: int) -> float:
        """Return the largest near ratio after t updates, 1 + C/(1 + A·t)."""
        return 1.0 + self.c * self.annealed(update)

    def move_beta(self, far_fraction: NDArray[np.float64], update: int) -> None:
        """Move β after update t (eq. 12), given n_far/N `[M]`, if Rule 2 applies.

        β moves towards 0 where more than D of the stored experiences are far-policy, else towards 1. The step is
        written for 1 − β where that shrinks, so that both fixed points are exact.
        """
        if self.pull:
            eta = self.learning_rate * self.annealed(update) if self.beta_rate is None else self.beta_rate
            falling, rising = (1.0 - eta) * self.beta, 1.0 - (1.0 - eta) * (1.0 - self.beta)
            self.beta[:] = np.where(far_fraction > self.far, falling, rising)


@kernel
def near_policy(rho: float, c_max: float) -> bool:
    """Return whether 1/c_max < ρ < c_max; NaN is not."""
    return 1.0 / c_max < rho < c_max


@kernel
def gives_gradient(rho: float, rules: Rules) -> bool:
    """Return whether a sample of this ρ contributes to gradients under Rule 1; without that rule all do."""
    return not rules.mask or near_policy(rho, rules.c_max)
