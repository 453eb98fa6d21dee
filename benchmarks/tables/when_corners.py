"""The corners of all four axes of the map: what each axis does to how much selection matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np

from benchmarks.tables.stored import made, results, runs
from benchmarks.tables.text import captioned, number, table
from replaybench.experiments.results.advantage import BASELINES, MATTERS, Advantage, advantages

STUDY: Final = "when-corners"
Place = tuple[str, int | None, float, float]
"""Learner, capacity, noise and rate."""
AXES: Final[dict[str, Callable[[Place], str]]] = {
    "all": lambda place: "",
    "noise": lambda place: f"{place[2]:g}",
    "rate": lambda place: f"{place[3]:g} Hz",
    "memory": lambda place: f"{place[1]:,}",
    "replays": lambda place: place[0].partition(":")[2].removesuffix("-replays"),
}


def texts() -> dict[str, str]:
    rows = []
    for plant in results(STUDY)["plant"].values.tolist():
        found = {name: advantages(results(STUDY).sel(plant=plant), name) for name in BASELINES}
        for axis, level_of in AXES.items():
            for level in dict.fromkeys(map(level_of, found[BASELINES[0]])):
                mine = [[one for place, one in each.items() if level_of(place) == level] for each in found.values()]
                best = Counter(one.best for one in mine[0]).most_common(1)[0]
                rows.append([plant, axis, level, *map(_mean, mine), f"{best[0]} ({best[1]})"])
    caption = (
        f"{runs(STUDY)}, {made(STUDY)}, at every combination of the two levels of each axis. How far the best of 12 "
        "strategies is ahead, told as in the map: mean over the conditions at a level, and in how many of them some "
        f"strategy is surely more than {MATTERS:g} ahead; which all seeds choose most often."
    )
    headings = ("plant", "axis", "level", *(f"ahead of {name}" for name in BASELINES), "best")
    return {"when.corners": captioned(caption, table(headings, rows))}


def _mean(found: list[Advantage]) -> str:
    size = float(np.mean([one.size for one in found]))
    sure = sum(one.certain for one in found)
    return f"{'+' if size > 0 else ''}{number(size)}; {sure} of {len(found)}"
