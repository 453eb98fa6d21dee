"""The card of a replay strategy: its scores on a fixed protocol, next to those of other strategies (command `card`).

The protocol is the study `card` of the package. The scores of the other strategies come with the package.
"""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr

from replaybench.experiments.calibration import speed
from replaybench.experiments.dataset import mu_r
from replaybench.experiments.effects import SIGNIFICANT, Effect, family_p, p_text, paired
from replaybench.experiments.statistics import DEAD_LEVEL, Interval, drawn, interval
from replaybench.experiments.study import VOLUME, Study, read_study
from replaybench.experiments.text_table import FittedTable
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.arrays import Floats

BASELINE: Final = "FULL[Uniform]"
LEARNER: Final = "DDPG"
"""Learner of the protocol."""
FINAL: Final = "final score μ_r"
COLLAPSED: Final = "share of collapsed runs"
NOISE: Final = "final score: with − without noise"
_STORED: Final = Path(__file__).parent / "cards.json"


class Condition(NamedTuple):
    """A condition of the protocol: a plant, a replay volume, and a noise level in normalised units."""

    plant: str
    volume: float
    noise: float


@dataclass(frozen=True)
class Standing:
    """The scores of a strategy in all C conditions of the protocol, with n seeds.

    Failed runs have the score 0, which is that of random control.

    Attributes:
        final: Mean μ_r of the last episodes; float64, shape `[C, n]`.
        whole: Mean μ_r of all episodes, which is higher if a run learns faster; float64, shape `[C, n]`.
    """

    final: Floats
    whole: Floats


