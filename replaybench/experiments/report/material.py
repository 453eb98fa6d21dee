"""What a report is made of: the results of a run, and whatever else its folder holds.

Everything is read, nothing is run: no Python file that a run names is imported here. What is missing is said, in words
that stand in the report, and what is there is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.formats.documents import read_json, read_toml
from replaybench.data.formats.run_folder import RunFolder, runs_within
from replaybench.experiments.figures.style import Series, all_series
from replaybench.experiments.results.dataset import AXES, last_of, mu_r, runs_there, the_last, without_rewards
from replaybench.experiments.results.references import ReferenceRow, reference_rows, unbeaten
from replaybench.experiments.results.results_file import read_results
from replaybench.experiments.results.statistics import Interval, interval

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """A condition of a study, as places on its axes."""

    plant: int
    noise: int
    frequency: int


@dataclass(frozen=True)
class Material:
    """A run, read.

    Attributes:
        name: of the study.
        data: its results.
        series: pairs of learner and strategy that have results, in the order of the study.
        folder: the run folder; None where there is only a results file.
        study: text of the study file, empty where there is none.
        origin: what `provenance.json` says, empty where there is none.
        missing: what the report cannot show for lack of files, a sentence each.
        there: which runs there are, failed ones included, `[plant, noise, frequency, learner, strategy, seed]`.
        rewards: what counts of each training episode, `[plant, noise, frequency, learner, strategy, seed, episode]`.
        scores: the same as μ_r, NaN where the references do not allow it.
    """

    name: str
    data: xr.Dataset
    series: tuple[Series, ...]
    folder: RunFolder | None
    study: str
    origin: dict[str, Any]
    missing: tuple[str, ...]
    there: NDArray[np.bool_]
    rewards: Floats
    scores: Floats

    @property
    def plants(self) -> list[str]:
        """Return the plants' names."""
        return [str(name) for name in self.data["plant"].values]

    def points(self) -> Iterator[Point]:
        """Yield the conditions that have results, in the order of the study."""
        present = self.there.any(axis=(3, 4, 5))
        yield from (Point(*map(int, place)) for place in np.argwhere(present))

    def place(self, series: Series) -> tuple[int, int]:
        """Return the places of a series' learner and strategy on their axes."""
        return self._places[series]

    @cached_property
    def _places(self) -> dict[Series, tuple[int, int]]:
        learners, strategies = (self.data[axis].values.tolist() for axis in ("learner", "strategy"))
        return {one: (learners.index(one.learner), strategies.index(one.strategy)) for one in self.series}

    @cached_property
    def _values(self) -> dict[str, Floats]:
        """What each cell has a number of, as arrays on the axes of cells; labels of a dataset are slow to ask."""
        axes = ("plant", "noise", "frequency", "learner", "strategy")
        return {str(name): one.transpose(*axes).values for name, one in self.data.items() if set(one.dims) == set(axes)}

    @cached_property
    def _scaled(self) -> NDArray[np.bool_]:
        best = mu_r(self.data, self.data["reference_dp"]).transpose("plant", "noise", "frequency")
        found: NDArray[np.bool_] = np.isfinite(best.values)
        return found

    @cached_property
    def _last(self) -> list[int]:
        """How many of each plant's last training episodes make the final score."""
        return [last_of(self.data.isel(plant=plant)) for plant in range(len(self.plants))]

    @property
    def late(self) -> str:
        """Say what final scores are the mean of; plants that are counted in rounds have shorter ends."""
        plants = [self.data.isel(plant=plant) for plant in range(len(self.plants))]
        return " or ".join(dict.fromkeys(the_last(mine, "training") for mine in plants))

    def runs(self, point: Point, series: Series, normalised: bool) -> Floats:
        """Return what the training episodes of the runs that are there came to, `[runs, episodes]`."""
        source = self.scores if normalised else self.rewards
        place = (*point, *self.place(series))
        found: Floats = source[place][self.there[place]]
        return found

    @cached_property
    def _unbeaten(self) -> list[NDArray[np.bool_]]:
        return [unbeaten(self.data.isel(plant=plant)) for plant in range(len(self.plants))]

    def unbeaten(self, point: Point) -> bool:
        """Tell whether no learner beats random control at a condition."""
        return bool(self._unbeaten[point.plant][point.noise, point.frequency])

    def references(self, point: Point) -> list[ReferenceRow]:
        """Return the references that are known at a condition."""
        return reference_rows(self.data.isel(point._asdict()))

    def levels(self, point: Point) -> dict[str, float]:
        """Return the references that are known at a condition by name, on its scale."""
        return {row.name: row.mu if self.normalised(point) else row.reward for row in self.references(point)}

    def normalised(self, point: Point) -> bool:
        """Tell whether μ_r is defined at a condition, where some run may have a score."""
        return bool(self._scaled[point])

    def final(self, point: Point, series: Series, raw: bool = False) -> Floats:
        """Return each seed's final score `[seed]`: μ_r, or raw rewards where that is not defined, or asked for.

        NaN where a run failed or is not there.
        """
        source = self.scores if self.normalised(point) and not raw else self.rewards
        curves = source[(*point, *self.place(series))]
        whole = np.isfinite(curves).all(axis=1)
        late = np.where(whole[:, None], curves, 0.0)[:, -self._last[point.plant] :]
        return np.where(whole, late.mean(axis=1), np.nan)

    def mean_final(self, point: Point, series: Series, normalised: bool) -> Interval:
        """Return the mean over seeds of the final score with its interval; that of μ_r is what the results hold."""
        if not normalised:
            return interval(self.final(point, series, raw=True))
        mean, low, high = (self.value(f"mu_final_{bound}", point, series) for bound in ("mean", "low", "high"))
        return Interval(mean, low, high, degenerate=low == high)

    def count(self, name: str, point: Point, series: Series) -> int:
        """Return how many runs are `failed`, `dead` or `censored`."""
        value = self.value(name, point, series)
        return 0 if np.isnan(value) else int(value)

    def value(self, name: str, point: Point, series: Series) -> float:
        """Return a number of the dataset that each cell has."""
        return float(self._values[name][(*point, *self.place(series))])

    def started(self, point: Point, series: Series) -> int:
        """Return how many runs are there, failed ones included."""
        return len(self.runs(point, series, False))

    def condition(self, point: Point) -> str:
        """Say at which noise and control rate."""
        return (
            f"noise {self.data['noise'].values[point.noise]:g}, {self.data['frequency'].values[point.frequency]:g} Hz"
        )


