"""Published claims, defined as contrasts between cells of presets, and the statistical tests that judge them.

The folder `claims` has one TOML file with the claims of each paper. A cell is one combination of plant, learner,
strategy, noise and control rate. A claim names a cell by the values that identify the cell in a preset.
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
from replaybench.experiments.dataset import AXES
from replaybench.experiments.effects import MOST_SEEDS, SIGNIFICANT, Effect, holm, seeds_to_tell
from replaybench.experiments.study import Cell
from replaybench.runtime.configuration import build
from replaybench.runtime.errors import UserError, unknown

FOLDER: Final = Path(__file__).parent / "claims"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper, as an expected contrast between simulated runs.

    A cell is one combination of plant, learner, strategy, noise and control rate, with all its seeds. The contrast of a
    seed is the sum of the measure over the cells `plus`, minus the sum over the cells `minus`, minus `level`. All cells
    use the same seeds, so differences are paired. Scores are rewards or returns, as the plant defines them. The
    normalised score μ_r is 0 for random control and 1 for dynamic programming.

    Attributes:
        id: Name of the claim, unique in its paper.
        source: Section, figure or table of the paper.
        statement: The claim, paraphrased.
        preset: Name of the preset that defines the cells, for example `debruin2018/fig12`.
        plus: Cells with positive sign. Each cell is given by the values (plant, learner, strategy, noise, frequency)
            that identify the cell, and by `preset` if the cell belongs to another preset.
        minus: Cells with negative sign, in the same form.
        where: Values that all cells have in common, by axis.
        level: Number to subtract from the contrast; 0 if cells are only compared with each other.
        measure: Name of the number that is computed for each run:
            "final": mean μ_r of the last training episodes;
            "best": μ_r of the best training episode;
            "rise": number of episodes until μ_r ≥ 0.8;
            "greedy": mean μ_r of the last greedy episodes;
            "reward": mean score of the last training episodes;
            "whole": mean score of all training episodes;
            "first STEPS", "last STEPS": mean score of the training episodes in the first or last STEPS steps;
            "evaluation", "evaluation STEPS": mean score of all evaluations, or of those in the last STEPS steps;
            "noise SIGNAL": mean absolute noise of a signal in the replayed experiences, divided by the expectation
            σ √(2/π) (de Bruin et al., 2018, table 6);
            "metric NAME": mean of a metric of the learner over the last tenth of the run.
        logarithm: Whether to compare log10 of the measure. Values below 1e-6 count as 1e-6.
        expects: Whether the contrast is expected to be "more" than zero, "less", "not more", "not less", or the "same"
            as zero within `relevance`.
        relevance: Smallest effect of interest, in units of the measure.
        printed: The numbers that the paper prints, if any.
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
        """Return the cells (combinations of settings) that enter the contrast with positive and with negative sign.

        The cells have the paper's number of seeds and episodes. If the seeds of a cell are divided into several blocks,
        only the first block is included.
        """
        cells = [self._cell(named) for named in (*self.plus, *self.minus)]
        return cells[: len(self.plus)], cells[len(self.plus) :]

    def presets(self) -> list[str]:
        """Return the preset of each cell (combination of settings) in the contrast, with positive cells first."""
        return [place.get("preset", self.preset) for place in self.places()]

    @property
    def upwards(self) -> int:
        """Sign of the claimed direction: −1 if the claim expects "less" or "not less", else 1."""
        return -1 if self.expects.endswith("less") else 1

    def denied(self) -> Claim | None:
        """Return the claim ("more" or "less") that this claim negates, or None if it negates none."""
        direction: Literal["less", "more"] = "less" if self.upwards < 0 else "more"
        return replace(self, expects=direction) if self.expects.startswith("not ") else None

    def places(self) -> Iterator[dict[str, Any]]:
        """Yield the values (plant, learner, strategy, noise, frequency) that identify each cell of the contrast."""
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
    return tuple(cell for cell in read_preset(preset).study("paper").cells() if not cell.first_member)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims (statements to test) of one paper, which form one family of statistical tests (Holm, 1979)."""

    paper: str
    claim: tuple[Claim, ...]


