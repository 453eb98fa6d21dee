"""Store the scores of strategies on the protocol of `card`, and draw their ranks. `make tables` writes their cards.

The runs are those of the study `card`, each with further strategies or with a part of its plants:

    replaybench sweep card --strategy 'FULL[Uniform]' 'FIFO[Uniform]' ... --output benchmarks/results/card
    python benchmarks/evidence/cards.py benchmarks/results/card*
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import matplotlib.pyplot as plt
import numpy as np

from replaybench.evidence.card import BASELINE, Card, Condition, protocol, standing, stored_standings
from replaybench.experiments.results_file import read_results
from replaybench.reports.figures.style import PALETTE, style, write_figure

ROOT: Final = Path(__file__).parents[2]
STORED: Final = ROOT / "replaybench/evidence/cards.json"
PICTURE: Final = ROOT / "docs/images/strategies.png"


def store(runs: list[Path]) -> None:
    """Write the scores of all strategies in run folders to the package's file, rounded to four decimals."""
    cells = protocol([BASELINE]).cells()
    volumes = {cell.learner: float(cell.settings["replays_per_experience"]) for cell in cells}
    conditions = [Condition(cell.plant, volumes[cell.learner], cell.noise) for cell in cells]
    found: dict[str, dict[Condition, tuple[Any, Any]]] = {}
    ids = set[str]()
    for run in runs:
        data = read_results(run)
        ids |= {str(each) for each in data["cell"].sel(strategy=[BASELINE]).values.ravel() if each}
        here = [condition for condition in conditions if condition.plant in data["plant"].values]
        for name in map(str, data["strategy"].values):
            scores = standing(data, name, here)
            pairs = zip(np.round(scores.final, 4).tolist(), np.round(scores.whole, 4).tolist(), strict=True)
            found.setdefault(name, {}).update(zip(here, pairs, strict=True))
    strategies = {
        name: {key: [own[condition][part] for condition in conditions] for part, key in enumerate(("final", "whole"))}
        for name, own in found.items()
    }
    facts = {"conditions": conditions, "cells": sorted(ids), "strategies": strategies}
    STORED.write_text(json.dumps(facts, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def draw() -> None:
    """Draw the mean rank of every strategy at both replay volumes, with 95 % intervals over seeds.

    A dashed line marks the mean rank of `BASELINE`.
    """
    conditions, standings = stored_standings()
    card = Card(BASELINE, conditions, standings, "")
    volumes = [*card.by_volume()]
    order = sorted(standings, key=lambda name: -sum(card.ranks(volume)[name].mean for volume in volumes))
    size = 7.2, 1.0 + 0.24 * len(order)
    with style():
        figure, axes = plt.subplots(1, len(volumes), sharey=True, layout="constrained", figsize=size)
        for volume, axis in zip(volumes, axes, strict=True):
            ranks = [card.ranks(volume)[name] for name in order]
            means = np.array([rank.mean for rank in ranks])
            ends = np.abs([[rank.low for rank in ranks], [rank.high for rank in ranks]] - means)
            axis.errorbar(means, order, xerr=ends, fmt="o", color=PALETTE[0], markersize=4, linewidth=1.2)
            axis.set(title=f"replay volume {volume:g}", xlabel="mean rank (1 is best)")
            axis.axvline(card.ranks(volume)[BASELINE].mean, color=PALETTE[1], linewidth=0.8, linestyle="--")
            axis.grid(axis="both")
        write_figure(figure, PICTURE)
        plt.close(figure)


if __name__ == "__main__":
    store([Path(run) for run in sys.argv[1:]])
    draw()