@dataclass(frozen=True)
class Card:
    """The card of a strategy, with its scores and those of all other strategies by name.

    Attributes:
        time: Sentences about the time of the strategy, or an empty string if it was not measured.
    """

    strategy: str
    conditions: Sequence[Condition]
    standings: dict[str, Standing]
    time: str

    def by_volume(self) -> dict[float, list[int]]:
        """Return the indices of the conditions with each replay volume."""
        parts: dict[float, list[int]] = {}
        for place, condition in enumerate(self.conditions):
            parts.setdefault(condition.volume, []).append(place)
        return parts

    def measures(self, volume: float) -> dict[str, Floats]:
        """Return each measure of S strategies in C conditions with a replay volume; float64, shape `[S, C, n]`.

        The difference by noise is taken on each of K plants with both levels, so its shape is `[S, K, n]`.
        """
        part = self.by_volume()[volume]
        final = np.array([each.final[part] for each in self.standings.values()])
        here = [self.conditions[place] for place in part]
        noisy = [place for place, each in enumerate(here) if each.noise > 0]
        quiet = [here.index(here[place]._replace(noise=0.0)) for place in noisy]
        return {
            FINAL: final,
            "mean score of the whole run": np.array([each.whole[part] for each in self.standings.values()]),
            COLLAPSED: (final < DEAD_LEVEL).astype(np.float64),
            NOISE: final[:, noisy] - final[:, quiet],
        }

    def ranks(self, volume: float, measure: str = FINAL) -> dict[str, Interval]:
        """Return each strategy's mean rank over the conditions with a replay volume, with its 95 % bootstrap interval.

        Rank 1 is the smallest share of collapsed runs, and the highest value of any other measure. Seeds are resampled,
        the same ones for all strategies.
        """
        values = self.measures(volume)[measure] * (-1.0 if measure == COLLAPSED else 1.0)
        resampled = _mean_ranks(values @ drawn(values.shape[-1]).T)
        low, high = np.quantile(resampled, [0.025, 0.975], axis=-1)
        means = _mean_ranks(values.sum(axis=-1, keepdims=True))[:, 0]
        bounds = zip(means.tolist(), low.tolist(), high.tolist(), strict=True)
        return {name: Interval(*each, False) for name, each in zip(self.standings, bounds, strict=True)}

    def tables(self) -> list[FittedTable]:
        """Return the tables of the card: measures with their ranks, and scores in each condition."""
        return [self._measures(), self._scores()]

    def _measures(self) -> FittedTable:
        own, baseline = self.standings[self.strategy], self.standings[BASELINE]
        place, parts = list(self.standings).index(self.strategy), self.by_volume()
        measures = {volume: self.measures(volume) for volume in parts}
        effects = [paired([own.final[part].mean(0)], [baseline.final[part].mean(0)]) for part in parts.values()]
        caption = (
            f"Rank 1 is the highest score, the smallest share of collapsed runs (final score below {DEAD_LEVEL}), the "
            "smallest loss by noise, or the fewest bytes in addition to the experience, among them the 4 bytes of its "
            "serial number. Equal values share a rank. "
            "Except for memory, a rank is by the mean over seeds in one condition (on one plant for the effect of "
            f"noise), and the table shows the mean over the conditions of a volume. {self.time}"
        )
        headings = ("measure", "volume", "value [95 %]", f"rank of {len(self.standings)} [95 %]")
        title = f"Card of {self.strategy}"
        table = FittedTable(headings, ("measure",), headings[1:], title=title, caption=caption.rstrip())
        for measure in next(iter(measures.values())):
            for volume in parts:
                value = interval(measures[volume][measure][place].mean(axis=0))
                shown = _signed(value.mean, value.low, value.high) if measure == NOISE else value.text(2)
                table.add(measure, f"{volume:g}", shown, self.ranks(volume, measure)[self.strategy].text(1))
        for volume, effect, p in zip(parts, effects, family_p(effects), strict=True):
            gain = _signed(effect.estimate, *effect.interval())
            table.add(f"final score − {BASELINE}", f"{volume:g}", gain, "–")
            table.add("p (sign-flip test, Holm)", f"{volume:g}", p_text(p), "–")
        sizes = np.array([[parse(name).slot_bytes] for name in self.standings], np.float64)
        table.add("memory (bytes per experience)", "all", f"{sizes[place, 0]:g}", f"{_ranks(-sizes)[place, 0]:g}")
        return table

    def _scores(self) -> FittedTable:
        own, baseline = self.standings[self.strategy], self.standings[BASELINE]
        headings = ("plant", "volume", "noise", "rank", "final μ_r [95 %]", f"gain over {BASELINE}", "collapsed")
        table = FittedTable(headings, ("plant",), headings[1:], title="Scores in each condition")
        means = np.array([standing.final.mean(axis=-1) for standing in self.standings.values()])
        ranks = _ranks(means)[list(self.standings).index(self.strategy)]
        for place, (plant, volume, noise) in enumerate(self.conditions):
            effect = paired([own.final[place]], [baseline.final[place]])
            difference = _signed(effect.estimate, *effect.interval())
            table.add(
                plant, f"{volume:g}", f"{noise:g}", f"{ranks[place]:g}", interval(own.final[place]).text(2),
                difference, str((own.final[place] < DEAD_LEVEL).sum()),
            )  # fmt: skip
        return table


def protocol(strategies: Sequence[str], folder: str = "") -> Study:
    """Return the study of the protocol for some strategies. User files are looked up in `folder` first."""
    return read_study("card", {"strategies": [*strategies], **({"folder": folder} if folder else {})})


def make_card(strategy: str, data: xr.Dataset, study: Study) -> Card:
    """Make the card of a strategy from the results of the protocol and the scores that come with the package."""
    conditions, stored = protocol_standings()
    return Card(strategy, conditions, stored | {strategy: standing(data, strategy, conditions)}, _time(study))


