"""Tables of the scores of a study, and of the noise in replayed experiences."""

import itertools
from typing import Any, Final

import numpy as np
import xarray as xr

from replaybench.baselines.references import no_score
from replaybench.experiments.comparison import (
    RIVAL,
    against_rivals,
    no_learning,
    reference_label,
    reference_rows,
    rival_measures,
)
from replaybench.experiments.dataset import AXES, episode_metric, last_of, lengths_vary, runs_there, the_last
from replaybench.experiments.statistics import Interval, interval
from replaybench.experiments.text_table import FittedTable
from replaybench.replay.storage.replayed import REPLAYED
from replaybench.runtime.quantities import decimals, fixed
from replaybench.runtime.user_file import shortened


def score_tables(data: xr.Dataset) -> list[FittedTable]:
    """Return one table of scores per plant, with the scores of reference controllers."""
    return [
        table for plant in data["plant"].values if (table := _score_table(data.sel(plant=plant), _labels(data))).rows
    ]


def _score_table(data: xr.Dataset, labels: dict[tuple[Any, Any], list[str]]) -> FittedTable:
    table, names, last = _empty_table(data), _names(data), last_of(data)
    late = data["greedy_episode"].values > data.sizes["episode"] - last
    steps = lengths_vary(data)
    rows: list[tuple[list[str], float, float | None, list[str]]] = []  # names, reward, greedy reward, other columns
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
            mean, low, high = (float(cell[f"mu_final_{bound}"]) for bound in ("mean", "low", "high"))
            columns = [
                *([_mean(cell["episode_steps"].values[whole, -last:], 0)] if steps else []),
                str(Interval(mean, low, high, degenerate=low == high)),
                _mean(cell["mu_max_mean"].values),
                _mean(cell["rise_time_mean"].values, 0) + (f" ({censored} never)" if censored else ""),
                f"{int(cell['dead'])}/{int(cell['failed'])}",
            ]
            final, greedy = cell["reward"].values[whole, -last:], cell["reward_greedy"].values[whole][:, late]
            rows.append(([*where, *labels[learner, strategy]], _average(final), _average(greedy), columns))
        for _, label, reward, mu in reference_rows(here):
            leading = [*where, *[""] * (len(names) - 1), label]
            rows.append((leading, reward, None, [*[""] * steps, "" if np.isnan(mu) else f"{mu:.2f}", *[""] * 3]))
    digits = decimals(value for _, *rewards, _ in rows for value in rewards if value is not None)
    for leading, reward, greedy_reward, columns in rows:
        greedy_text = "" if greedy_reward is None else _written(greedy_reward, digits)
        table.add(*leading, _written(reward, digits), greedy_text, *columns)
    return table


_MEASURES: Final = {
    "action variation": "|Δa|/s", "sign reversals": "±/s", "saturated steps": "sat.", "steps outside limits": "out",
    "mean absolute error": "|e|", "overshoot": "over", "settling time": "2 %", "steady-state error": "end",
}  # fmt: skip
_MEASURED: Final = (
    "|Δa|/s: variation of commands; ±/s: changes of their sign; sat.: share of saturated steps; out: share of steps "
    "outside limits; |e|: mean error; over: overshoot; 2 %: settling time [s]; end: steady-state error"
)


