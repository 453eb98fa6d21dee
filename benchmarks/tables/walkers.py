"""Retentions on Roboschool's double pendulum and walkers: by task, and tasks together."""

import numpy as np

from benchmarks.tables.stored import Cell, runs
from benchmarks.tables.text import captioned, difference, number, spread, table
from benchmarks.walkers.roboschool_figure import LONG, MEASURES, SHORT, WINDOW, end, kept, tasks


def texts() -> dict[str, str]:
    return {
        "walkers": _by_task(SHORT),
        "walkers.together": _together(SHORT, "buffers of 40,000 experiences"),
        "walkers.million": _by_task(LONG),
        "walkers.million-together": _together(LONG, "buffers of the given capacity"),
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
        f"Runs: {runs(study, 'iterations')} of 1,000 steps. All values are mean training returns over seeds, with 95 % "
        "intervals, exploration included. They cover the last fifth of the iterations."
    )
    return captioned(caption, table(("retention", *(plant.removeprefix("Bullet") for plant in found)), rows))


def _together(study: str, room: str) -> str:
    """Compare each retention with all experiences, all tasks as one sample."""
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
        f"Mean differences in return: {room} minus buffers of all experiences. Positive values favour the "
        "smaller buffer. The unit is the standard deviation between seeds of a task, pooled over retentions. "
        f"*Greatest* is the greatest mean return of {WINDOW} consecutive iterations, *at the end* is the last fifth of "
        "the iterations, and *on average* is the mean of all iterations. The paired seeds of all tasks are one sample. "
        "Intervals are BCa intervals, and *p* is from a sign-flip test, uncorrected."
    )
    headings = ("retention", *(heading for name in MEASURES for heading in (f"{name} [95 %]", "p")))
    return captioned(caption, table(headings, rows.values()))


def _random(cell: Cell) -> float:
    return cell["reference_random"]
