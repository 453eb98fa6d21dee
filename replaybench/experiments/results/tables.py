"""From the dataset of a study to the tables that people read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import xarray as xr

from replaybench.baselines.references import no_score
from replaybench.data.quantities import decimals, fixed
from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.inspection.fitted_table import FittedTable
from replaybench.experiments.results.dataset import episode_metric, last_of, lengths_vary, runs_there, the_last
from replaybench.experiments.results.references import no_learning, reference_rows
from replaybench.experiments.results.statistics import Interval, interval


def score_tables(data: xr.Dataset) -> list[FittedTable]:
    """Return a table per plant of all cells that have results, each condition's references below its learners."""
    return [
        table for plant in data["plant"].values if (table := _score_table(data.sel(plant=plant), _labels(data))).rows
    ]


def _score_table(data: xr.Dataset, labels: dict[tuple[Any, Any], list[str]]) -> FittedTable:
    table, names, last = _empty_table(data), _names(data), last_of(data)
    late = data["greedy_episode"].values > data.sizes["episode"] - last
    steps = lengths_vary(data)
    rows: list[tuple[list[str], float, float, list[str]]] = []  # names, the two rewards, what stands behind them
    for rate, noise in itertools.product(data["frequency"].values, data["noise"].values):
        here = data.sel(frequency=rate, noise=noise)
        if not runs_there(here).any():
            continue
        where = [f"{float(rate):g}", f"{float(noise):g}"]
        for learner, strategy in labels:
            cell = here.sel(learner=learner, strategy=strategy)
            if not runs_there(cell).any():
                continue
            whole = np.isfinite(cell["reward"].values).all(axis=1)  # as for μ_final
            censored = int(cell["censored"])
            told = [
                *([_mean(cell["episode_steps"].values[whole, -last:], 0)] if steps else []),
                str(_interval(cell, "mu_final")),
                _mean(cell["mu_max_mean"].values),
                _mean(cell["rise_time_mean"].values, 0) + (f" ({censored} never)" if censored else ""),
                f"{int(cell['dead'])}/{int(cell['failed'])}",
            ]
            final, greedy = cell["reward"].values[whole, -last:], cell["reward_greedy"].values[whole][:, late]
            rows.append(([*where, *labels[learner, strategy]], _average(final), _average(greedy), told))
        for _, label, reward, mu in reference_rows(here):
            called = [*where, *[""] * (len(names) - 1), label]
            rows.append((called, reward, np.nan, [*[""] * steps, "" if np.isnan(mu) else f"{mu:.2f}", *[""] * 3]))
    digits = decimals(value for _, *rewards, _ in rows for value in rewards)
    for called, reward, greedy, told in rows:
        reference = len(told) and told[-1] == ""
        table.add(*called, _written(reward, digits), "" if reference else _written(greedy, digits), *told)
    return table


def noise_tables(data: xr.Dataset) -> list[FittedTable]:
    """Return a table per plant of the noise in replayed experiences, where it was measured (their table 6)."""
    tables: dict[str, FittedTable] = {}
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
            signals = [str(signal) for signal in present["signal"].values]
            headings = ("Hz", "noise", *_names(data), *signals)
            tables[plant] = FittedTable(headings, _names(data), ("Hz", "noise", *signals), title=title)
        scale = float(noise) * np.sqrt(2 / np.pi)
        found = [interval(column / scale if scale else column) for column in present.values.T]
        shown = [f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in found]
        label = labels[learner, strategy]
        tables[plant].add(f"{float(frequency):g}", f"{float(noise):g}", *label, *shown)
    return list(tables.values())


def _average(values: Any) -> float:
    """Return the mean of what there is, NaN of nothing."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else np.nan


def _written(value: float, digits: int) -> str:
    return "–" if np.isnan(value) else fixed(value, digits)


def _mean(values: Any, digits: int = 2) -> str:
    """Write the mean of what there is."""
    return _written(_average(values), digits)


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


def _empty_table(data: xr.Dataset) -> FittedTable:
    """Return the table of one plant without its rows."""
    scale = "μ_r: 0 = random, 1 = dynamic programming"
    if not np.isfinite(data["reference_dp"]).any():
        scale = "no μ_r, because there is no dynamic programming to compare with"
    over = the_last(data).removeprefix("the ")
    headline, causes = no_learning(data)
    headline += "; " * bool(headline)
    causes = (
        ["likely causes, in order:", *(f"{place}. {cause}" for place, cause in enumerate(causes, 1))] if causes else []
    )
    names = _names(data)
    first = ("Hz", "noise", *names, "return" if episode_metric(data) == "return" else "reward", "greedy")
    steps = ["steps"] if lengths_vary(data) else []
    headings = (*first, *steps, f"μ_final ({over})", "μ_max", "rise 0.8", "dead/failed")
    return FittedTable(
        headings,
        names=names,
        right=[heading for heading in headings if heading not in names],
        droppable=("rise 0.8", "dead/failed", "μ_max", *steps, "greedy"),
        title=f"{data['plant'].item()}: {headline}mean over seeds, μ_final [95 %] ({scale})",
        caption="\n".join([*causes, *reference_notes(data)]),
    )


def _labels(data: xr.Dataset) -> dict[tuple[Any, Any], list[str]]:
    """Return what rows are called, by learner and strategy: as `_names` are."""
    learners, strategies = (shortened(data[axis].values.tolist()) for axis in ("learner", "strategy"))
    several = len(learners) > 1
    names = itertools.product(learners, strategies)
    return {(i, j): [learners[i], strategies[j]] if several else [strategies[j]] for i, j in names}


def _names(data: xr.Dataset) -> list[str]:
    """Return the headings of what rows are called; the learner is named where there are several."""
    return ["learner", "strategy"] if data.sizes["learner"] > 1 else ["strategy"]


def _points(data: xr.Dataset) -> list[tuple[Any, ...]]:
    axes = ("plant", "frequency", "noise", "learner", "strategy")
    grids = np.meshgrid(*(np.arange(data.sizes[axis]) for axis in axes), indexing="ij")
    places = zip(*(grid.ravel() for grid in grids), strict=True)
    return [tuple(data[axis].values[i] for axis, i in zip(axes, place, strict=True)) for place in places]


def _interval(cell: xr.Dataset, name: str) -> Interval:
    mean, low, high = (float(cell[f"{name}_{bound}"]) for bound in ("mean", "low", "high"))
    return Interval(mean, low, high, degenerate=low == high)
