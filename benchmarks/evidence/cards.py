"""Store the scores of strategies on the protocol of `card`, and draw their ranks. `make tables` writes their cards.

The runs are those of the study `card`, each with further strategies or with a part of its plants, and that of the study
`benchmarks/studies/replay/strategies.toml` with SAC and three further plants:

    replaybench sweep card --strategy 'FULL[Uniform]' 'FIFO[Uniform]' ... --output benchmarks/results/card
    python benchmarks/evidence/cards.py benchmarks/results/card* benchmarks/results/strategies{,-annealed,-reacher}
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from replaybench.evidence.card import (
    BASELINE,
    LEARNER,
    Card,
    Condition,
    protocol,
    standing,
    stored_learners,
    stored_standings,
)
from replaybench.experiments.dataset import add_scores
from replaybench.experiments.results_file import read_results
from replaybench.experiments.study import VOLUME
from replaybench.reports.figures.style import PALETTE, style, write_figure

ROOT: Final = Path(__file__).parents[2]
STORED: Final = ROOT / "replaybench/evidence/cards.json"
PICTURE: Final = ROOT / "docs/images/strategies.png"


def store(runs: list[Path]) -> None:
    """Write the scores of all strategies in run folders to the package's file, rounded to four decimals."""
    cells = protocol([BASELINE]).cells()
    volumes = {cell.learner: float(cell.settings["replays_per_experience"]) for cell in cells}
    of_protocol = [Condition(cell.plant, volumes[cell.learner], cell.noise) for cell in cells]
    found: dict[str, dict[str, dict[Condition, tuple[Any, Any]]]] = {LEARNER: {}}
    ids = set[str]()
    for run in runs:
        data = _scored(read_results(run))
        done = (data["cell"] != "").any("strategy")
        for full in map(str, data["learner"].values):
            learner, _, volume = full.partition(VOLUME)
            here = [
                Condition(str(plant), float(volume), float(noise))
                for plant in data["plant"].values
                for noise in data["noise"].values
                if done.sel(plant=plant, learner=full, noise=noise).any()
            ]
            for name in map(str, data["strategy"].values):
                scores = standing(data, name, here, learner)
                pairs = zip(np.round(scores.final, 4).tolist(), np.round(scores.whole, 4).tolist(), strict=True)
                found.setdefault(learner, {}).setdefault(name, {}).update(zip(here, pairs, strict=True))
        baseline = data["cell"].sel(strategy=data["strategy"] == BASELINE)
        ids |= {str(each) for each in baseline.values.ravel()} & {cell.id for cell in cells}
    learners = {}
    for learner, strategies in found.items():
        conditions = list(dict.fromkeys([*(of_protocol if learner == LEARNER else []), *strategies[BASELINE]]))
        learners[learner] = {
            "conditions": conditions,
            "strategies": {
                name: {
                    key: [own[condition][part] for condition in conditions]
                    for part, key in enumerate(("final", "whole"))
                }
                for name, own in strategies.items()
            },
        }
    facts = {"cells": sorted(ids), "protocol": len(of_protocol), "learners": learners}
    STORED.write_text(json.dumps(facts, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def _scored(data: xr.Dataset) -> xr.Dataset:
    """Return results in which plants have their own names, and scores even without dynamic programming.

    The score of such a plant is 1 at zero cost.
    """
    named = data.assign_coords(plant=[str(plant).rpartition(":")[2] for plant in data["plant"].values])
    if named["mu_final"].isnull().groupby("plant").all(...).any():
        named["reference_dp"] = named["reference_dp"].fillna(0.0)
        add_scores(named)
    return named


def draw() -> None:
    """Draw the mean rank of every strategy with each learner at both replay volumes, with 95 % intervals over seeds.

    A dashed line marks the mean rank of `BASELINE`.
    """
    cards = {learner: Card(BASELINE, *stored_standings(learner), "") for learner in stored_learners()}
    panels = [(learner, volume) for learner, card in cards.items() for volume in card.by_volume()]
    ranks = [cards[learner].ranks(volume) for learner, volume in panels]
    order = sorted(ranks[0], key=lambda name: -sum(each[name].mean for each in ranks))
    size = 1.8 + 1.7 * len(panels), 1.0 + 0.24 * len(order)
    with style():
        figure, axes = plt.subplots(1, len(panels), sharey=True, layout="constrained", figsize=size)
        for (learner, volume), each, axis in zip(panels, ranks, axes, strict=True):
            means = np.array([each[name].mean for name in order])
            ends = np.abs([[each[name].low for name in order], [each[name].high for name in order]] - means)
            axis.errorbar(means, order, xerr=ends, fmt="o", color=PALETTE[0], markersize=4, linewidth=1.2)
            axis.set(title=f"{learner}, volume {volume:g}", xlabel="mean rank (1 is best)")
            axis.axvline(each[BASELINE].mean, color=PALETTE[1], linewidth=0.8, linestyle="--")
            axis.grid(axis="both")
        write_figure(figure, PICTURE)
        plt.close(figure)


if __name__ == "__main__":
    store([Path(run) for run in sys.argv[1:]])
    draw()
