"""Published claims, defined as contrasts between cells of presets, and the statistical tests that judge them.

The folder `claims` has one TOML file with the claims of each paper. A cell is one combination of plant, learner,
strategy, noise and control rate. A claim names a cell by the values that identify the cell in a preset.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from replaybench.data.documents import read_toml
from replaybench.evidence.preset import read_preset
from replaybench.experiments.dataset import AXES
from replaybench.experiments.effects import SIGNIFICANT, Effect, holm, least_p, surpassed_without_each
from replaybench.experiments.statistics import Statistic, all_equal, weights
from replaybench.experiments.study import Cell
from replaybench.runtime.arrays import Bools, Floats
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
        """Return the cells that enter the contrast with positive and with negative sign.

        The cells have the paper's number of seeds and episodes. If the seeds of a cell are divided into several blocks,
        only the first block is included.
        """
        cells = [self._cell(named) for named in (*self.plus, *self.minus)]
        return cells[: len(self.plus)], cells[len(self.plus) :]

    def presets(self) -> list[str]:
        """Return the preset of each cell in the contrast, with positive cells first."""
        return [place.get("preset", self.preset) for place in self.places()]

    @property
    def first_look(self) -> int:
        """The number of pairs of runs at the first look: the number of seeds of the presets at scale `standard`."""
        return min(map(_seeds, self.presets()), default=_seeds(self.preset))

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
def _seeds(preset: str) -> int:
    return read_preset(preset).study("standard").seeds


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

Chance = Callable[[float], Floats | float]
NOTHING: Final = Effect(np.empty(0))
_OF_A_DENIAL: Final[dict[Word, Word]] = {
    "reproduced": "contradicted",
    "contradicted": "reproduced",
    "smaller than relevant": "reproduced",
}
"""Verdict on a claim that negates another claim, by the verdict on the negated claim."""
LOOKS: Final = 4
"""Number of planned looks at a claim. Each look has twice as many pairs of runs as the look before."""
_POWER: Final = 0.8
_SIMULATED: Final = 400


@dataclass(frozen=True)
class Verdict:
    """The result of testing a published claim.

    Attributes:
        effect: Contrast (difference between the claim's cells) of each seed at the look that decides, or at the last
            look so far, with the measured sign.
        supports: p value of the hypothesis that the claim is false, corrected for all claims of the paper and for the
            looks. A small value supports the claim.
        refutes: p value of the hypothesis that the claim is true with a relevant effect, corrected in the same way. A
            small value refutes the claim.
        look: Number of the look, from 1; 0 if the claim was not run.
        hangs_on_one: Whether the claim is undecided only because the verdict changes if one pair is left out.
        tests: Numbers of claims of the paper whose `supports` and whose `refutes` are not significant at this look.
    """

    claim: Claim
    effect: Effect
    supports: float
    refutes: float
    word: Word
    look: int = 0
    hangs_on_one: bool = False
    tests: tuple[int, int] = (1, 1)

    @functools.cached_property
    def more_seeds(self) -> int | None:
        """The number of further seeds that would decide the claim; 0 if it is decided, None if no planned look would.

        The chance of a decision at a look is simulated with pairs that are drawn from the pairs at hand.
        """
        if self.word != "undecided":
            return 0
        for look in range(1, LOOKS + 1):
            pairs: int = self.claim.first_look * 2 ** (look - 1)
            if pairs > self.effect.n and chance_to_decide(self, pairs, look) >= _POWER:
                return pairs - self.effect.n
        return None


def judge(claims: Sequence[Claim], effects: Sequence[Effect | None]) -> list[Verdict]:
    """Judge all claims of one paper with control of the family-wise error rate (Holm, 1979) over all looks.

    The effect is the mean of the paired differences; for rise times, which runs that never rise would dominate, it is
    the interquartile mean. An effect is relevant if it is at least the smallest effect of interest, `Claim.relevance`.
    "Significantly" means that the test (p < 0.05) and the 95 % interval agree.

    - A claim that expects "more" is reproduced if the effect is relevant and significantly above zero. If the effect is
      significantly smaller than relevant, the verdict is "contradicted". If such an effect is also significantly above
      zero, the verdict is "smaller than relevant". "less" is judged in the same way, with the sign changed.
    - A claim that expects "not more" or "not less" gets the opposite of the verdict on the negated claim.
    - A claim that expects the "same" is reproduced if the effect lies significantly within the bounds ± `relevance`
      (two one-sided tests, Schuirmann, 1987). The claim is contradicted if the effect is relevant and significantly
      different from zero.
    - A verdict must also hold without any single pair. Otherwise the claim is undecided.

    A claim is looked at when it has the seeds of its preset, and again each time the number of pairs has doubled. The
    first look may use half of the error of 5 %, and each further look half of what the look before used. The sum of the
    errors is therefore at most 5 %, however the looks depend on each other. The first look that decides counts. Pairs
    beyond the last complete look are not used; if there are fewer pairs than at the first look, all are used.

    A claim whose effect is None was not run. Such a claim counts in the correction, so that verdicts do not depend on
    which claims were run.
    """
    looks = [[] if each is None else _looks(claim, each) for claim, each in zip(claims, effects, strict=True)]
    found = [Verdict(claim, NOTHING, 1.0, 1.0, "not run") for claim in claims]
    chances = [(1.0, 1.0) for _ in claims]
    for look in range(max(map(len, looks), default=0)):
        left = [at for at, own in enumerate(looks) if len(own) > look and found[at].word in ("undecided", "not run")]
        for at in left:
            chances[at] = _spent(claims[at], looks[at][look], look)
        adjusted = _adjusted(chances)
        supports, refutes = (sum(p >= SIGNIFICANT for p in side) for side in zip(*adjusted, strict=True))
        tests = max(supports, 1), max(refutes, 1)
        for at in left:
            effect = looks[at][look]
            significant = min(adjusted[at]) < SIGNIFICANT
            interval = _along(claims[at], effect).interval() if significant else (-math.inf, math.inf)
            word = _word(claims[at], effect, *adjusted[at], interval)
            if hangs := word != "undecided" and not _firm(word, claims, at, effect, look, chances, interval):
                word = "undecided"
            found[at] = Verdict(claims[at], effect, *adjusted[at], word, look + 1, hangs, tests)
    return found


def _looks(claim: Claim, effect: Effect) -> list[Effect]:
    """Return the effect at each look that the pairs of runs suffice for."""
    sizes = [claim.first_look * 2**look for look in range(LOOKS)]
    reached = [size for size in sizes if size <= effect.n] or [effect.n]
    statistic: Statistic = "interquartile mean" if claim.measure == "rise" else "mean"
    return [Effect(effect.differences[:size], statistic) for size in reached]


def _spent(claim: Claim, effect: Effect, look: int) -> tuple[float, float]:
    """Return the p values of a look, from 0, multiplied so that all looks together keep the error of one test."""
    supports, refutes = _chances(claim, effect.chance_below, effect.chance_above)
    return 2 ** (look + 1) * float(supports), 2 ** (look + 1) * float(refutes)


def _adjusted(chances: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    supports, refutes = (holm(side) for side in zip(*chances, strict=True))
    return list(zip(supports, refutes, strict=True))


def _firm(
    word: Word,
    claims: Sequence[Claim],
    at: int,
    effect: Effect,
    look: int,
    chances: Sequence[tuple[float, float]],
    interval: tuple[float, float],
) -> bool:
    """Return whether a verdict holds without any single pair of runs, with the interval of all pairs."""
    claim, pairs = claims[at], _weightiest(claims[at], effect)
    rest = [replace(effect, differences=np.delete(effect.differences, pair)) for pair in pairs]

    def below(value: float) -> Floats:
        if effect.statistic == "mean":
            return surpassed_without_each(effect.differences - value)
        return np.array([each.chance_below(value) for each in rest])

    def above(value: float) -> Floats:
        if effect.statistic == "mean":
            return surpassed_without_each(value - effect.differences)
        return np.array([each.chance_above(value) for each in rest])

    for without, *spent in zip(rest, *(2 ** (look + 1) * each for each in _chances(claim, below, above)), strict=True):
        supports, refutes = _adjusted([*chances[:at], (spent[0], spent[1]), *chances[at + 1 :]])[at]
        if _side(_word(claim, without, supports, refutes, interval)) != _side(word):
            return False
    return True


def _weightiest(claim: Claim, effect: Effect) -> Collection[int]:
    """Return the pairs of runs without which a verdict may change.

    These are all pairs for a mean. The tests of interquartile means take too long for that. For these, they are the
    pairs without which the estimate, or its distance in standard errors from zero or from the smallest effect of
    interest, is the largest or the smallest.
    """
    if effect.statistic == "mean":
        return range(effect.n)
    order = np.argsort(effect.differences)
    rest = effect.differences[order][np.nonzero(1 - np.eye(effect.n))[1].reshape(effect.n, -1)]
    center, error = _student(rest, effect.statistic)
    distances = [center, *((center - bound) / error for bound in (-claim.relevance, 0.0, claim.relevance))]
    return {int(order[at]) for each in distances for at in (each.argmin(), each.argmax())}


def _side(word: Word) -> Word:
    return "contradicted" if word == "smaller than relevant" else word


def _word(claim: Claim, effect: Effect, supports: float, refutes: float, interval: tuple[float, float]) -> Word:
    """Return a verdict by p values and by the 95 % interval in the direction of the claim."""
    if denied := claim.denied():
        word = _word(denied, effect, refutes, supports, interval)
        return _OF_A_DENIAL.get(word, word)
    least, relevant = claim.relevance, _size(claim, effect) >= claim.relevance
    low, high = interval
    if claim.expects == "same":
        as_claimed, otherwise = -least < low and high < least, not low <= 0 <= high
    else:
        as_claimed, otherwise = low > 0, high < least
    supported, refuted = supports < SIGNIFICANT and as_claimed, refutes < SIGNIFICANT and otherwise
    if supported and relevant == (claim.expects != "same"):
        return "reproduced"
    if refuted and relevant == (claim.expects == "same"):
        return "smaller than relevant" if supported else "contradicted"
    return "undecided"


def _chances(claim: Claim, below: Chance, above: Chance) -> tuple[Floats, Floats]:
    """Return p values of two hypotheses: the claim is false, and the claim is true with a relevant effect.

    `below` and `above` return p values of the hypotheses that the effect is at most, or at least, a value.
    """
    if denied := claim.denied():
        doubt, trust = _chances(denied, below, above)
        return trust, doubt
    least = claim.relevance
    if claim.expects == "same":
        doubt = np.maximum(below(-least), above(least))
        return doubt, np.minimum(1.0, 2 * np.minimum(below(0.0), above(0.0)))
    supports, refutes = (below(0.0), above(least)) if claim.upwards > 0 else (above(0.0), below(-least))
    return np.asarray(supports), np.asarray(refutes)


def _along(claim: Claim, effect: Effect) -> Effect:
    return replace(effect, differences=claim.upwards * effect.differences)


def _size(claim: Claim, effect: Effect) -> float:
    return abs(effect.estimate) if claim.expects == "same" else _along(claim, effect).estimate


def chance_to_decide(verdict: Verdict, pairs: int, look: int) -> float:
    """Simulate the chance that a look with a number of pairs decides a claim, if the pairs at hand are typical.

    Pairs are drawn with replacement. The rule is that of `judge`, at the level of this look for all claims that are
    still undecided, with simplifications for speed: Student's t test replaces the sign-flip test (for interquartile
    means, with Winsorised variances, Yuen, 1974), but p values are not below those that a sign-flip test can have. Only
    the pairs with the largest and with the smallest difference are left out.
    """
    claim, effect = verdict.claim, verdict.effect
    if effect.n < 2 or all_equal(effect.differences):
        return 0.0
    rng = np.random.Generator(np.random.PCG64(0))
    draws = np.sort(claim.upwards * rng.choice(effect.differences, (_SIMULATED, pairs)), axis=-1)
    levels = [SIGNIFICANT / (2**look * tests) for tests in verdict.tests]
    if claim.denied():
        levels.reverse()
    decided = [_sides(claim, effect.statistic, each, *levels) for each in (draws, draws[:, :-1], draws[:, 1:])]
    supported, refuted = (np.logical_and.reduce(each) for each in zip(*decided, strict=True))
    return float((supported | refuted).mean())


def _sides(claim: Claim, statistic: Statistic, ordered: Floats, supports: float, refutes: float) -> tuple[Bools, Bools]:
    """Return whether samples `[samples, n]` of sorted differences support a claim, and whether they refute it.

    `supports` and `refutes` are the levels of the two tests.
    """
    from scipy.special import stdtr

    center, error = _student(ordered, statistic)
    size = ordered.shape[-1]
    freedom = size - 1 - 2 * _trimmed(size, statistic)
    least, floor = claim.relevance, least_p(size, statistic)

    def far(distance: Floats, level: float) -> Bools:  # significantly larger than 0
        significant: Bools = np.maximum(stdtr(freedom, -distance / error), floor) < level
        return significant

    if claim.expects == "same":
        different = far(np.abs(center), refutes / 2) & (np.abs(center) >= least)
        return far(center + least, supports) & far(least - center, supports), different
    return far(center, supports) & (center >= least), far(least - center, refutes)


def _student(ordered: Floats, statistic: Statistic) -> tuple[Floats, Floats]:
    """Return estimates and standard errors `[samples]` of samples `[samples, n]` of sorted differences (Yuen, 1974)."""
    size = ordered.shape[-1]
    trimmed = _trimmed(size, statistic)
    middle = size - 2 * trimmed
    spread = np.clip(ordered, ordered[:, [trimmed]], ordered[:, [size - 1 - trimmed]]).std(axis=-1, ddof=1)
    error = np.maximum(spread * math.sqrt(size - 1) / math.sqrt(middle * max(middle - 1, 1)), 1e-300)
    return ordered @ weights(size, statistic), error


def _trimmed(size: int, statistic: Statistic) -> int:
    return 0 if statistic == "mean" else size // 4
