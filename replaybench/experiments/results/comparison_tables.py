"""Tables of how strategies compare with one of them, seed by seed, and of what means of few runs hide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.errors import UserError, unknown
from replaybench.data.quantities import decimals
from replaybench.data.user_code.user_file import shortened
from replaybench.experiments.inspection.fitted_table import FittedTable
from replaybench.experiments.results.dataset import episode_metric, last_of, mu_r, runs_there, the_last
from replaybench.experiments.results.distribution import assured, assured_share, improvement, middle
from replaybench.experiments.results.effects import SIGNIFICANT, Effect, holm, p_text, paired, seeds_to_tell
from replaybench.experiments.results.sign_flips import flipped
from replaybench.experiments.results.statistics import Interval

Floats = NDArray[np.float64]

ASSURED = 0.9
"""Share of further runs that a bound is told for, where there are runs enough."""


class Comparison(NamedTuple):
    """One learner under one strategy at one noise and rate.

    Attributes:
        scores: final scores `[S]` of the seeds that were run, NaN where a run failed.
        effect: seed by seed, how much better than the baseline; None for that itself.
        chance: p value of no difference, by flipped signs, within its condition (Holm 1979).
        better: the chance that a run is better than one of the baseline.
    """

    learner: str
    strategy: str
    noise: float
    frequency: float
    scores: Floats
    effect: Effect | None
    chance: float
    better: Interval | None

    @property
    def failed(self) -> int:
        """Number of failed runs."""
        return int((~np.isfinite(self.scores)).sum())


def final_scores(data: xr.Dataset) -> xr.DataArray:
    """Return one plant's final scores, NaN where a run failed: μ_final, final rewards where there is no μ_r."""
    reward = data["reward"].isel(episode=slice(-last_of(data), None)).mean("episode", skipna=False)
    whole = (abs(data["reward"]) < np.inf).all("episode")
    return data["mu_final"].where(scaled(data), reward.where(whole)).transpose("noise", "frequency", ...)


def scaled(data: xr.Dataset) -> xr.DataArray:
    """Tell at which noise and rate μ_r of one plant means something."""
    return mu_r(data, data["reference_dp"]).notnull()


def baseline_of(data: xr.Dataset, strategy: str | None) -> str:
    """Return with which strategy the others are compared: the one that is asked for, else the study's first.

    Raises:
        UserError: it was not run.
    """
    names = [str(name) for name in data["strategy"].values]
    if strategy is None:
        return names[0]
    from replaybench.replay.strategies.notation import parse

    asked = strategy if strategy in names else str(parse(strategy))
    if asked not in names:
        raise unknown("strategy of this run:", asked, names)
    return asked


def compared(data: xr.Dataset, baseline: str) -> list[Comparison]:
    """Compare one plant's learners and strategies with the baseline strategy under the same learner.

    Cells share their seeds, so differences are taken seed by seed, over seeds on which neither failed. The tests of
    one noise and rate are one family.
    """
    scores = final_scores(data).transpose("noise", "frequency", "learner", "strategy", "seed")
    run = runs_there(data).transpose(*scores.dims)
    rows = []
    for i, noise in enumerate(data["noise"].values):
        for j, frequency in enumerate(data["frequency"].values):
            family = []
            for k, learner in enumerate(data["learner"].values):
                of = {str(name): scores.values[i, j, k, n] for n, name in enumerate(data["strategy"].values)}
                for n, (strategy, mine) in enumerate(of.items()):
                    there = run.values[i, j, k, n]
                    if not there.any():
                        continue
                    effect = better = None
                    if strategy != baseline:
                        found = paired([mine], [of[baseline]])
                        effect, better = (found, improvement(mine, of[baseline])) if found.n else (None, None)
                    point = str(learner), strategy, float(noise), float(frequency)
                    family.append(Comparison(*point, mine[there], effect, 1.0, better))
            chances = iter(holm([float(flipped(row.effect.differences)) for row in family if row.effect is not None]))
            rows += [row if row.effect is None else row._replace(chance=next(chances)) for row in family]
    return rows