def measure_tables(data: xr.Dataset) -> list[FittedTable]:
    """Return one table per plant with signals and responses, in training and greedy episodes and of rivals."""
    tables: list[FittedTable] = []
    labels, axes = _labels(data), ("frequency", "noise", "learner", "strategy")
    for plant in data["plant"].values if "measures" in data else ():
        known = data[["measures", "measures_greedy"]].sel(plant=plant).to_array().notnull()
        names = [name for name in data["measure"].values.tolist() if known.sel(measure=name).any()]
        rows = []
        for frequency, noise in itertools.product(*(data[axis].values for axis in axes[:2])):
            there = data.sel(plant=plant, frequency=frequency, noise=noise)
            where = f"{float(frequency):g}", f"{float(noise):g}"
            for learner, strategy in labels:
                here = there.sel(learner=learner, strategy=strategy)
                for episodes, variable in (("training", "measures"), ("greedy", "measures_greedy")):
                    if runs_there(here).any():
                        means = [_average(here[variable].sel(measure=name).values) for name in names]
                        rows.append([*where, *labels[learner, strategy], episodes, *map(_short, means)])
            for label, values in rival_measures(there, names):
                rows.append([*where, *[""] * (len(_names(data)) - 1), label, "", *map(_short, values)])
        if names and rows:
            headings = ("Hz", "noise", *_names(data), "episodes", *(_MEASURES.get(name, name) for name in names))
            title = f"{plant}: signals and responses, mean over seeds, {the_last(data.sel(plant=plant))}"
            right = [heading for heading in headings if heading not in (*_names(data), "episodes")]
            tables.append(FittedTable(headings, _names(data), right, title=title, caption=_MEASURED))
            for row in rows:
                tables[-1].add(*row)
    return tables


def noise_tables(data: xr.Dataset) -> list[FittedTable]:
    """Return one table per plant that lists the noise in replayed experiences (de Bruin et al., 2018, table 6)."""
    tables: dict[str, FittedTable] = {}
    if "replayed_noise" not in data:
        return []
    labels, axes = _labels(data), ("plant", "frequency", "noise", "learner", "strategy")
    for place in itertools.product(*(data[axis].values for axis in axes)):
        plant, frequency, noise, learner, strategy = place
        cell = data["replayed_noise"].sel(dict(zip(axes, place, strict=True)))
        present = cell.dropna("seed", how="all").dropna("signal", how="all")
        if not present.size:
            continue
        if plant not in tables:
            title = f"{plant}: mean absolute noise in replayed experiences, in units of σ · E|N(0, 1)| [95 %]"
            signals = [str(signal) for signal in present["signal"].values]
            headings = ("Hz", "noise", *_names(data), *signals)
            tables[plant] = FittedTable(headings, _names(data), ("Hz", "noise", *signals), title=title)
        scale = float(noise) * np.sqrt(2 / np.pi)
        intervals = [interval(column / scale if scale else column) for column in present.values.T]
        shown = [f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in intervals]
        tables[plant].add(f"{float(frequency):g}", f"{float(noise):g}", *labels[learner, strategy], *shown)
    return list(tables.values())


def replay_tables(data: xr.Dataset) -> list[FittedTable]:
    """Return one table per plant that lists recency and entropy of the replayed experiences, as means over runs."""
    tables: dict[str, FittedTable] = {}
    labels, axes = _labels(data), ("plant", "frequency", "noise", "learner", "strategy")
    for place in itertools.product(*(data[axis].values for axis in axes)) if set(REPLAYED) <= set(data) else ():
        plant, frequency, noise, learner, strategy = place
        cell = data[list(REPLAYED)].sel(dict(zip(axes, place, strict=True)))
        if not cell["recency"].notnull().any():
            continue
        if plant not in tables:
            title = f"{plant}: replayed experiences (uniform: recency 0.5, entropy 1)"
            tables[plant] = FittedTable(
                ("Hz", "noise", *_names(data), *REPLAYED), _names(data), ("Hz", "noise", *REPLAYED), title=title
            )
        shown = [_mean(cell[name].values, 3) for name in REPLAYED]
        tables[plant].add(f"{float(frequency):g}", f"{float(noise):g}", *labels[learner, strategy], *shown)
    return list(tables.values())


