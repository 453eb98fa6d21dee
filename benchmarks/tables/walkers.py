"""What to keep on Roboschool's double pendulum and walkers: by task, tasks together, and by the rule of thumb."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.tables.stored import Cell, made, runs
from benchmarks.tables.text import captioned, difference, number, spread, table
from benchmarks.walkers.roboschool_figure import ALL, LONG, MEASURES, SHORT, WINDOW, end, kept, over_windows, tasks

REACHED: Final = 0.9
"""Part of what is learned in all, by which the paper's rule of thumb chooses a capacity."""


def texts() -> dict[str, str]:
    return {
        "walkers": _by_task(SHORT),
        "walkers.together": _together(SHORT, "40,000 experiences"),
        "walkers.rule": _rule(),
        "walkers.million": _by_task(LONG),
        "walkers.million-together": _together(LONG, "so many experiences"),
    }


def _by_task(study: str) -> str:
    found = tasks(study)
    rows = [
        [
            kept(of_a_strategy[0], study),
            *(spread(end(cell.data["reward"].values), 0) for cell in of_a_strategy),
        ]
        for of_a_strategy in zip(*found.values(), strict=True)
    ]
    rows.append(["random control", *(number(_random(cells[0]), 0) for cells in found.values())])
    caption = (
        f"{runs(study, 'rounds')} of 1,000 steps, {made(study)}. Training returns, exploration included, of the last "
        "fifth of the rounds: means over seeds with 95 % intervals."
    )
    return captioned(caption, table(("kept", *(plant.removeprefix("Bullet") for plant in found)), rows))


def _together(study: str, room: str) -> str:
    """Tell by how much each retention, with so much room, is better than all experiences, all tasks as one sample."""
    rows: dict[str, list[str]] = {}
    for measure in MEASURES.values():
        apart: dict[str, list[np.ndarray]] = {}
        for of_a_task in tasks(study).values():
            scores = {kept(cell, study): measure(cell.data["reward"].values) for cell in of_a_task}
            unit = np.sqrt(np.mean([of_a_strategy.var(ddof=1) for of_a_strategy in scores.values()]))
            whole = scores.pop("all")
            for name, of_a_strategy in scores.items():
                apart.setdefault(name, []).append((of_a_strategy - whole) / unit)
        for name, differences in apart.items():
            sample = np.concatenate(differences)
            rows.setdefault(name, [name]).extend(difference(sample, np.zeros_like(sample)))
    caption = (
        f"By how much learners that keep {room} are better than those that keep all, in standard deviations "
        f"between seeds (pooled over retentions, task by task): the greatest mean of {WINDOW} rounds in a row, the "
        "last fifth of the rounds, and all rounds. Pairs of seeds of all tasks as one sample, with BCa intervals, p by "
        "flipped signs."
    )
    headings = ("kept", *(heading for name in MEASURES for heading in (f"{name} [95 %]", "p")))
    return captioned(caption, table(headings, rows.values()))


def _rule() -> str:
    """Tell after how many experiences learners that keep all have most of what they end with."""
    told = []
    for plant, cells in tasks(SHORT).items():
        (whole,) = (cell for cell in cells if cell.strategy == ALL)
        rewards, nothing = whole.data["reward"].values, _random(whole)
        there = over_windows(rewards.mean(axis=0)) >= nothing + REACHED * (end(rewards).mean() - nothing)
        told.append(f"{(int(there.argmax()) + WINDOW) * 1000:,} on {plant.removeprefix('Bullet')}")
    return ", ".join(told)


def _random(cell: Cell) -> float:
    return cell["reference_random"]
