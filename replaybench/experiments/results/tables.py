"""From the dataset of a study to the tables that people read."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import xarray as xr
from rich import box
from rich.markup import escape
from rich.table import Table

from replaybench.baselines.references import no_score
from replaybench.data.user_file import shortened
from replaybench.experiments.results.dataset import counted_in, episode_metric, last_of, lengths_vary, mu_r
from replaybench.experiments.results.statistics import Interval, interval

NOISE_AWARE: Final = {
    "reference_dp_averaged": "DP, values averaged over the noise",
    "reference_dp_observer": "DP, on a model observer",
}
"""References that know the noise, under which μ_r = 1 is no upper bound."""


def score_tables(data: xr.Dataset) -> list[Table]:
    """Return a table per plant of all cells that have results."""
    tables: dict[str, Table] = {}
    labels = _labels(data)
    for plant, frequency, noise, learner, strategy in _points(data):
        cell = data.sel(plant=plant, frequency=frequency, noise=noise, learner=learner, strategy=strategy)
        if np.isnan(cell["reward"].values).all():
            continue
        mine = data.sel(plant=plant)
        if plant not in tables:
            tables[plant] = _empty_table(mine)
        last = last_of(mine)
        final = cell["reward"].values[:, -last:]
        greedy = cell["reward_greedy"].values[:, data["greedy_episode"].values > data.sizes["episode"] - last]
        censored = int(cell["censored"])
        tables[plant].add_row(
            f"{float(frequency):g}",
            f"{float(noise):g}",
            labels[learner, strategy],
            _mean(final),
            _mean(greedy),
            *([_mean(cell["episode_steps"].values[:, -last:], 0)] if lengths_vary(mine) else []),
            str(_interval(cell, "mu_final")),
            _mean(cell["mu_max_mean"].values),
            _mean(cell["rise_time_mean"].values, 0) + (f" ({censored} never)" if censored else ""),
            f"{int(cell['dead'])}/{int(cell['failed'])}",
        )
    for plant, table in tables.items():
        _add_noise_aware(table, data.sel(plant=plant))
    return list(tables.values())


def _add_noise_aware(table: Table, data: xr.Dataset) -> None:
    """Add, below the learners of one plant, the references that know the noise: their greedy reward and its μ_r."""
    for rate, noise in itertools.product(data["frequency"].values, data["noise"].values):
        here = data.sel(frequency=rate, noise=noise)
        for name, label in NOISE_AWARE.items():
            if name in here and np.isfinite(here[name]):
                steps = [""] if lengths_vary(data) else []
                scores = _mean(here[name].values), *steps, _mean(mu_r(here, here[name]).values)
                table.add_row(f"{rate:g}", f"{noise:g}", label, "", *scores)


def noise_tables(data: xr.Dataset) -> list[Table]:
    """Return a table per plant of the noise in replayed experiences, where it was measured (their table 6)."""
    tables: dict[str, Table] = {}
    if "replayed_noise" not in data:
        return []
    labels = _labels(data)
    for plant, frequency, noise, learner, strategy in _points(data):
        cell = data["replayed_noise"].sel(
            plant=plant, frequency=frequency, noise=noise, learner=learner, strategy=strategy
        )
        present = cell.dropna("seed", how="all").dropna("signal", how="all")
        if not present.size:
            continue
        if plant not in tables:
            title = f"{plant}: mean absolute noise in replayed experiences, in units of σ · E|N(0, 1)| [95 %]"
            tables[plant] = Table(title=title, box=box.SIMPLE_HEAD)
            for heading in ("Hz", "noise", "strategy", *present["signal"].values):
                named = heading == "strategy"
                tables[plant].add_column(
                    str(heading), justify="left" if named else "right", no_wrap=not named, overflow="fold"
                )
        scale = float(noise) * np.sqrt(2 / np.pi)
        found = [interval(column / scale if scale else column) for column in present.values.T]
        shown = [f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in found]
        label = labels[learner, strategy]
        tables[plant].add_row(f"{float(frequency):g}", f"{float(noise):g}", label, *shown)
    return list(tables.values())


def _mean(values: Any, digits: int = 2) -> str:
    """Write the mean of what there is."""
    there = values[~np.isnan(values)]
    return f"{there.mean():.{digits}f}" if there.size else "–"


def reference_notes(data: xr.Dataset) -> list[str]:
    """Say, a line each, on which grids one plant's dynamic programming was solved, and where it gives no μ_r.

    Args:
        data: dataset of one plant.
    """
    notes = []
    if "reference_grid" in data:
        for rate in data["frequency"].values:
            grid = str(data["reference_grid"].sel(frequency=rate).item())
            notes += [f"dynamic programming at {rate:g} Hz: {grid}"] if grid else []
    places = data[["reference_dp", "reference_random"]].stack(place=("frequency", "noise"))
    for rate, noise in places["place"].values:
        here = data.sel(frequency=rate, noise=noise)
        ends = float(here["reference_dp"]), float(here["reference_random"])
        if note := no_score(*ends):
            notes.append(f"{rate:g} Hz, noise {noise:g}: {note}")
    return notes


def _empty_table(data: xr.Dataset) -> Table:
    """Return the table of one plant without its rows."""
    scale = "μ_r: 0 = random, 1 = dynamic programming"
    if not np.isfinite(data["reference_dp"]).any():
        scale = "no μ_r, because there is no dynamic programming to compare with"
    title, notes = f"{data['plant'].item()}: mean over seeds ({scale})", "\n".join(reference_notes(data))
    table = Table(title=title, caption=notes or None, caption_justify="left", box=box.SIMPLE_HEAD)
    last, count = last_of(data), counted_in(data)
    over = f"all {last}" if last == data.sizes["episode"] else f"last {last}"
    scores = (f"μ_final ({over} {count}) [95 %]", "μ_max", "rise 0.8", "dead/failed")
    first = ("Hz", "noise", "strategy", "return" if episode_metric(data) == "return" else "reward", "greedy")
    for heading in (*first, *(["steps"] if lengths_vary(data) else []), *scores):
        # A long strategy folds, and so does a long heading; numbers are never cut.
        named = heading == "strategy"
        table.add_column(_broken(heading), justify="left" if named else "right", no_wrap=not named, overflow="fold")
    return table


def _broken(heading: str) -> str:
    """Return a long heading on several lines, broken where brackets open and close."""
    return heading.replace(" (", "\n(").replace(") ", ")\n")


def _labels(data: xr.Dataset) -> dict[tuple[Any, Any], str]:
    """Return what rows are called, by learner and strategy; the learner is named where there are several."""
    learners, strategies = (shortened(data[axis].values.tolist()) for axis in ("learner", "strategy"))
    names = itertools.product(learners, strategies)
    return {(i, j): escape(f"{learners[i]} {strategies[j]}" if len(learners) > 1 else strategies[j]) for i, j in names}


def _points(data: xr.Dataset) -> list[tuple[Any, ...]]:
    axes = ("plant", "frequency", "noise", "learner", "strategy")
    grids = np.meshgrid(*(np.arange(data.sizes[axis]) for axis in axes), indexing="ij")
    places = zip(*(grid.ravel() for grid in grids), strict=True)
    return [tuple(data[axis].values[i] for axis, i in zip(axes, place, strict=True)) for place in places]


def _interval(cell: xr.Dataset, name: str) -> Interval:
    mean, low, high = (float(cell[f"{name}_{bound}"]) for bound in ("mean", "low", "high"))
    return Interval(mean, low, high, degenerate=low == high)