def _average(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


def _short(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3g}"


def _written(value: float, digits: int) -> str:
    return "–" if np.isnan(value) else fixed(value, digits)


def _mean(values: Any, digits: int = 2) -> str:
    return _written(_average(values), digits)


def _reference_notes(data: xr.Dataset) -> list[str]:
    notes = []
    for rate in data["frequency"].values:
        grid = str(data["reference_grid"].sel(frequency=rate).item())
        notes += [f"dynamic programming at {rate:g} Hz: {grid}"] if grid else []
    for rate, noise in itertools.product(data["frequency"].values, data["noise"].values):
        here = data.sel(frequency=rate, noise=noise)
        if start := str(here["reference_dp_from"].item()) if "reference_dp_from" in data else "":
            notes.append(f"dynamic programming at {rate:g} Hz, noise {noise:g}: predicts from the {start}")
        for name in data["rival"].values if "rival_note" in data else ():
            if note := str(here["rival_note"].sel(rival=name).item()):
                notes.append(f"{reference_label(RIVAL + name)} at {rate:g} Hz, noise {noise:g}: {note}")
        if note := no_score(float(here["reference_dp"]), float(here["reference_random"])):
            notes.append(f"{rate:g} Hz, noise {noise:g}: {note}")
    return notes


def _empty_table(data: xr.Dataset) -> FittedTable:
    scale = "μ_r: 0 = random, 1 = dynamic programming"
    if not np.isfinite(data["reference_dp"]).any():
        scale = "no μ_r, because there is no dynamic programming to compare with"
    over = the_last(data).removeprefix("the ")
    headline, causes = no_learning(data)
    headline += "; " * bool(headline)
    notes = [f"{place}. {cause}" for place, cause in enumerate(causes, 1)]
    notes = [*(["likely causes, in order:"] if causes else []), *notes, *against_rivals(data), *_reference_notes(data)]
    names = _names(data)
    first = ("Hz", "noise", *names, "return" if episode_metric(data) == "return" else "reward", "greedy")
    steps = ["steps"] if lengths_vary(data) else []
    headings = (*first, *steps, f"μ_final ({over})", "μ_max", "rise 0.8", "collapsed/failed")
    return FittedTable(
        headings,
        names=names,
        right=[heading for heading in headings if heading not in names],
        droppable=("rise 0.8", "collapsed/failed", "μ_max", *steps, "greedy"),
        title=f"{data['plant'].item()}: {headline}mean over seeds, μ_final [95 %] ({scale})",
        caption="\n".join(notes),
    )


def _labels(data: xr.Dataset) -> dict[tuple[Any, Any], list[str]]:
    learners, strategies = (shortened(data[axis].values.tolist()) for axis in ("learner", "strategy"))
    several = len(learners) > 1
    names = itertools.product(learners, strategies)
    return {(i, j): [learners[i], strategies[j]] if several else [strategies[j]] for i, j in names}


def _names(data: xr.Dataset) -> list[str]:
    return ["learner", "strategy"] if data.sizes["learner"] > 1 else ["strategy"]


def score_columns(data: xr.Dataset) -> dict[str, list[Any]]:
    """Return scores as a dictionary of columns, with one row for each combination of settings that was run.

    Further columns hold the settings and the scores of reference controllers.
    """
    there = runs_there(data).any("seed").transpose(*AXES)
    names = [name for name in data.data_vars if set(data[name].dims) == set(AXES)]
    names += [name for name in data.data_vars if str(name).startswith("reference_") and data[name].ndim]
    places = np.argwhere(there.values)
    columns: dict[str, list[Any]] = {
        axis: data[axis].values[places[:, number]].tolist() for number, axis in enumerate(AXES)
    }
    columns["seeds"] = runs_there(data).sum("seed").transpose(*AXES).values[tuple(places.T)].tolist()
    means: dict[Any, xr.DataArray] = {
        name: data[name].mean(("seed", "greedy_episode")) for name in REPLAYED if name in data
    }
    for name in data["rival"].values if "rival_score" in data else ():
        means[f"rival_score: {name}"] = data["rival_score"].sel(rival=name, drop=True)
    for variable, name in itertools.product(("measures", "measures_greedy"), data.coords.get("measure", ())):
        means[f"{variable}: {name.item()}"] = data[variable].sel(measure=name, drop=True).mean("seed")
    for name, array in {**{name: data[name] for name in names}, **means}.items():
        values = array.broadcast_like(there).transpose(*AXES).values
        columns[str(name)] = values[tuple(places.T)].tolist()
    return columns
