"""Advantage of the best of several strategies over a baseline, without selection bias.

The best strategy is chosen on one half of the seeds and measured on the other; then the halves swap roles. p values are
corrected for the number of strategies (Holm 1979). The worst strategy is treated in the same way.
"""

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
        size: mean difference of the best strategy, on seeds that did not serve to choose it.
        best: the strategy chosen on all seeds.
        certain: whether any strategy is significantly more than `MATTERS` better.
        loss, worst, harmful: the same three values of the worst strategy.
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
    """Compare the best and the worst strategy with a baseline by their scores `[S]`; return None with too few seeds.

    A failed run (NaN) counts as 0, the score of random control, because dropping such seeds would leave few.
    """
    names = list(scores)
    table = np.stack([np.where(np.isfinite(scores[name]), scores[name], 0.0) for name in names])
    if table.shape[1] < _LEAST_SEEDS or len(names) < 2 or baseline not in names:
        return None
    size, best, certain = _best_row(table, names.index(baseline))
    loss, worst, harmful = _best_row(-table, names.index(baseline))
    return Advantage(size, names[best], certain, -loss, names[worst], harmful, table.shape[1])


def _best_row(table: Floats, baseline: int) -> tuple[float, int, bool]:
    """Find the best row of `table` `[names, S]`.

    Returns:
        Its mean difference from the row `baseline`, without selection bias; its index; whether some row is better than
        the baseline by significantly more than the smallest effect of interest.
    """
    differences = table - table[baseline]
    halves = np.arange(table.shape[1]) % 2
    sizes = [differences[int(table[:, halves == half].mean(axis=1).argmax()), halves != half].mean() for half in (0, 1)]
    excess = np.delete(differences, baseline, axis=0) - MATTERS
    chances = np.where(excess.mean(axis=1) > 0, flipped(excess) / 2, 1.0)
    best = int(table.mean(axis=1).argmax())
    return float(np.mean(sizes)), best, bool(min(holm(list(chances))) < SIGNIFICANT)


def by_capacity(strategies: list[str]) -> dict[int | None, dict[str, str]]:
    """Group strategies by capacity (None: the study's): names without the capacity, mapped to their full names.

    `FULL` is in every group. Unknown strategies and those in users' files are left out, so that no file of results
    makes this process run code.
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
    results = {}
    for learner, capacity, noise, rate in itertools.product(
        data["learner"].values, groups, data["noise"].values, data["frequency"].values
    ):
        if not has_scores.sel(noise=noise, frequency=rate):  # rewards have other units
            continue
        here = {"learner": learner, "noise": noise, "frequency": rate}
        masks = {plain: run.sel({**here, "strategy": name}).values for plain, name in groups[capacity].items()}
        masks = {plain: mask for plain, mask in masks.items() if mask.any()}
        if not masks:
            continue
        shared = np.all(list(masks.values()), axis=0)
        values = {plain: scores.sel({**here, "strategy": groups[capacity][plain]}).values[shared] for plain in masks}
        if result := advantage(values, baseline):
            results[str(learner), capacity, float(noise), float(rate)] = result
    return results