def comparison_tables(data: xr.Dataset, strategy: str | None = None) -> list[FittedTable]:
    """Return a table per plant that compares all strategies with one of them, else with the first that was run there.

    Raises:
        UserError: there is no such strategy.
    """
    tables = []
    for plant in data["plant"].values:
        mine = data.sel(plant=plant)
        run = runs_there(mine)
        here = mine.sel(strategy=run.any([axis for axis in run.dims if axis != "strategy"]))
        if not here.sizes["strategy"]:
            continue
        baseline = baseline_of(here if strategy is None else data, strategy)
        rows = compared(mine, baseline)
        if any(row.effect is not None for row in rows):
            tables.append(_table(mine, rows, baseline))
    if strategy is not None and not tables:
        raise UserError(f"nothing was run beside {baseline_of(data, strategy)} that it could be compared with")
    return tables


def _table(data: xr.Dataset, rows: list[Comparison], baseline: str) -> FittedTable:
    several = data.sizes["learner"] > 1
    names = ["learner", "strategy"] if several else ["strategy"]
    learners, strategies = (shortened(data[axis].values.tolist()) for axis in ("learner", "strategy"))
    nearly = f"{100 * ASSURED:g} % reach"
    numbers = ("n", "failed", "IQM [95 %]", f"− {strategies[baseline]} [95 %]", "p", "seeds", "P(better)", nearly)
    known = scaled(data)
    has_scores = {(row.noise, row.frequency): bool(known.sel(noise=row.noise, frequency=row.frequency)) for row in rows}
    raw = decimals(score for row in rows if not has_scores[row.noise, row.frequency] for score in row.scores.tolist())
    measured = set(has_scores.values())
    measures = ["μ_final"] if True in measured else []
    measures += [episode_metric(data)] if False in measured else []
    table = FittedTable(
        ("Hz", "noise", *names, *numbers),
        names,
        ("Hz", "noise", *numbers),
        droppable=("failed", "seeds", nearly, "P(better)"),
        title=f"{data['plant'].item()}: {' or '.join(measures)} of {the_last(data)}, compared with {baseline}",
        caption="differences are of paired seeds, with BCa intervals; p, by flipped signs, is Holm's within a noise "
        "and rate, and is the test: not whether intervals overlap; seeds: where p leaves it open, how many would "
        "tell, as the only test, if the difference is what it is here. IQM: mean of the middle half of the runs; "
        "P(better): the chance that a run beats one of the other; reach: what so many of further runs will, 95 % "
        "sure; of too few runs for that, the worst, and in brackets how many of further runs will reach it",
    )
    for row in rows:
        digits = 2 if has_scores[row.noise, row.frequency] else raw
        label = [learners[row.learner]] if several else []
        table.add(
            f"{row.frequency:g}",
            f"{row.noise:g}",
            *label,
            strategies[row.strategy],
            f"{len(row.scores) - row.failed}",
            f"{row.failed}",
            middle(row.scores).text(digits),
            *(_told(row, digits + 1) if row.effect is not None else ("", "", "", "")),
            _reach(row.scores, digits),
        )
    return table


def _told(row: Comparison, digits: int) -> tuple[str, str, str, str]:
    assert row.effect is not None
    assert row.better is not None
    low, high = row.effect.interval()
    ends = f" [{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else " (not sure)"
    return f"{row.effect.estimate:+.{digits}f}{ends}", p_text(row.chance), _seeds(row), f"{row.better.mean:.2f}"


def _seeds(row: Comparison) -> str:
    """Write how many seeds would tell a difference that is not sure, were it the only one."""
    if row.effect is None or row.chance < SIGNIFICANT:
        return ""
    needed = seeds_to_tell(row.effect.sd, abs(row.effect.estimate))
    return "–" if needed is None else f"{needed:,}"


def _reach(scores: Floats, digits: int) -> str:
    """Write what nearly all further runs will reach; of few runs the worst, and which share will reach that.

    A failed run reaches nothing.
    """
    if not np.isfinite(scores).all():
        return "–"
    bound = assured(scores, ASSURED)
    if np.isfinite(bound):
        return f"{bound:.{digits}f}"
    return f"{scores.min():.{digits}f} ({100 * assured_share(len(scores)):.0f} %)"