def claim_files() -> list[str]:
    """Return the short names of the papers with claims, for example `debruin2018`."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_claims(name: str) -> Claims:
    """Read the claims of the paper with the given short name, for example `debruin2018`."""
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
"""Verdict on a claim that negates another claim, by the verdict on the negated claim."""
_ONE_SIDED: Final = 0.84
"""Quantile of the normal distribution for a power of 80 %."""


@dataclass(frozen=True)
class Verdict:
    """The result of testing a published claim.

    Attributes:
        effect: Contrast (difference between the claim's cells) of each seed, with the measured sign.
        supports: p value of the hypothesis that the claim is false, corrected for all claims of the paper. A small
            value supports the claim.
        refutes: p value of the hypothesis that the claim is true with a relevant effect, corrected in the same way. A
            small value refutes the claim.
        more_seeds: Number of further seeds that would decide the claim if the effect stays as measured; 0 if the
            claim is decided, and None if the effect is too near to a bound or has no spread.
    """

    claim: Claim
    effect: Effect
    supports: float
    refutes: float
    word: Word
    more_seeds: int | None = 0

    @property
    def split(self) -> bool:
        """Whether the effect is relevant by either its interquartile mean or its mean, but not by both."""
        return self.effect.n > 0 and len(_relevant(self.claim, self.effect)) > 1


def judge(claims: Sequence[Claim], effects: Sequence[Effect | None]) -> list[Verdict]:
    """Judge all claims of one paper with control of the family-wise error rate (Holm, 1979).

    An effect is relevant if its interquartile mean and, except for rise times, its mean are at least the smallest
    effect of interest, `Claim.relevance`. "Significantly" means that the test (p < 0.05) and the 95 % interval agree.

    - A claim that expects "more" is reproduced if the effect is relevant and significantly above zero. If the effect is
      significantly smaller than relevant, the verdict is "contradicted". If such an effect is also significantly above
      zero, the verdict is "smaller than relevant". "less" is judged in the same way, with the sign changed.
    - A claim that expects "not more" or "not less" gets the opposite of the verdict on the negated claim.
    - A claim that expects the "same" is reproduced if the effect lies significantly within the bounds ± `relevance`
      (two one-sided tests, Schuirmann, 1987). The claim is contradicted if the effect is relevant and significantly
      different from zero.

    A claim whose effect is None was not run. Such a claim counts in the correction, so that verdicts do not depend on
    which claims were run.
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
    """Return whether an effect is relevant by its interquartile mean and by its mean, as a set of one or two answers.

    For rise times, only the interquartile mean is tested. The mean would depend on the length of runs that never rise.
    """
    statistics = (effect,) if claim.measure == "rise" else (effect, replace(effect, statistic="mean"))
    return {_size(claim, each) >= claim.relevance for each in statistics}


def _chances(claim: Claim, effect: Effect) -> tuple[float, float]:
    """Return p values of two hypotheses: the claim is false, and the claim is true with a relevant effect."""
    if denied := claim.denied():
        doubt, trust = _chances(denied, effect)
        return trust, doubt
    if claim.expects == "same":
        doubt = max(effect.chance_below(-claim.relevance), effect.chance_above(claim.relevance))
        return doubt, min(1.0, 2 * min(effect.chance_below(0.0), effect.chance_above(0.0)))
    along = _along(claim, effect)
    return along.chance_below(0.0), along.chance_above(claim.relevance)


def _along(claim: Claim, effect: Effect) -> Effect:
    return replace(effect, differences=claim.upwards * effect.differences)


def _size(claim: Claim, effect: Effect) -> float:
    return abs(effect.estimate) if claim.expects == "same" else _along(claim, effect).estimate


def _more_seeds(claim: Claim, effect: Effect, tests: int) -> int | None:
    """Return how many more seeds would decide a claim if effect and spread stay as measured, or None for too many.

    A relevant effect must become significant and stay relevant. A smaller effect must become significantly less than
    relevant. `tests` is the number of claims for which p values are corrected.
    """
    if effect.sd == 0:
        return None
    size, spare = _size(claim, effect), abs(_size(claim, effect) - claim.relevance)
    needed = seeds_to_tell(effect.sd, size if size >= claim.relevance else spare, tests)
    if needed is None or spare == 0 or (again := math.ceil((_ONE_SIDED * effect.sd / spare) ** 2)) > MOST_SEEDS:
        return None
    return max(1, max(needed, again) - effect.n)
