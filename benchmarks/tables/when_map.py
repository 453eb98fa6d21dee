"""The map of noise and rate: lead of the best strategy over uniform replay."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables.stored import cells, results, runs
from benchmarks.tables.text import captioned, number, table
from replaybench.experiments.advantage import BASELINES, MATTERS, Advantage, advantage, advantages, by_capacity

STUDY: Final = "when-map"
BESIDE: Final = "when-replay"
"""The study of how much is kept, and how often it is replayed."""
CONDITIONS: Final = ((2500, 2), (2500, 8), (2500, 16), (10_000, 8))
"""Capacity of bounded memories, and replays of each experience."""
Map = dict[str, dict[tuple[float, float], Advantage]]
"""Advantages by baseline, noise and rate."""


def texts() -> dict[str, str]:
    maps = {plant: _map(plant) for plant in results(STUDY)["plant"].values.tolist()}
    return {"when": _by_condition(maps), **_short(maps), **_by_replay(list(maps))}


def _map(plant: str) -> Map:
    data = results(STUDY).sel(plant=plant)
    return {name: {place[2:]: one for place, one in advantages(data, name).items()} for name in BASELINES}


def _by_condition(maps: dict[str, Map]) -> str:
    rows = [
        [plant, f"{noise:g}", f"{rate:g} Hz", found[BASELINES[0]][noise, rate].best]
        + [_ahead(found[name][noise, rate]) for name in BASELINES]
        + _behind(found[BASELINES[0]][noise, rate])
        for plant, found in maps.items()
        for noise, rate in found[BASELINES[0]]
    ]
    caption = (
        f"DDPG, {runs(STUDY)}, 8 replays per experience. Bounded buffers hold 2,500 experiences. μ_final is the mean "
        "over the last 100 of the 150 training episodes, exploration included. Entries are the mean μ_final of the "
        "best (or worst) of 12 strategies minus that of a baseline. The strategy is chosen on one half of the seeds "
        "and measured on the other half, and vice versa. Bold: some strategy is better (or worse) than the baseline by "
        f"significantly more than {MATTERS:g} (paired sign-flip tests, p < 0.05, Holm over the strategies)."
    )
    ahead = [f"best minus {name}" for name in BASELINES]
    headings = ("plant", "noise", "rate", "best", *ahead, "worst", f"worst minus {BASELINES[0]}")
    return captioned(caption, table(headings, rows))


def _by_replay(plants: list[str]) -> dict[str, str]:
    """Show the lead by capacity and number of replays, at 50 Hz."""
    rows, told = [], {}
    for plant in plants:
        first = len(rows)
        for noise in results(BESIDE)["noise"].values.tolist():
            for capacity, replays in CONDITIONS:
                scores = _scores(plant, noise, capacity, replays)
                ahead = [advantage(scores, name) for name in BASELINES]
                assert all(ahead)
                where = [plant, f"{noise:g}", f"{capacity:,}", str(replays)]
                rows.append([*where, ahead[0].best, *map(_ahead, ahead)])
        mine = rows[first:]
        told[f"when.replay.{plant}"] = f"{sum('**' in row[-2] for row in mine)} of {len(mine)}"
    caption = (
        f"DDPG at 50 Hz, {runs(BESIDE)}. *Replays* is the number of replays per experience. Rows with a capacity of "
        "2,500 and 8 replays are also in the table above. The last two columns have the same meaning as there."
    )
    headings = ("plant", "noise", "capacity", "replays", "best", *(f"best minus {name}" for name in BASELINES))
    return {"when.replay": captioned(caption, table(headings, rows)), **told}


def _scores(plant: str, noise: float, capacity: int, replays: int) -> dict[str, NDArray[np.float64]]:
    """Return μ_final `[S]` of all strategies in a condition, by their names without the capacity."""
    found = {
        one.strategy: one.data["mu_final"].values
        for study in (STUDY, BESIDE)
        for one in cells(study)
        if (one.plant, one.learner) == (plant, f"DDPG:{replays}-replays")
        and (float(one.data["noise"]), float(one.data["frequency"])) == (noise, 50.0)
    }
    return {plain: found[name] for plain, name in by_capacity(list(found))[capacity].items()}


def _ahead(one: Advantage) -> str:
    size = f"{'+' if one.size > 0 else ''}{number(one.size)}"
    return f"**{size}**" if one.certain else size


def _behind(one: Advantage) -> list[str]:
    size = number(one.loss)
    return [one.worst, f"**{size}**" if one.harmful else size]


def _short(maps: dict[str, Map]) -> dict[str, str]:
    """Count the conditions in which some strategy is significantly better than a baseline."""
    told = {}
    for plant, found in maps.items():
        for baseline, of in found.items():
            certain = [one.certain for one in of.values()]
            told[f"when.{baseline.removesuffix('[Uniform]')}.{plant}"] = f"{sum(certain)} of {len(certain)}"
    return told
