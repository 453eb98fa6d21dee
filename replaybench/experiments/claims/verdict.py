"""Judge effects: reproduced, contradicted, smaller than relevant, undecided, or not run.

An effect is the interquartile mean of paired differences, robust to a few collapsed runs. A verdict needs a test and an
interval, and the mean of all runs on the same side of the smallest effect of interest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from replaybench.experiments.claims.claim import Claim
from replaybench.experiments.results.effects import MOST_SEEDS, SIGNIFICANT, Effect, holm, seeds_to_tell

Word = Literal["reproduced", "contradicted", "smaller than relevant", "undecided", "not run"]

NOTHING: Final = Effect(np.empty(0))
_OF_A_DENIAL: Final[dict[Word, Word]] = {
    "reproduced": "contradicted",
    "contradicted": "reproduced",
    "smaller than relevant": "reproduced",
}
"""Verdict of a claim with a "not", by the verdict of the claim without."""
_ONE_SIDED: Final = 0.84
"""Quantile of the normal distribution, for a power of 80 %."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of some runs on a claim.

    Attributes:
        effect: the contrast, its sign as measured.
        supports: p value, within its family, if the claim were false.
        refutes: the same if the claim were true with a relevant effect.
        more_seeds: seeds still needed to decide it at the measured effect; 0 if decided, None if the effect is too near
            to a bound, or runs are equal.
    """

    claim: Claim
    effect: Effect
    supports: float
    refutes: float
    word: Word
    more_seeds: int | None = 0

    @property
    def split(self) -> bool:
        """Whether the effect is relevant by its interquartile mean and not by its mean, or the other way round."""
        return self.effect.n > 0 and len(_relevant(self.claim, self.effect)) > 1


def judge(claims: Sequence[Claim], effects: Sequence[Effect | None]) -> list[Verdict]:
    """Judge the claims of one family; the error of all tests together is controlled (Holm 1979).

    "more" is reproduced if the effect is significantly above zero, and relevant as measured. It is contradicted if the
    effect is significantly below the relevance, or, if that is also significantly above zero, smaller than relevant.
    "not more" is the other way round. "same" is reproduced if the effect lies significantly within the bounds of
    relevance (two one-sided tests, Schuirmann 1987), and contradicted if it is significantly different from zero, and
    relevant as measured.

    Significant: by the test (p < 0.05) and by the 95 % interval. An effect of None was not run; it counts in the family
    all the same, so that no verdict depends on what else was run.
    """
    pairs = list(zip(claims, effects, strict=True))
    chances = [(1.0, 1.0) if effect is None else _chances(claim, effect) for claim, effect in pairs]
    supports, refutes = (holm(side) for side in zip(*chances, strict=True)) if chances else ([], [])
    verdicts = []
    for (claim, effect), supporting, refuting in zip(pairs, supports, refutes, strict=True):
        if effect is None:
            verdicts.append(Verdict(claim, NOTHING, 1.0, 1.0, "not run", None))
            continue
        word = _word(claim, effect, supporting, refuting)
        more = _more_seeds(claim, effect, len(pairs)) if word == "undecided" else 0
        verdicts.append(Verdict(claim, effect, supporting, refuting, word, more))
    return verdicts


def _word(claim: Claim, effect: Effect, supports: float, refutes: float) -> Word:
    if claim.denies:
        word = _word(claim.denied(), effect, refutes, supports)
        return _OF_A_DENIAL.get(word, word)
    sides, least = _relevant(claim, effect), claim.relevance
    low, high = _along(claim, effect).interval()
    if claim.expects == "same":
        as_claimed, otherwise = -least < low and high < least, not low <= 0 <= high
    else:
        as_claimed, otherwise = low > 0, high < least
    supported, refuted = supports < SIGNIFICANT and as_claimed, refutes < SIGNIFICANT and otherwise
    if supported and sides == {claim.expects != "same"}:
        return "reproduced"
    if refuted and sides == {claim.expects == "same"}:
        return "smaller than relevant" if supported else "contradicted"
    return "undecided"


def _relevant(claim: Claim, effect: Effect) -> set[bool]:
    """Return whether an effect is relevant, by its interquartile mean and by its mean.

    For rise times only by the first: a run that never rises counts with its length, on which a mean would depend.
    """
    ways = (effect,) if claim.measure == "rise" else (effect, replace(effect, statistic="mean"))
    return {_size(claim, each) >= claim.relevance for each in ways}


def _chances(claim: Claim, effect: Effect) -> tuple[float, float]:
    """Return the p values if the claim were false, and if it were true."""
    if claim.denies:
        doubt, trust = _chances(claim.denied(), effect)
        return trust, doubt
    if claim.expects == "same":
        doubt = max(effect.chance_below(-claim.relevance), effect.chance_above(claim.relevance))
        return doubt, min(1.0, 2 * min(effect.chance_below(0.0), effect.chance_above(0.0)))
    along = _along(claim, effect)
    return along.chance_below(0.0), along.chance_above(claim.relevance)


def _along(claim: Claim, effect: Effect) -> Effect:
    """Return an effect with the sign that is positive in the direction of the claim."""
    return replace(effect, differences=claim.upwards * effect.differences)


def _size(claim: Claim, effect: Effect) -> float:
    return abs(effect.estimate) if claim.expects == "same" else _along(claim, effect).estimate


def _more_seeds(claim: Claim, effect: Effect, tests: int) -> int | None:
    """Return how many more seeds would decide a claim at this effect and spread, as one of so many.

    A relevant effect must be significant, and its estimate relevant again; another must be significantly below it.
    """
    if effect.sd == 0:
        return None
    size, spare = _size(claim, effect), abs(_size(claim, effect) - claim.relevance)
    needed = seeds_to_tell(effect.sd, size if size >= claim.relevance else spare, tests)
    if needed is None or spare == 0 or (again := math.ceil((_ONE_SIDED * effect.sd / spare) ** 2)) > MOST_SEEDS:
        return None
    return max(1, max(needed, again) - effect.n)
