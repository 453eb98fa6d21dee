"""Claims: published statements as contrasts of cells, and their verdicts.

Claims are data: one TOML file for each paper, in `claims/`. They compare cells of presets. A claim names a cell by the
axes that distinguish it in its preset.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from replaybench.data.documents import read_toml
from replaybench.evidence.preset import read_preset
from replaybench.experiments.effects import MOST_SEEDS, SIGNIFICANT, Effect, holm, seeds_to_tell
from replaybench.experiments.study import Cell
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError, unknown

FOLDER: Final = Path(__file__).parent / "claims"
AXES: Final = ("plant", "learner", "strategy", "noise", "frequency")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper about cells of one preset.

    The contrast of each seed is the sum of `measure` over the cells `plus`, minus the sum over `minus`, minus `level`.
    Cells share seeds, so differences are paired.

    Attributes:
        id: name of the claim, unique in its paper.
        source: section, figure or table of the paper.
        statement: the claim, paraphrased.
        preset: preset of the cells, as in debruin2018/fig12.
        plus, minus: cells, each by the axes (plant, learner, strategy, noise, frequency) that distinguish it, and by
            its `preset` if that is another one.
        where: values on axes that all cells share.
        level: number that is subtracted from the contrast; 0 if cells are compared with each other only.
        measure: of each run, "final" (μ_final), "best" (μ_max), "rise" (episodes until μ_r >= 0.8), "greedy" (mean
            μ_r of the last greedy episodes), "reward" (mean reward, or return, of the last training episodes), "whole"
            (of all training episodes), "first STEPS" or "last STEPS" (of those in these steps), "evaluation" (mean
            reward, or return, of all evaluations), "evaluation STEPS" (of those in the last steps), "noise SIGNAL"
            (mean noise of a signal in replayed experiences in units of its mean, table 6) or "metric NAME" (mean of a
            learner's metric over the last tenth).
        logarithm: compare log10 of the measure; values below 1e-6 count as 1e-6.
        expects: the contrast is "more" than zero, "less", "not more", "not less", or the "same" within `relevance`.
        relevance: smallest effect of interest, in units of the measure.
        printed: the numbers that the paper prints, if any.
    """

    id: str
    source: str
    statement: str
    preset: str
    plus: tuple[dict[str, Any], ...]
    minus: tuple[dict[str, Any], ...] = ()
    where: dict[str, Any] = field(default_factory=dict)
    level: float = 0.0
    measure: str = "final"
    logarithm: bool = False
    expects: Literal["more", "less", "not more", "not less", "same"]
    relevance: float
    printed: str = ""

    def cells(self) -> tuple[list[Cell], list[Cell]]:
        """Return the cells of `plus` and of `minus` at paper scale, each with its first block of seeds."""
        cells = [self._cell(named) for named in (*self.plus, *self.minus)]
        return cells[: len(self.plus)], cells[len(self.plus) :]

    def presets(self) -> list[str]:
        """Return the preset of each cell, `plus` first."""
        return [place.get("preset", self.preset) for place in self.places()]

    @property
    def upwards(self) -> int:
        """−1 if less is expected, else 1."""
        return -1 if self.expects.endswith("less") else 1

    def denied(self) -> Claim | None:
        """Return the claim without its "not"; None if it has none."""
        direction: Literal["less", "more"] = "less" if self.upwards < 0 else "more"
        return replace(self, expects=direction) if self.expects.startswith("not ") else None

    def places(self) -> Iterator[dict[str, Any]]:
        """Yield the values on axes that name each cell, `plus` first."""
        yield from ({**self.where, **named} for named in (*self.plus, *self.minus))

    def _cell(self, named: Mapping[str, Any]) -> Cell:
        axes = {**self.where, **named}
        preset = axes.pop("preset", self.preset)
        cells = _first_cells(preset)
        for axis in axes:
            if axis not in AXES:
                raise unknown(f"claim {self.id}: axis", axis, AXES)
        fitting = [cell for cell in cells if all(getattr(cell, axis) == value for axis, value in axes.items())]
        if len(fitting) != 1:
            raise UserError(f"claim {self.id}: {axes} names {len(fitting)} cells of {preset}, not one")
        return fitting[0]


