"""Advantage of the best of several strategies over a baseline, without selection bias.

The best strategy is chosen on one half of the seeds and measured on the other, both ways. Significance is corrected for
the number of strategies (Holm 1979). The same is done for the worst strategy.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from replaybench.experiments.comparison import final_scores, scaled
from replaybench.experiments.dataset import runs_there
from replaybench.experiments.effects import SIGNIFICANT, flipped, holm
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.arrays import Floats
from replaybench.runtime.errors import UserError
from replaybench.runtime.user_file import imports_only

BASELINES: Final = ("FIFO[Uniform]", "FULL[Uniform]")
MATTERS: Final = 0.05
"""Smallest effect of interest."""
_LEAST_SEEDS: Final = 4


class Advantage(NamedTuple):
    """Differences of the best and of the worst strategy from a baseline.

    Attributes:
        size: mean difference of the best on seeds on which it was not chosen.
        best: the strategy chosen on all seeds.
        certain: whether any strategy is significantly more than `MATTERS` better.
        loss, worst, harmful: the same of the worst; its difference is negative.
        seeds: number of paired seeds.
    """

    size: float
    best: str
    certain: bool
    loss: float
    worst: str
    harmful: bool
    seeds: int


def advantage(scores: Mapping[str, Floats], baseline: str) -> Advantage | None:
    """Compare the best and the worst strategy with a baseline, by scores `[S]` of shared seeds; None with too few.

    Failed runs (NaN) count as 0, the random controller; without them few seeds would be left.
    """
    names = list(scores)
    table = np.stack([np.where(np.isfinite(scores[name]), scores[name], 0.0) for name in names])
    if table.shape[1] < _LEAST_SEEDS or len(names) < 2 or baseline not in names:
        return None
    size, best, certain = _furthest(table, names.index(baseline))
    loss, worst, harmful = _furthest(-table, names.index(baseline))
    return Advantage(size, names[best], certain, -loss, names[worst], harmful, table.shape[1])


def _furthest(table: Floats, baseline: int) -> tuple[float, int, bool]:
    """Find the best row of `table` `[names, S]`.

    Returns:
        Its lead over the row `baseline`, without the bias of selection; its index; whether some row is significantly
        better than the baseline by more than the smallest effect of interest.
    """
    beyond = table - table[baseline]
    halves = np.arange(table.shape[1]) % 2
    sizes = [beyond[int(table[:, halves == half].mean(axis=1).argmax()), halves != half].mean() for half in (0, 1)]
    further = np.delete(beyond, baseline, axis=0) - MATTERS
    chances = np.where(further.mean(axis=1) > 0, flipped(further) / 2, 1.0)
    best = int(table.mean(axis=1).argmax())
    return float(np.mean(sizes)), best, bool(min(holm(list(chances))) < SIGNIFICANT)


def by_capacity(strategies: list[str]) -> dict[int | None, dict[str, str]]:
    """Return, by capacity (None: the study's), strategies' names without and with it; `FULL` is in every group.

    Unknown strategies and those of users' files are left out: results do not run code that only they name.
    """
    parsed = {}
    for name in strategies:
        with contextlib.suppress(UserError), imports_only():
            parsed[name] = parse(name).retention
    groups: dict[int | None, dict[str, str]] = {}
    for capacity in dict.fromkeys(retention.capacity for retention in parsed.values() if retention.bounded):
        groups[capacity] = {
            _without(name, capacity): name
            for name, retention in parsed.items()
            if not retention.bounded or retention.capacity == capacity
        }
    return groups


def _without(name: str, capacity: int | None) -> str:
    return name.replace(f", capacity={capacity}", "").replace(f"(capacity={capacity})", "").replace(f"({capacity})", "")


def advantages(data: xr.Dataset, baseline: str) -> dict[tuple[str, int | None, float, float], Advantage]:
    """Return one plant's advantages over a baseline by learner, capacity, noise and rate, where μ_r is defined."""
    scores = final_scores(data).transpose("noise", "frequency", "learner", "strategy", "seed")
    run = runs_there(data).transpose(*scores.dims)
    groups = by_capacity([str(name) for name in data["strategy"].values])
    has_scores = scaled(data)
    found = {}
    for learner, capacity, noise, rate in itertools.product(
        data["learner"].values, groups, data["noise"].values, data["frequency"].values
    ):
        if not has_scores.sel(noise=noise, frequency=rate):  # rewards have other units
            continue
        here = {"learner": learner, "noise": noise, "frequency": rate}
        there = {plain: run.sel({**here, "strategy": name}).values for plain, name in groups[capacity].items()}
        there = {plain: mask for plain, mask in there.items() if mask.any()}
        if not there:
            continue
        shared = np.all(list(there.values()), axis=0)
        of = {plain: scores.sel({**here, "strategy": groups[capacity][plain]}).values[shared] for plain in there}
        if one := advantage(of, baseline):
            found[str(learner), capacity, float(noise), float(rate)] = one
    return found
