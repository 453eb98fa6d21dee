"""From effects to verdicts: reproduced, contradicted, undecided, or not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from replaybench.experiments.claims.claim import Claim
from replaybench.experiments.results.effects import SIGNIFICANT, Effect, holm, seeds_to_tell

Word = Literal["reproduced", "contradicted", "undecided", "not run"]

NOTHING: Final = Effect(np.empty(0))
_SWAPPED: Final[dict[Word, Word]] = {"reproduced": "contradicted", "contradicted": "reproduced"}


@dataclass(frozen=True)
class Verdict:
    """What runs say of a claim.

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


def judge(claims: Sequence[Claim], effects: Sequence[Effect | None]) -> list[Verdict]:
    """Judge the claims of one family, with the errors of all its tests controlled together.

    A claim that there is more is supported if there is surely more than nothing, and at least a relevant amount as
    measured; it is refuted if there is surely less than a relevant amount. With "not more" it is the other way round.
    A claim of no difference is supported if the difference surely lies within the bounds of relevance (two one-sided
    tests, Schuirmann 1987), and refuted if it is surely not zero, and relevant as measured. An effect of None was not
    run; it counts in the family all the same, so that no verdict depends on what else was run.

    Sure is what test and 95 % interval both say: of few seeds intervals hold too little, and where the differences lie
    askew, as about a level or by single dead runs, the test sees too much.
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
        return _SWAPPED.get(word, word)
    relevant, least = _size(claim, effect) >= claim.relevance, claim.relevance
    low, high = _along(claim, effect).interval()
    if claim.expects == "same":
        as_claimed, otherwise = -least < low and high < least, not low <= 0 <= high
    else:
        as_claimed, otherwise = low > 0, high < least
    if supports < SIGNIFICANT and as_claimed and relevant == (claim.expects != "same"):
        return "reproduced"
    if refutes < SIGNIFICANT and otherwise and relevant == (claim.expects == "same"):
        return "contradicted"
    return "undecided"


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

    A relevant effect has to be told from zero, one that is not relevant from what would be.
    """
    if effect.sd == 0:
        return None
    size = _size(claim, effect)
    distance = size if size >= claim.relevance else claim.relevance - size
    needed = seeds_to_tell(effect.sd, distance, tests)
    return None if needed is None else max(1, needed - effect.n)
