"""The stored map: by noise and rate, how far the best strategy is ahead of replaying uniformly."""

from __future__ import annotations

from collections import Counter

from benchmarks.tables.stored import made, results, runs
from benchmarks.tables.text import captioned, listed, number, table
from replaybench.experiments.results.advantage import BASELINES, MATTERS, Advantage, advantages

STUDY = "when-map"


def texts() -> dict[str, str]:
    data = results(STUDY).isel(plant=0)
    found = {name: {place[2:]: one for place, one in advantages(data, name).items()} for name in BASELINES}
    conditions = list(found[BASELINES[0]])
    rows = [
        [f"{noise:g}", f"{rate:g} Hz", found[BASELINES[0]][noise, rate].best]
        + [_ahead(found[name][noise, rate]) for name in BASELINES]
        for noise, rate in conditions
    ]
    caption = (
        f"{data['plant'].item()}, {runs(STUDY)}, {made(STUDY)}. How far the best of 12 strategies is ahead in μ_final "
        "(mean of the last 100 training episodes, exploration included): chosen on one half of the seeds, measured on "
        f"the other, both ways round. Bold: one is surely more than {MATTERS:g} ahead (flipped signs of pairs, "
        "p < 0.05, Holm over the strategies). Bounded memories hold 2,500 experiences."
    )
    headings = ("noise", "rate", "best", *(f"ahead of {name}" for name in BASELINES))
    return {"when": captioned(caption, table(headings, rows)), "when.said": _said(found)}


def _ahead(one: Advantage) -> str:
    size = f"{'+' if one.size > 0 else ''}{number(one.size)}"
    return f"**{size}**" if one.certain else size


def _said(found: dict[str, dict[tuple[float, float], Advantage]]) -> str:
    told = []
    for name, map_ in found.items():
        sizes = [one.size for one in map_.values()]
        sure = sum(one.certain for one in map_.values())
        told.append(
            f"surely more than {MATTERS:g} ahead of {name} in {sure} of {len(map_)} conditions "
            f"(by {number(min(sizes))} to {number(max(sizes))} on average)"
        )
    best = Counter(one.best for one in found[BASELINES[0]].values())
    most = listed([f"{name} in {count}" for name, count in best.most_common()])
    return f"the best strategy is {' and '.join(told)}; it is {most}"
