"""Where choosing matters: how far the best of several strategies is ahead of the two that everybody uses.

The best of many is ahead of any one of them by luck alone. So it is chosen on one half of the seeds and measured on the
other, both ways round; and it is certain only where, of all strategies together (Holm 1979), one is surely ahead. As
much is said of the worst: where nothing is better, much can be worse.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from replaybench.data.errors import UserError
from replaybench.data.user_code.user_file import imports_only
from replaybench.experiments.results.comparison_tables import final_scores, scaled
from replaybench.experiments.results.dataset import runs_there
from replaybench.experiments.results.effects import SIGNIFICANT, holm
from replaybench.experiments.results.sign_flips import flipped
from replaybench.replay.strategies.notation import parse

Floats = NDArray[np.float64]

BASELINES: Final = ("FIFO[Uniform]", "FULL[Uniform]")
MATTERS: Final = 0.05
_LEAST_SEEDS: Final = 4


class Advantage(NamedTuple):
    """How far the best strategy is ahead of a baseline, and the worst behind.

    Attributes:
        size: mean difference on seeds on which it was not chosen.
        best: the strategy that all seeds choose.
        certain: whether one is surely more than `MATTERS` ahead, all strategies considered.
        loss, worst, harmful: the same of the worst; its difference is negative.
        seeds: pairs of seeds.
    """

    size: float
    best: str
    certain: bool
    loss: float
    worst: str
    harmful: bool
    seeds: int


def advantage(scores: Mapping[str, Floats], baseline: str) -> Advantage | None:
    """Compare the best strategy with a baseline, by scores `[S]` of seeds that all share.

    Failed runs (NaN) count as 0, the random controller: few seeds may be left on which none of twelve failed.

    Returns:
        None where there are too few seeds, or nothing to choose from.
    """
    names = list(scores)
    table = np.stack([np.where(np.isfinite(scores[name]), scores[name], 0.0) for name in names])
    if table.shape[1] < _LEAST_SEEDS or len(names) < 2 or baseline not in names:
        return None
    compared = [_furthest(table, names.index(baseline), sign) for sign in (1, -1)]
    (size, best, certain), (loss, worst, harmful) = compared
    return Advantage(size, names[best], certain, -loss, names[worst], harmful, table.shape[1])


def _furthest(table: Floats, baseline: int, sign: int) -> tuple[float, int, bool]:
    """Return how far the best (1) or worst (−1) row of `table` `[names, S]` is from one, which it is, and if surely."""
    signed = sign * table
    beyond = signed - signed[baseline]
    halves = np.arange(table.shape[1]) % 2
    sizes = [beyond[int(signed[:, halves == half].mean(axis=1).argmax()), halves != half].mean() for half in (0, 1)]
    further = np.delete(beyond, baseline, axis=0) - MATTERS
    chances = np.where(further.mean(axis=1) > 0, flipped(further) / 2, 1.0)
    furthest = int(signed.mean(axis=1).argmax())
    return float(np.mean(sizes)), furthest, bool(min(holm(list(chances))) < SIGNIFICANT)


def by_capacity(strategies: list[str]) -> dict[int | None, dict[str, str]]:
    """Group strategies by the capacity in their names: those in the study's own by None, `FULL` in every group.

    Strategies of users' files are left out: to look at results must not run what only they name. So are those that are
    not known here.

    Returns:
        For each capacity the strategies' names without it, and with it.
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
    """Return a strategy's name without its capacity."""
    return name.replace(f", capacity={capacity}", "").replace(f"(capacity={capacity})", "").replace(f"({capacity})", "")


def advantages(data: xr.Dataset, baseline: str) -> dict[tuple[str, int | None, float, float], Advantage]:
    """Return one plant's advantages over a baseline by learner, capacity, noise and rate, wherever μ_r is defined."""
    scores = final_scores(data).transpose("noise", "frequency", "learner", "strategy", "seed")
    run = runs_there(data).transpose(*scores.dims)
    groups = by_capacity([str(name) for name in data["strategy"].values])
    has_scores = scaled(data)
    found = {}
    for learner in data["learner"].values:
        for capacity, named in groups.items():
            for noise in data["noise"].values:
                for rate in data["frequency"].values:
                    if not has_scores.sel(noise=noise, frequency=rate):  # rewards differ in units of their own
                        continue
                    where = {"learner": learner, "noise": noise, "frequency": rate}
                    there = {plain: run.sel({**where, "strategy": name}).values for plain, name in named.items()}
                    shared = np.all([mask for mask in there.values() if mask.any()] or [np.zeros(1, bool)], axis=0)
                    of = {
                        plain: scores.sel({**where, "strategy": name}).values[shared]
                        for plain, name in named.items()
                        if there[plain].any()
                    }
                    if one := advantage(of, baseline) if of else None:
                        found[str(learner), capacity, float(noise), float(rate)] = one
    return found