def standing(data: xr.Dataset, strategy: str, conditions: Sequence[Condition], learner: str = LEARNER) -> Standing:
    """Return the scores of a strategy with a learner from results of the protocol, or of a study like it."""
    whole = mu_r(data, data["reward"]).mean("episode")
    scores = []
    for score in (data["mu_final"], whole):
        here = [
            score.sel(plant=plant, learner=f"{learner}{VOLUME}{volume:g}", strategy=strategy, noise=noise)
            .max("frequency")
            .values
            for plant, volume, noise in conditions
        ]
        scores.append(np.nan_to_num(np.array(here, np.float64), nan=0.0))
    return Standing(*scores)


@functools.cache
def stored_standings(learner: str) -> tuple[list[Condition], dict[str, Standing]]:
    """Return the conditions, and the scores of the strategies with a learner, that come with the package.

    `learner` is one of `stored_learners`. Conditions of the protocol precede those on further plants.
    """
    stored: dict[str, Any] = _stored()["learners"][learner]
    standings = {
        name: Standing(*(np.array(scores[key], np.float64) for key in ("final", "whole")))
        for name, scores in stored["strategies"].items()
    }
    return [Condition(*each) for each in stored["conditions"]], standings


def stored_learners() -> list[str]:
    """Return the learners with stored scores, first that of the protocol."""
    return list(_stored()["learners"])


def protocol_standings() -> tuple[list[Condition], dict[str, Standing]]:
    """Return the conditions of the protocol, and the scores of the strategies that come with the package."""
    conditions, standings = stored_standings(LEARNER)
    count = int(_stored()["protocol"])
    cut = {name: Standing(each.final[:count], each.whole[:count]) for name, each in standings.items()}
    return conditions[:count], cut


@functools.cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(_STORED.read_text(encoding="utf-8"))
    return stored


def above_baseline(volume: float, learner: str) -> tuple[str, float, dict[str, tuple[Effect, float]]]:
    """Return the stored strategies whose mean final score at a replay volume is significantly above `BASELINE`'s.

    Returns:
        The learner of the stored scores, which is that of the protocol if there are none with `learner`. The stored
        replay volume whose ratio to `volume` is nearest to 1. For each strategy, the highest first, the difference of
        mean scores over paired seeds, and its p value with Holm's correction for all strategies.
    """
    name = learner.partition(":")[0]
    stored = name if name in stored_learners() else LEARNER
    conditions, standings = stored_standings(stored)
    parts = Card(BASELINE, conditions, standings, "").by_volume()
    nearest = min(parts, key=lambda each: abs(math.log(each / volume)))
    finals = {name: each.final[parts[nearest]].mean(axis=0) for name, each in standings.items()}
    baseline = finals.pop(BASELINE)
    effects = {name: paired([final], [baseline]) for name, final in finals.items()}
    tested = zip(effects, zip(effects.values(), family_p([*effects.values()]), strict=True), strict=True)
    above = [(name, each) for name, each in tested if each[0].estimate > 0 and each[1] < SIGNIFICANT]
    return stored, nearest, dict(sorted(above, key=lambda item: -item[1][0].estimate))


def _time(study: Study) -> str:
    """Describe the time of a strategy, relative to `BASELINE` on this machine."""
    own = study.cells()[0]
    seconds = [speed(cell).of(cell) for cell in (own, protocol([BASELINE]).cells()[0])]
    return (
        f"Time: {seconds[0] / seconds[1]:.2f} times that of {BASELINE} for a step with its updates, on this machine "
        "(no rank, because the times of other strategies are not stored)."
    )


def _mean_ranks(scores: Floats) -> Floats:
    """Return the ranks along the first axis (1 for the highest score), as means over the second axis."""
    ranks: Floats = _ranks(scores).mean(axis=1)
    return ranks


def _ranks(scores: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks: Floats = rankdata(-np.round(scores, 9), axis=0)  # rounding errors must not decide
    return ranks


def _signed(center: float, low: float, high: float) -> str:
    return f"{center:+.3f} [{low:+.3f}, {high:+.3f}]" if np.isfinite(low) else f"{center:+.3f}"
