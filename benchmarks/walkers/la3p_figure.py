"""Our TD3 with `LA3P` beside the learning curves that Sağlam et al. (2023) published as arrays.

    python -m benchmarks.walkers.la3p_figure            # draws the figure
    python -m benchmarks.walkers.la3p_figure CHECKOUT   # writes the published values first

CHECKOUT is a folder with the authors' repository, github.com/baturaysaglam/LA3P; the values are of commit 15bf010c.
Ours are the results of `saglam-curves.toml`. Every point is the mean return of ten greedy episodes.
"""

import csv
import functools
import sys
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.walkers.locomotion_figure import RESULTS, WINDOW, Curves, Difference, compare, draw
from replaybench.experiments.results_file import read_results
from replaybench.reports.figures.style import new_figure, save, style

RUN: Final = "saglam-curves"
TASKS: Final = ("HalfCheetah", "Hopper")
COMPARED: Final = slice(50_000 // WINDOW - 1, None)
"""Evaluations over which both are compared, chosen before any was run: after 50,000 to 100,000 steps."""
_PUBLISHED: Final = RESULTS / RUN / "published.csv"
_STEPS, _SEEDS = 100_000, 10
_PERIOD = 1000
"""Number of steps between evaluations in the authors' arrays, whose first value is that of an untrained policy."""


def store(checkout: Path) -> None:
    """Write the published values after every `WINDOW` steps, rounded to 0.1."""
    with _PUBLISHED.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("task", "seed", "step", "return"))
        for task in TASKS:
            folder = checkout / f"Learning Curves/Evaluation/TD3/{task}-v2"
            for seed in range(_SEEDS):
                curve = np.load(folder / f"LA3P_TD3_{task}-v2_{seed}.npy", allow_pickle=False)
                for step in range(WINDOW, _STEPS + 1, WINDOW):
                    rows.writerow((task, seed, step, f"{curve[step // _PERIOD]:.1f}"))


@functools.cache
def sides(task: str) -> Curves:
    """Return evaluations of both sides `[seeds, evaluations]`, and their last ones `[seeds]`."""
    data = read_results(RESULTS / RUN).sel(plant=f"Mujoco{task}").dropna("frequency", how="all", subset=["reward"])
    ours = data["reward_evaluation"].squeeze(drop=True).transpose("seed", ...).values
    with _PUBLISHED.open(newline="") as file:
        returns = [float(row["return"]) for row in csv.DictReader(file) if row["task"] == task]
    published = np.reshape(returns, (_SEEDS, -1))
    return {"replaybench": (ours, ours[:, -1]), "Sağlam et al. (2023)": (published, published[:, -1])}


def difference(task: str) -> Difference:
    """Compare our mean return of the evaluations `COMPARED` with the published one."""
    mine, theirs = (returns[:, COMPARED].mean(axis=1) for returns, _ in sides(task).values())
    return compare(mine, theirs)


def main() -> None:
    if sys.argv[1:]:
        store(Path(sys.argv[1]))
    caption = (
        "TD3 with FIFO[LA3P], 256-256 units: ten greedy episodes every 5,000 steps, mean over seeds with 95 % "
        "intervals; dots: after the last step. The first 25,000 steps are random."
    )
    with style():
        figure = new_figure(4.2 * len(TASKS), 3.2, "Our TD3 with LA3P and the authors'", caption)
        for axes, task in zip(figure.subplots(1, len(TASKS)), TASKS, strict=True):
            curves = sides(task)
            draw(axes, f"{task}, {' and '.join(str(len(curve)) for curve, _ in curves.values())} seeds", curves)
            axes.legend(loc="upper left")
        print(save(figure, RESULTS / RUN, "beside-published"))


if __name__ == "__main__":
    main()
