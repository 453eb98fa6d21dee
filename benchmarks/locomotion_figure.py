"""Our SAC beside Stable-Baselines3's on locomotion: the figure, and what the table of returns is made from.

    python benchmarks/locomotion_figure.py

It reads what `locomotion.toml` and `locomotion_peer.py` have left in `benchmarks/results/locomotion`.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from replaybench.experiments.figures.style import PALETTE, new_figure, save, style
from replaybench.experiments.results.results_file import read_results
from replaybench.experiments.results.statistics import interval

FOLDER = Path(__file__).parent / "results" / "locomotion"
ROUND = 1000
"""Steps over whose episodes a return is averaged first, on both sides."""
WINDOW = 5000
"""Steps over whose rounds it is averaged then: a point of a curve."""
TASKS = {"MujocoHopper": "Hopper", "MujocoHalfCheetah": "HalfCheetah"}

Curves = dict[str, tuple[np.ndarray, np.ndarray]]
"""By name: returns in windows `[seeds, windows]`, and of the first greedy episode after the last step `[seeds]`."""


def ours(data: xr.Dataset, plant: str) -> tuple[np.ndarray, np.ndarray]:
    """Return our returns: a point of `reward` is the mean over episodes that ended in a round."""
    here = data.sel(plant=plant).dropna("frequency", how="all", subset=["reward"])
    reward, greedy = (here[name].squeeze(drop=True).transpose("seed", ...) for name in ("reward", "reward_greedy"))
    return in_windows(reward.values), greedy.values[:, -1]


def in_windows(reward: np.ndarray) -> np.ndarray:
    """Return means over the rounds of each window `[seeds, windows]` of rewards `[seeds, rounds]`."""
    means: np.ndarray = reward.reshape(len(reward), -1, WINDOW // ROUND).mean(axis=2)
    return means


def theirs(path: Path, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the peer's returns, averaged as ours are; of its ten greedy episodes the first, as we have one."""
    with path.open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    curves, last = [], []
    for seed in sorted({row["seed"] for row in rows}):
        mine = [row for row in rows if row["seed"] == seed]
        ended = np.array([(row["step"] - 1) // ROUND for row in mine])
        told = np.array([row["return"] for row in mine])
        training = np.array([row["greedy"] == 0 for row in mine])
        curves.append([told[training & (ended == number)].mean() for number in range(steps // ROUND)])
        last.append(told[~training][0])
    return in_windows(np.array(curves)), np.array(last)


def draw(axes: Any, task: str, curves: Curves) -> None:
    """Draw means over seeds with 95 % intervals; a dot and a bar behind the end are greedy episodes."""
    for color, (name, (returns, greedy)) in zip(PALETTE, curves.items(), strict=False):
        steps = (np.arange(returns.shape[1]) + 1) * WINDOW / 1000
        bands = [interval(column) for column in returns.T]
        axes.plot(steps, [band.mean for band in bands], color=color, label=name)
        axes.fill_between(steps, [b.low for b in bands], [b.high for b in bands], color=color, alpha=0.2, linewidth=0)
        end = interval(greedy)
        where = steps[-1] + 4 * (1 + list(curves).index(name))
        reach = [[end.mean - end.low], [end.high - end.mean]]
        axes.errorbar(where, end.mean, reach, color=color, marker="o", capsize=3)
    axes.set(title=task, xlabel="steps (thousands)", ylabel="return")


@functools.cache
def both_sides() -> dict[str, Curves]:
    """Return the curves of both sides by task."""
    data, found = read_results(FOLDER / "results.nc"), {}
    for plant, task in TASKS.items():
        mine = ours(data, plant)
        peer = theirs(FOLDER / f"sb3-{task}.csv", mine[0].shape[1] * WINDOW)
        found[task] = {"replaybench": mine, "Stable-Baselines3": peer}
    return found


def main() -> None:
    with style():
        caption = (
            "SAC, 64-64 units, batch 64, one update per step, 5 seeds each: mean over seeds with 95 % intervals, "
            "training episodes, exploration included. Dots: one greedy episode of each seed after its last step."
        )
        figure = new_figure(8.4, 3.2, "Our SAC and Stable-Baselines3's on Gymnasium's locomotion", caption)
        panels = figure.subplots(1, len(TASKS))
        for axes, (task, curves) in zip(panels, both_sides().items(), strict=True):
            draw(axes, task, curves)
        panels[0].legend(loc="upper left")
        print(save(figure, FOLDER, "beside-sb3"))


if __name__ == "__main__":
    main()
