"""Remember and Forget for Experience Replay (Novati & Koumoutsakos 2019, section 3), as the notation names it.

It changes neither draws nor weights: the learner uses it in its gradients. A stored step is far-policy if its
importance weight ρ = π(a|s)/μ(a|s) does not lie within (1/c_max, c_max), where c_max = 1 + C/(1 + A·t) at update t.
Rule 1 takes far-policy steps out of the gradients; Rule 2 pulls the policy π towards the past behaviours μ with weight
1 − β, and β rises or falls to hold the fraction of far-policy steps at D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from replaybench.data.errors import UserError
from replaybench.replay.strategies.term import Term


@dataclass(frozen=True)
class ReFER1(Term):
    """ReF-ER's Rule 1 alone: far-policy steps are masked, nothing pulls the policy back.

    Attributes:
        c: C, how far ρ may lie from 1 at first; anneal: A, per update.
        rules: which of the two rules hold.
    """

    c: float = 4.0
    anneal: float = 5e-7
    name = "ReFER-1"
    rules: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        if not 0 < self.c < float("inf"):
            raise UserError(f"ReFER: c must be a finite number > 0, not {self.c}")
        if not 0 <= self.anneal < float("inf"):
            raise UserError(f"ReFER: anneal must be a finite number ≥ 0, not {self.anneal}")


@dataclass(frozen=True)
class ReFER(ReFER1):
    """Far-policy steps are masked (Rule 1), and the policy is pulled towards past behaviours (Rule 2).

    Attributes:
        far: D, the fraction of far-policy steps to hold.
        beta: β at first; beta_rate: its step per update, the learner's learning rate if None.
        kl: `mu_pi`, D_KL(μ‖π) as printed, or `pi_mu`, D_KL(π‖μ) as the authors' public code has it.
    """

    far: float = 0.1
    beta: float = 1.0
    beta_rate: float | None = None
    kl: Literal["mu_pi", "pi_mu"] = "mu_pi"
    name = "ReFER"
    rules: ClassVar[tuple[int, ...]] = (1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.far < 1:
            raise UserError(f"ReFER: far is a fraction, in (0, 1), not {self.far}")
        if not 0 <= self.beta <= 1:
            raise UserError(f"ReFER: beta must lie in [0, 1], not {self.beta}")
        if self.beta_rate is not None and not 0 <= self.beta_rate <= 1:
            raise UserError(f"ReFER: beta_rate must lie in [0, 1] or be none, not {self.beta_rate}")
        if self.kl not in ("mu_pi", "pi_mu"):
            raise UserError(f"ReFER: kl is mu_pi or pi_mu, not {self.kl}")


@dataclass(frozen=True)
class ReFER2(ReFER):
    """ReF-ER's Rule 2 alone: the policy is pulled towards past behaviours, and far-policy steps count, ρ clipped."""

    name = "ReFER-2"
    rules: ClassVar[tuple[int, ...]] = (2,)
