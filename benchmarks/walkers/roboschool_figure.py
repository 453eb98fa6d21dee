"""What is kept on Roboschool's tasks: the figures, and the measures in the tables beside them.

    python -m benchmarks.walkers.roboschool_figure

Measures are those of de Bruin et al. (2018): the greatest performance (Figure 16), that at the end (Figure 25) and on
average (Figure 26). It reads what is in `benchmarks/results`: five tasks over 3·10⁵ steps, as left by
`replaybench reproduce debruin2018/fig16`, and the first two over 10⁶, by `benchmarks/studies/roboschool`.
"""

import re
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from benchmarks.tables.stored import RESULTS, Cell, cells
from replaybench.experiments.statistics import interval
from replaybench.reports.figures.style import GREY, PALETTE, new_figure, save, style

SHORT: Final = "debruin2018-fig16"
LONG: Final = "roboschool-million"
WINDOW: Final = 10
"""Rounds in a row whose mean return counts as performance."""
ALL: Final = "FULL[Uniform]"

Floats = NDArray[np.float64]


def over_windows(rewards: Floats) -> Floats:
    """Return means over each `WINDOW` rounds in a row `[…, rounds − WINDOW + 1]` of returns `[…, rounds]`."""
    means: Floats = sliding_window_view(rewards, WINDOW, axis=-1).mean(axis=-1)
    return means


def end(rewards: Floats) -> Floats:
    """Return means over the last fifth, as the paper's last 2·10⁵ of 10⁶ steps. [seeds]"""
    means: Floats = rewards[:, -(rewards.shape[1] // 5) :].mean(axis=1)
    return means


MEASURES: Final[dict[str, Callable[[Floats], Floats]]] = {
    "greatest": lambda rewards: over_windows(rewards).max(axis=1),
    "at the end": end,
    "on average": lambda rewards: rewards.mean(axis=1),
}
"""What becomes of each seed's training returns `[seeds, rounds]`."""


def kept(cell: Cell, study: str) -> str:
    """Return what is kept, shortly: FIFO for FIFO(40000)[Uniform], all for FULL[Uniform]; how many if that differs."""
    if cell.strategy == ALL:
        return "all"
    capacity = re.findall(r"[0-9]{4,}", cell.strategy)[0]
    return _rule(cell) if study == SHORT else f"{_rule(cell)}, {int(capacity):,}"


def _rule(cell: Cell) -> str:
    return cell.strategy.partition("(")[0]


def tasks(study: str) -> dict[str, list[Cell]]:
    """Return the cells of each task, in the study's order."""
    found: dict[str, list[Cell]] = {}
    for of_a_task in cells(study):
        found.setdefault(of_a_task.plant, []).append(of_a_task)
    return found


def draw(study: str, width: float, title: str) -> None:
    """Draw the figure of a study into the folder of its results."""
    found = tasks(study)
    rules = dict.fromkeys(_rule(cell) for strategies in found.values() for cell in strategies)
    colors = dict(zip(rules, (GREY, *PALETTE), strict=False))
    rounds = next(iter(found.values()))[0].data.sizes["episode"]
    with style():
        caption = (
            f"Training episodes: the greatest mean of {WINDOW} rounds in a row, and the last fifth of {rounds} rounds "
            "of 1,000 steps. Dots: seeds. Bars: means with 95 % intervals."
        )
        figure = new_figure(width, 4.4, title, caption)
        panels = figure.subplots(2, len(found), sharex=True)
        for column, (plant, strategies) in zip(panels.T, found.items(), strict=True):
            for axes, measure in zip(column, ("greatest", "at the end"), strict=True):
                for place, cell in enumerate(strategies):
                    color = colors[_rule(cell)]
                    scores = MEASURES[measure](cell.data["reward"].values)
                    mean = interval(scores)
                    axes.plot(np.full(len(scores), place), scores, "o", color=color, markersize=3, alpha=0.5)
                    axes.errorbar(
                        place + 0.25, mean.mean, [[mean.mean - mean.low], [mean.high - mean.mean]], fmt="_", color=color
                    )
                axes.set_xticks(range(len(strategies)), [kept(cell, study) for cell in strategies], rotation=60)
                axes.grid(axis="y", color="0.92", linewidth=0.7)
            column[0].set_title(plant.removeprefix("Bullet").replace("InvertedDoublePendulum", "double pendulum"))
        for axes, measure in zip(panels[:, 0], ("greatest return", "return at the end"), strict=True):
            axes.set_ylabel(measure)
        print(save(figure, RESULTS / study, "by-retention"))


if __name__ == "__main__":
    draw(SHORT, 10.4, "Roboschool's tasks by what is kept: all experiences, or 40,000")
    draw(LONG, 6.4, "Two of Roboschool's tasks over 10⁶ steps, by what is kept")
