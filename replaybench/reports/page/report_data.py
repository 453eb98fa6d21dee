"""Data of a report, namely the results of a sweep, the other files of the run folder, and rankings.

A series is a learner with a strategy. Series are compared seed by seed, because the cells of a study share their seeds.
The paired sign-flip test decides significance, as in the tables of a sweep. Failed runs have no score. If one of two
runs with the same seed failed, their difference is left out. Python files that a run names are not imported.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from replaybench.data.documents import read_json, read_toml
from replaybench.data.run_folder import RunFolder
from replaybench.experiments.comparison import (
    Axis,
    Comparison,
    ReferenceRow,
    first_comparison,
    reference_rows,
    scaled,
    unbeaten,
)
from replaybench.experiments.dataset import mu_r, runs_there, the_last, without_rewards
from replaybench.experiments.effects import Effect
from replaybench.experiments.results_file import read_results
from replaybench.experiments.statistics import Interval
from replaybench.replay.storage.replayed import REPLAYED
from replaybench.reports.figures.scores import Score, read_score
from replaybench.reports.figures.style import Series, all_series, condition, plant_name
from replaybench.runtime.arrays import Bools, Floats


class Standing(NamedTuple):
    """The place of a series, a learner with a strategy, in a ranking.

    Attributes:
        score: Mean score over `seeds` seeds, with its 95 % interval.
        versus: Comparison with the study's baseline; None if there is none.
    """

    series: Series
    score: Interval
    seeds: int
    versus: Comparison | None


def interval_of(effect: Effect) -> Interval:
    """Return a difference from the baseline with its 95 % interval."""
    low, high = effect.interval()
    if not np.isfinite(low):
        low = high = effect.estimate
    return Interval(effect.estimate, low, high, low == high)


class Point(NamedTuple):
    """A plant, noise level and control rate, as indices on the axes of a study."""

    plant: int
    noise: int
    frequency: int


@dataclass(frozen=True)
class ReportData:
    """The results of a sweep and the other files of its run folder.

    Attributes:
        series: Pairs of learner and strategy that have results, in the order of the study.
        folder: Run folder; None if only a results file is given.
        study: Text of the study file; may be empty.
        origin: Contents of `provenance.json`; may be empty.
        missing: Sentences about missing files, and about what the report cannot show without them.
        there: Whether a run has results, failed or not; shape `[plant, noise, frequency, learner, strategy, seed]`.
        rewards: Rewards of training episodes; the shape of `there` with a further axis of episodes.
        scores: `rewards` as μ_r; NaN where μ_r is not defined.
    """

    name: str
    data: xr.Dataset
    series: tuple[Series, ...]
    folder: RunFolder | None
    study: str
    origin: dict[str, Any]
    missing: tuple[str, ...]
    there: Bools
    rewards: Floats
    scores: Floats
    _scores: dict[tuple[int, Series, str], Score] = field(default_factory=dict)

    @cached_property
    def plants(self) -> list[str]:
        """Names of the plants."""
        return [str(name) for name in self.data["plant"].values]

    @cached_property
    def of_plants(self) -> list[xr.Dataset]:
        """Results of each plant, in the order of `plants`."""
        return [self.data.isel(plant=plant) for plant in range(len(self.plants))]

    @cached_property
    def points(self) -> list[Point]:
        """Combinations of plant, noise level and control rate that have results, in the order of the study."""
        return [Point(*place) for place in np.argwhere(self.there.any(axis=(3, 4, 5))).tolist()]

    @cached_property
    def comparisons(self) -> list[tuple[list[Comparison], str, Axis] | None]:
        """Comparisons of each plant with a baseline, which tables and figures of the study show, too."""
        return [first_comparison(data) for data in self.of_plants]

    @cached_property
    def standings(self) -> dict[Point, list[Standing]]:
        """Ranking of the learners and strategies for each plant, noise level and control rate, best first.

        Series without a finite score are left out.
        """
        noises, rates = (self.data[axis].values for axis in ("noise", "frequency"))
        rows = {
            (plant, row.learner, row.strategy, row.noise, row.frequency): row
            for plant, found in enumerate(self.comparisons)
            for row in (found[0] if found else ())
        }

        def ranked(point: Point) -> list[Standing]:
            scores = [(one, self.final(point, one)) for one in self.series]
            scored = [(one, score) for one, score in scores if np.isfinite(score).any()]
            where = float(noises[point.noise]), float(rates[point.frequency])
            return [
                Standing(
                    one,
                    self.mean_final(point, one, self.normalised(point)),
                    int(np.isfinite(score).sum()),
                    rows.get((point.plant, one.learner, one.strategy, *where)),
                )
                for one, score in sorted(scored, key=lambda pair: -float(np.nanmean(pair[1])))
            ]

        return {point: ranked(point) for point in self.points}

    @cached_property
    def _marks(self) -> list[tuple[Bools, Bools]]:
        return [(scaled(data).transpose("noise", "frequency").values, unbeaten(data)) for data in self.of_plants]

    @cached_property
    def _places(self) -> dict[Series, tuple[int, int]]:
        learners, strategies = (self.data[axis].values.tolist() for axis in ("learner", "strategy"))
        return {one: (learners.index(one.learner), strategies.index(one.strategy)) for one in self.series}

    @cached_property
    def _counts(self) -> dict[str, Floats]:
        order = ("plant", "noise", "frequency", "learner", "strategy")  # arrays: xarray's lookup by label is slow
        names = ("failed", "dead", "censored", "rise_time_mean")
        means = {name: self.data[name].mean(("seed", "greedy_episode")) for name in self.replayed}
        own = {name: self.data[name] for name in names} | means
        return {name: array.transpose(*order).values for name, array in own.items()}

    @property
    def replayed(self) -> list[str]:
        """The statistics of replayed experiences that the results contain."""
        return [name for name in REPLAYED if name in self.data and self.data[name].notnull().any()]

    def places(self, series: Series, point: Point | None = None) -> dict[str, int]:
        """Return the index on each axis of the study of a learner, a strategy and the values of `point`, if given."""
        learner, strategy = self._places[series]
        return {**(point._asdict() if point else {}), "learner": learner, "strategy": strategy}

    def condition(self, point: Point) -> str:
        """Return noise level and control rate as one string, for example "noise 0.02, 50 Hz"."""
        return condition(self.data["noise"].values[point.noise], self.data["frequency"].values[point.frequency])

    def numbers(self, point: Point) -> list[str]:
        """Return noise level and control rate as two strings, without unit."""
        return [f"{self.data[axis].values[getattr(point, axis)]:g}" for axis in ("noise", "frequency")]

    def title(self, point: Point, series: Series | None = None) -> str:
        """Name plant, noise level, control rate and, if given, learner and strategy."""
        label = f", {series.label}" if series else ""
        return f"{plant_name(self.plants[point.plant])}, {self.condition(point)}{label}"

    @property
    def late(self) -> str:
        """Text that names the episodes of a final score, for example "the last 100 training episodes"."""
        return " or ".join(dict.fromkeys(the_last(data, "training") for data in self.of_plants))

    def runs(self, point: Point, series: Series) -> Floats:
        """Return the rewards `[runs, episodes]` of one learner with a strategy at one noise level and control rate.

        Rewards are normalised to μ_r if μ_r is defined. Runs without results are left out.
        """
        place = (*point, *self._places[series])
        rewards: Floats = (self.scores if self.normalised(point) else self.rewards)[place][self.there[place]]
        return rewards

    def started(self, point: Point, series: Series) -> int:
        """Return the number of runs, failed ones included, of one learner with a strategy under one condition."""
        return int(self.there[(*point, *self._places[series])].sum())

    def normalised(self, point: Point) -> bool:
        """Return whether the score μ_r is defined under a condition."""
        return bool(self._marks[point.plant][0][point.noise, point.frequency])

    def unbeaten(self, point: Point) -> bool:
        """Return whether no learner beats random control for a plant, noise level and control rate."""
        return bool(self._marks[point.plant][1][point.noise, point.frequency])

    def references(self, point: Point) -> list[ReferenceRow]:
        """Return the reference controllers with known rewards at a noise and control rate."""
        return reference_rows(self.data.isel(point._asdict()))

    def levels(self, point: Point) -> dict[str, float]:
        """Return the rewards of random control and other references by name, as μ_r if defined."""
        return {row.name: row.mu if self.normalised(point) else row.reward for row in self.references(point)}

    def _score(self, point: Point, series: Series, normalised: bool) -> Score:
        name = "mu_final" if normalised else "raw_final"
        key = point.plant, series, name
        if key not in self._scores:
            self._scores[key] = read_score(self.of_plants[point.plant], series, name)
        return self._scores[key]

    def final(self, point: Point, series: Series, raw: bool = False) -> Floats:
        """Return each seed's final score `[seeds]`, for one learner with a strategy under one condition.

        The score is μ_r, or the reward if μ_r is not defined or if `raw`. The score of a seed is NaN if the run failed
        or has no results.
        """
        runs = self._score(point, series, self.normalised(point) and not raw).runs
        scores: Floats = runs[point.noise, point.frequency]
        return scores

    def mean_final(self, point: Point, series: Series, normalised: bool) -> Interval:
        """Return mean final score and interval over seeds, as μ_r if `normalised`, or as reward."""
        return self._score(point, series, normalised).at(point.noise, point.frequency)

    def value(self, name: str, point: Point, series: Series) -> float:
        """Return a count of runs or a mean over runs, of a learner with a strategy under one condition.

        The `name` is "failed", "dead" (collapsed), "censored" (never reached μ_r = 0.8), "rise_time_mean" (mean number
        of episodes until μ_r ≥ 0.8), or one of `replayed`.
        """
        return float(self._counts[name][(*point, *self._places[series])])

    def count(self, name: str, point: Point, series: Series) -> int:
        """Return the number of runs that the quantity `name` counts at a point, or 0 if there is no value."""
        return int(np.nan_to_num(self.value(name, point, series)))


def read_report_data(path: Path) -> ReportData:
    """Read the data of a report from a run folder or a results file."""
    folder = RunFolder(path) if path.is_dir() else RunFolder(path.parent) if path.name == "results.nc" else None
    results = path / "results.nc" if path.is_dir() else path
    data = read_results(path).sortby(["noise", "frequency"])
    axes = ("plant", "noise", "frequency", "learner", "strategy", "seed", "episode")
    rewards = data["reward"].transpose(*axes)
    if not rewards.notnull().any():
        raise without_rewards(results, data, "a report needs")
    missing = []
    study, origin = "", dict[str, Any]()
    if folder is not None and folder.study.is_file():
        read_toml(folder.study)  # raises an error if the file is damaged
        study = folder.study.read_text(encoding="utf-8")
    else:
        missing.append("There is no study file next to the results, so settings are not listed.")
    if folder is not None and folder.provenance.is_file():
        origin = read_json(folder.provenance)
    else:
        missing.append("There is no provenance.json, so versions of libraries are not known.")
    name = origin.get("study")
    name = name if isinstance(name, str) and name else results.resolve().parent.name
    there, scores = runs_there(data).transpose(*axes[:-1]), mu_r(data, data["reward"]).transpose(*axes)
    return ReportData(
        name, data, tuple(all_series(data)), folder, study, origin, tuple(missing),
        there.values, rewards.values, scores.values,
    )  # fmt: skip
