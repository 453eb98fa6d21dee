"""The advantage of the best of several strategies over a baseline, without selection bias.

The best strategy is chosen on one half of the seeds and measured on the other half. Then the halves swap roles. p
values are corrected for the number of strategies (Holm, 1979). The worst strategy is treated in the same way.
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
"""Smallest effect of interest, in units of the normalised score μ_r."""
_LEAST_SEEDS: Final = 4


class Advantage(NamedTuple):
    """The score differences of the best and of the worst strategy from a baseline strategy.

    Attributes:
        size: Mean difference of the best strategy by cross-validation: the strategy is chosen on one half of the seeds,
            and its difference is measured on the other half.
        best: Strategy with the best mean score over all seeds.
        certain: Whether any strategy is better by significantly more than `MATTERS`, the smallest effect of interest.
        loss: Mean difference of the worst strategy, computed as `size` is.
        worst: Strategy with the worst mean score over all seeds.
        harmful: Whether any strategy is worse by significantly more than `MATTERS`.
        seeds: Number of seeds that were run with every strategy.
    """

    size: float
    best: str
    certain: bool
    loss: float
    worst: str
    harmful: bool
    seeds: int


def advantage(scores: Mapping[str, Floats], baseline: str) -> Advantage | None:
    """Compare the best and the worst of several strategies with a baseline strategy.

    The result is None if there are fewer than four seeds, a single strategy, or no scores of the baseline.

    Args:
        scores: Final scores μ_r of each strategy, one per seed. A failed run is NaN and counts as 0 (random control).
        baseline: Name of the baseline strategy.
    """
    names = list(scores)
    table = np.stack([np.where(np.isfinite(scores[name]), scores[name], 0.0) for name in names])
    if table.shape[1] < _LEAST_SEEDS or len(names) < 2 or baseline not in names:
        return None
    size, best, certain = _best_row(table, names.index(baseline))
    loss, worst, harmful = _best_row(-table, names.index(baseline))
    return Advantage(size, names[best], certain, -loss, names[worst], harmful, table.shape[1])


def _best_row(table: Floats, baseline: int) -> tuple[float, int, bool]:
    """Return the best row's mean difference from the baseline row of a table, its index, and a flag of significance.

    The difference has no selection bias. The flag is True if any row exceeds the baseline by significantly more than
    `MATTERS`, the smallest effect of interest.
    """
    differences = table - table[baseline]
    halves = np.arange(table.shape[1]) % 2
    sizes = [differences[int(table[:, halves == half].mean(axis=1).argmax()), halves != half].mean() for half in (0, 1)]
    excess = np.delete(differences, baseline, axis=0) - MATTERS
    chances = np.where(excess.mean(axis=1) > 0, flipped(excess) / 2, 1.0)
    best = int(table.mean(axis=1).argmax())
    return float(np.mean(sizes)), best, bool(min(holm(list(chances))) < SIGNIFICANT)


def by_capacity(strategies: list[str]) -> dict[int | None, dict[str, str]]:
    """Group strategies by the capacity that their names contain, as in `FIFO(5000)[PER]`.

    Unbounded strategies (`FULL`) are in every group. Unknown strategies are left out. Strategies in users' files are
    left out, too, because reading results must not execute code.

    Returns:
        For each capacity, a mapping from names without the capacity to full names. The key None stands for names
            without a capacity.
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
    """Compare the best and the worst strategy with a baseline under each condition of one plant.

    Conditions without a normalised score μ_r, or with too few seeds, are left out.

    Returns:
        Comparisons by learner, buffer capacity, noise and control rate.
    """
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
