"""From effects to verdicts: reproduced, contradicted, smaller than relevant, undecided, or not run.

An effect is the interquartile mean of paired differences, which a few collapsed runs do not move. A verdict needs a
test and an interval, and the mean of all runs on the same side of the smallest effect of interest.
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
"""The verdict of a claim with a "not", by the verdict of the claim that it denies."""
_ONE_SIDED: Final = 0.84
"""Quantile of the normal distribution: a mean is above its bound in four of five studies."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of some runs on a claim.

    Attributes:
        effect: the contrast that the claim is about, its sign as measured.
        supports: p value, within its family, of the runs if the claim were false.
        refutes: the same if the claim were true with a relevant effect.
        more_seeds: seeds still needed to decide it if the effect is what was measured; 0 where it is decided, and
            none where the effect lies too near to a bound, or runs are alike.
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
    """Judge the claims of one family, with the errors of all its tests controlled together.

    A claim that there is more is reproduced if there is significantly more than nothing, and a relevant amount as
    measured. If there is significantly less than a relevant amount, it is contradicted, or, where that is
    significantly more than nothing, smaller than relevant. With "not more" it is the other way round. A claim of no
    difference is reproduced if the difference lies significantly within the bounds of relevance (two one-sided tests,
    Schuirmann 1987), and contradicted if it is significantly different from zero, and relevant as measured.

    Significant is what the test (p < 0.05) and the 95 % interval both show. An effect of None was not run; it counts
    in the family all the same, so that no verdict depends on what else was run.
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

    Of rise times only by the first: a run that never rises counts as long as it is, so that a mean depends on that.
    """
    ways = (effect,) if claim.measure == "rise" else (effect, replace(effect, statistic="mean"))
    return {_size(claim, each) >= claim.relevance for each in ways}


def _chances(claim: Claim, effect: Effect) -> tuple[float, float]:
    """Return the p values of the runs if the claim were false, and if it were true."""
    if claim.denies:
        doubt, trust = _chances(claim.denied(), effect)
        return trust, doubt
    return _doubt(claim, effect), _trust(claim, effect)


def _along(claim: Claim, effect: Effect) -> Effect:
    """Return an effect with the sign that makes positive what the claim is about."""
    return replace(effect, differences=claim.upwards * effect.differences)


def _size(claim: Claim, effect: Effect) -> float:
    """Return how large an effect is, as the claim expects it."""
    return abs(effect.estimate) if claim.expects == "same" else _along(claim, effect).estimate


def _doubt(claim: Claim, effect: Effect) -> float:
    """Return the p value of the runs if the claim were false."""
    if claim.expects == "same":
        return max(effect.chance_below(-claim.relevance), effect.chance_above(claim.relevance))
    return _along(claim, effect).chance_below(0.0)


def _trust(claim: Claim, effect: Effect) -> float:
    """Return the p value of the runs if the claim were true."""
    if claim.expects == "same":
        return min(1.0, 2 * min(effect.chance_below(0.0), effect.chance_above(0.0)))
    return _along(claim, effect).chance_above(claim.relevance)


def _more_seeds(claim: Claim, effect: Effect, tests: int) -> int | None:
    """Return how many more seeds would decide a claim at this effect and spread, as one of so many.

    A relevant effect must be significant, and its estimate relevant again; one that is not relevant must be
    significantly smaller than that.
    """
    if effect.sd == 0:
        return None
    size, spare = _size(claim, effect), abs(_size(claim, effect) - claim.relevance)
    needed = seeds_to_tell(effect.sd, size if size >= claim.relevance else spare, tests)
    if needed is None or spare == 0 or (again := math.ceil((_ONE_SIDED * effect.sd / spare) ** 2)) > MOST_SEEDS:
        return None
    return max(1, max(needed, again) - effect.n)