def read_material(path: Path) -> Material:
    """Read a run folder or a results file.

    Raises:
        UserError: it is neither, holds no results yet, or is damaged.
    """
    folder = RunFolder(path) if path.is_dir() else RunFolder(path.parent) if path.name == "results.nc" else None
    results = path if path.is_file() else path / "results.nc"
    if path.is_dir() and not results.is_file():
        wanted = f"{path} holds no results.nc; run `replaybench sweep` into it first, or name a results file"
        raise UserError(runs_within(path) or wanted)
    data = read_results(results).sortby(["noise", "frequency"])
    axes = ("plant", "noise", "frequency", "learner", "strategy", "seed", "episode")
    rewards = data["reward"].transpose(*axes)
    if not rewards.notnull().any():
        raise without_rewards(results, data, "a report needs")
    there, missing = runs_there(data).transpose(*AXES, "seed").values, []
    study, origin = "", dict[str, Any]()
    if folder is not None and folder.study.is_file():
        read_toml(folder.study)  # damage is one line
        study = folder.study.read_text(encoding="utf-8")
    else:
        missing.append("The study file is not beside the results, so settings are not listed.")
    if folder is not None and folder.provenance.is_file():
        origin = read_json(folder.provenance)
    else:
        missing.append("There is no provenance.json, so versions of libraries are not known.")
    name = origin.get("study")
    return Material(
        name=name if isinstance(name, str) and name else results.resolve().parent.name,
        data=data,
        series=tuple(all_series(data)),
        folder=folder,
        study=study,
        origin=origin,
        missing=tuple(missing),
        there=there.transpose(0, 3, 4, 1, 2, 5),
        rewards=rewards.values,
        scores=mu_r(data, data["reward"]).transpose(*axes).values,
    )
