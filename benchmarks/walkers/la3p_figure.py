"""Our TD3 and SAC with `LA3P` beside the learning curves that Sağlam et al. (2023) published as arrays.

    python -m benchmarks.walkers.la3p_figure            # draws the figure
    python -m benchmarks.walkers.la3p_figure CHECKOUT   # writes the published values first

CHECKOUT is a folder with the authors' repository, github.com/baturaysaglam/LA3P; the values are of commit 15bf010c.
Ours are the results of `saglam-curves.toml` and `saglam-curves-sac.toml`. Every point is the mean return of ten greedy
episodes.
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

RUNS: Final = {
    "TD3": ("saglam-curves", "Mujoco{}"),
    "SAC": ("saglam-curves-sac", "benchmarks/walkers/scaled_plants.py:{}Times5"),
}
"""Run and names of plants with each learner."""
TASKS: Final = ("HalfCheetah", "Hopper")
COMPARED: Final = slice(50_000 // WINDOW - 1, None)
"""Evaluations over which both are compared, chosen before any was run: after 50,000 to 100,000 steps."""
_STEPS, _SEEDS = 100_000, 10
_PERIOD = 1000
"""Number of steps between evaluations in the authors' arrays, whose first value is that of an untrained policy."""


def store(checkout: Path) -> None:
    """Write the published values after every `WINDOW` steps, rounded to 0.1."""
    for learner, (run, _) in RUNS.items():
        with _published(run).open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(("task", "seed", "step", "return"))
            for task in TASKS:
                folder = checkout / f"Learning Curves/Evaluation/{learner}/{task}-v2"
                for seed in range(_SEEDS):
                    curve = np.load(folder / f"LA3P_{learner}_{task}-v2_{seed}.npy", allow_pickle=False)
                    for step in range(WINDOW, _STEPS + 1, WINDOW):
                        rows.writerow((task, seed, step, f"{curve[step // _PERIOD]:.1f}"))


def _published(run: str) -> Path:
    return RESULTS / run / "published.csv"


@functools.cache
def sides(learner: str, task: str) -> Curves:
    """Return evaluations of both sides `[seeds, evaluations]`, and their last ones `[seeds]`."""
    run, plant = RUNS[learner]
    data = read_results(RESULTS / run).sel(plant=plant.format(task)).dropna("frequency", how="all", subset=["reward"])
    ours = data["reward_evaluation"].squeeze(drop=True).transpose("seed", ...).values
    with _published(run).open(newline="") as file:
        returns = [float(row["return"]) for row in csv.DictReader(file) if row["task"] == task]
    published = np.reshape(returns, (_SEEDS, -1))
    return {"replaybench": (ours, ours[:, -1]), "Sağlam et al. (2023)": (published, published[:, -1])}


def difference(learner: str, task: str) -> Difference:
    """Compare our mean return of the evaluations `COMPARED` with the published one."""
    mine, theirs = (returns[:, COMPARED].mean(axis=1) for returns, _ in sides(learner, task).values())
    return compare(mine, theirs)


def main() -> None:
    if sys.argv[1:]:
        store(Path(sys.argv[1]))
    caption = (
        "FIFO[LA3P], 256-256 units: ten greedy episodes every 5,000 steps, mean over seeds with 95 % "
        "intervals; dots: after the last step. The first 25,000 steps are random."
    )
    with style():
        title = f"Our {' and '.join(RUNS)} with LA3P, and the authors'"
        figure = new_figure(4.2 * len(TASKS), 2.8 * len(RUNS), title, caption)
        for learner, row in zip(RUNS, figure.subplots(len(RUNS), len(TASKS), squeeze=False), strict=True):
            for axes, task in zip(row, TASKS, strict=True):
                curves = sides(learner, task)
                seeds = " and ".join(str(len(curve)) for curve, _ in curves.values())
                draw(axes, f"{learner}, {task}, {seeds} seeds", curves)
                axes.legend(loc="upper left")
        print(save(figure, RESULTS / RUNS["TD3"][0], "beside-published"))


if __name__ == "__main__":
    main()