@functools.cache
def _first_cells(preset: str) -> tuple[Cell, ...]:
    """Return the cells of a preset at paper scale that hold the first block of seeds."""
    return tuple(cell for cell in read_preset(preset).study("paper").cells() if not cell.first_member)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims of one paper; all of them, run or not, form one family of tests (Holm 1979)."""

    paper: str
    claim: tuple[Claim, ...]


def claim_files() -> list[str]:
    """Return the names of the papers with claims."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_claims(name: str) -> Claims:
    """Read the claims of one paper by the name of its file."""
    if name not in claim_files():
        raise unknown("paper", name, claim_files())
    path = FOLDER / f"{name}.toml"
    return build(Claims, read_toml(path), str(path))


Word = Literal["reproduced", "contradicted", "smaller than relevant", "undecided", "not run"]

NOTHING: Final = Effect(np.empty(0))
_OF_A_DENIAL: Final[dict[Word, Word]] = {
    "reproduced": "contradicted",
    "contradicted": "reproduced",
    "smaller than relevant": "reproduced",
}
"""Verdict of a claim with a "not", by the verdict of the claim without it."""
_ONE_SIDED: Final = 0.84
"""Quantile of the normal distribution, for a power of 80 %."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of some runs on a claim.

    Attributes:
        effect: the contrast, with its measured sign.
        supports: p value of "the claim is false", corrected within its family; small values support the claim.
        refutes: p value of "the claim is true and its effect relevant", corrected; small values refute it.
        more_seeds: further seeds that would decide it at the measured effect; 0 if decided, None if the effect is too
            near to a bound, or runs are equal.
    """

    claim: Claim
    effect: Effect
    supports: float
    refutes: float
    word: Word
    more_seeds: int | None = 0

    @property
    def split(self) -> bool:
        """Whether only one of the interquartile mean and the mean of the effect is relevant."""
        return self.effect.n > 0 and len(_relevant(self.claim, self.effect)) > 1


def judge(claims: Sequence[Claim], effects: Sequence[Effect | None]) -> list[Verdict]:
    """Judge the claims of one family; the family-wise error of all tests is controlled (Holm 1979).

    "more" is reproduced if the effect is significantly above zero and its estimate relevant. If the effect is
    significantly below the relevance, the verdict is "contradicted", or "smaller than relevant" if the effect is also
    significantly above zero. "not more" has the opposite verdicts. "same" is reproduced if the effect lies
    significantly within the bounds of relevance (two one-sided tests, Schuirmann 1987), and contradicted if it is
    significantly different from zero and its estimate relevant.

    "Significantly" means by the test (p < 0.05) and by the 95 % interval. A claim with effect None was not run. It
    counts in the family all the same, so that no verdict depends on which other claims were run.
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
    if denied := claim.denied():
        word = _word(denied, effect, refutes, supports)
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
    """Return the set of answers whether an effect is relevant, by its interquartile mean and by its mean.

    Rise times use the former only: a run that never rises counts with its length, on which the mean would depend.
    """
    statistics = (effect,) if claim.measure == "rise" else (effect, replace(effect, statistic="mean"))
    return {_size(claim, each) >= claim.relevance for each in statistics}


def _chances(claim: Claim, effect: Effect) -> tuple[float, float]:
    """Return the p values of "the claim is false" and of "the claim is true"."""
    if denied := claim.denied():
        doubt, trust = _chances(denied, effect)
        return trust, doubt
    if claim.expects == "same":
        doubt = max(effect.chance_below(-claim.relevance), effect.chance_above(claim.relevance))
        return doubt, min(1.0, 2 * min(effect.chance_below(0.0), effect.chance_above(0.0)))
    along = _along(claim, effect)
    return along.chance_below(0.0), along.chance_above(claim.relevance)


def _along(claim: Claim, effect: Effect) -> Effect:
    """Return an effect with its sign changed so that the claim's direction is positive."""
    return replace(effect, differences=claim.upwards * effect.differences)


def _size(claim: Claim, effect: Effect) -> float:
    return abs(effect.estimate) if claim.expects == "same" else _along(claim, effect).estimate


def _more_seeds(claim: Claim, effect: Effect, tests: int) -> int | None:
    """Return how many more seeds would decide a claim at this effect and spread, in a family of `tests` tests.

    A relevant effect must become significant and stay relevant; another must become significantly less than relevant.
    """
    if effect.sd == 0:
        return None
    size, spare = _size(claim, effect), abs(_size(claim, effect) - claim.relevance)
    needed = seeds_to_tell(effect.sd, size if size >= claim.relevance else spare, tests)
    if needed is None or spare == 0 or (again := math.ceil((_ONE_SIDED * effect.sd / spare) ** 2)) > MOST_SEEDS:
        return None
    return max(1, max(needed, again) - effect.n)
