"""Our SAC and TD3 beside Stable-Baselines3's on locomotion: the figures, and what the tables of returns are made from.

    python benchmarks/walkers/locomotion_figure.py

It reads what `hopper.toml`, the `locomotion*.toml` and `locomotion_peer.py` have left in `benchmarks/results`.
"""

import csv
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import permutation_test, ttest_ind, ttest_rel

from replaybench.experiments.results_file import read_results
from replaybench.experiments.statistics import interval
from replaybench.reports.figures.style import PALETTE, new_figure, save, style

RESULTS = Path(__file__).parents[1] / "results"
ROUND = 1000
"""Steps over whose episodes a return is averaged first, on both sides."""
WINDOW = 5000
"""Steps over whose rounds it is averaged then: a point of a curve."""


class Source(NamedTuple):
    """Where both sides of a comparison lie: the run, its plant, and the peer's file beside it.

    `compared` are the steps over which they are compared, as was chosen before their seeds were run.
    """

    run: str
    plant: str
    peer: str
    compared: tuple[int, int] = (40_000, 90_000)


TASKS = {
    "Hopper": Source("hopper", "MujocoHopper", "sb3.csv"),
    "HalfCheetah": Source("locomotion", "MujocoHalfCheetah", "sb3-HalfCheetah.csv"),
}
FIRST_FIVE = Source("locomotion", "MujocoHopper", "sb3-Hopper.csv")
"""Hopper with the five seeds a side that were run before."""
LAST_THIRD = (200_000, 300_000)
LONG = {
    "TD3": {
        task: Source("locomotion-long", f"Mujoco{task}", f"td3-{task}.csv", LAST_THIRD)
        for task in ("HalfCheetah", "Walker2d", "Ant")
    },
    "SAC": {
        "HalfCheetah": Source("locomotion-long-sac", "MujocoHalfCheetah", "sac-HalfCheetah.csv", LAST_THIRD),
    },
}
"""Over more steps, by learner and task."""
BIASES = Source("locomotion-biases", "MujocoHalfCheetah", "td3-HalfCheetah.csv", (100_000, 150_000))
"""TD3 with more seeds, and with first biases as the peer draws them."""
STUCK = 2000.0
"""Return of HalfCheetah below which a run counts as one that has not found how to run."""

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


def by_round(path: Path, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the peer's mean returns of the training episodes that ended in each round `[seeds, rounds]`, NaN for none.

    With them comes of each seed's ten greedy episodes the first `[seeds]`, as we have one.
    """
    with path.open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    seeds = sorted({row["seed"] for row in rows})
    curves, last = np.full((len(seeds), steps // ROUND), np.nan), np.empty(len(seeds))
    for place, seed in enumerate(seeds):
        mine = [row for row in rows if row["seed"] == seed]
        ended = np.array([(row["step"] - 1) // ROUND for row in mine])
        told = np.array([row["return"] for row in mine])
        training = np.array([row["greedy"] == 0 for row in mine])
        for number in set(ended[training].astype(int)) & set(range(steps // ROUND)):
            curves[place, number] = told[training & (ended == number)].mean()
        last[place] = told[~training][0]
    return curves, last


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
def sides(source: Source) -> Curves:
    """Return the curves of both sides."""
    mine = ours(read_results(RESULTS / source.run / "results.nc"), source.plant)
    curves, last = by_round(RESULTS / source.run / source.peer, mine[0].shape[1] * WINDOW)
    peer = in_windows(curves), last
    return {"replaybench": mine, "Stable-Baselines3": peer}


class Difference(NamedTuple):
    """Ours less the peer's mean return while both learn, its 95 % interval and p without a difference."""

    estimate: float
    low: float
    high: float
    p: float


def over_compared(source: Source, returns: np.ndarray) -> np.ndarray:
    """Return means over the steps `compared` `[seeds]` of returns in windows `[seeds, windows]`."""
    start, end = (step // WINDOW for step in source.compared)
    means: np.ndarray = returns[:, start:end].mean(axis=1)
    return means


def arms() -> dict[str, np.ndarray]:
    """Return means of training returns over the steps compared `[seeds]`: ours, with drawn first biases, the peer's."""
    data, end = read_results(RESULTS / BIASES.run / "results.nc"), BIASES.compared[1]
    mine, drawn = (ours(data.sel(learner=[name]), BIASES.plant)[0] for name in data["learner"].values)
    peer = in_windows(by_round(RESULTS / BIASES.run / BIASES.peer, end)[0])
    named = {"replaybench": mine, "replaybench, biases drawn": drawn, "Stable-Baselines3": peer}
    return {name: over_compared(BIASES, returns) for name, returns in named.items()}


def by_seed(source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Return our and the peer's means of training returns over the steps `compared`, `[seeds]` each."""
    mine, peer = (over_compared(source, returns) for returns, _ in sides(source).values())
    return mine, peer


def difference(source: Source) -> Difference:
    """Compare what both return `by_seed`."""
    return compare(*by_seed(source))


def compare(mine: np.ndarray, peer: np.ndarray, paired: bool = False) -> Difference:
    """Compare means over seeds by a permutation test, of signs if `paired`; Student's interval, else Welch's."""

    def statistic(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
        return a.mean(axis=axis) - b.mean(axis=axis)

    rng = np.random.Generator(np.random.PCG64(0))
    kind = "samples" if paired else "independent"
    drawn = permutation_test(
        (mine, peer), statistic, permutation_type=kind, n_resamples=99_999, vectorized=True, rng=rng
    )
    student = ttest_rel(mine, peer) if paired else ttest_ind(mine, peer, equal_var=False)
    low, high = student.confidence_interval(0.95)
    return Difference(float(drawn.statistic), float(low), float(high), float(drawn.pvalue))


def picture(learner: str, tasks: dict[str, Source], run: str) -> Path:
    """Draw both sides on all `tasks` beside each other, among the results of a `run`."""
    caption = (
        f"{learner}, 64-64 units, batch 64, one update per step: mean over seeds with 95 % intervals, training "
        "episodes, exploration included. Dots: one greedy episode of each seed after its last step."
    )
    title = f"Our {learner} and Stable-Baselines3's on Gymnasium's locomotion"
    figure = new_figure(4.2 * len(tasks), 3.2, title, caption)
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axes, (task, source) in zip(panels, tasks.items(), strict=True):
        curves = sides(source)
        seeds = {len(returns) for returns, _ in curves.values()}
        draw(axes, f"{task}, {' and '.join(map(str, seeds))} seeds each", curves)
    panels[0].legend(loc="upper left")
    return save(figure, RESULTS / run, "beside-sb3")


def shares() -> Path:
    """Draw which share of the seeds of each arm returns less than so much."""
    start, end = (f"{step:,}" for step in BIASES.compared)
    caption = f"Training returns between {start} and {end} steps, a step a seed; dashed: {STUCK:,.0f}."
    figure = new_figure(6.0, 3.2, "TD3 on HalfCheetah: which share of the seeds returns less", caption)
    axes = figure.subplots()
    for color, (name, returns) in zip(PALETTE, arms().items(), strict=False):
        axes.ecdf(returns, color=color, label=f"{name}, {len(returns)} seeds")
    axes.axvline(STUCK, color="0.6", linestyle="--", linewidth=1)
    axes.set(xlabel="return", ylabel="share of seeds")
    axes.legend(loc="lower right")
    return save(figure, RESULTS / BIASES.run, "seeds")


def main() -> None:
    with style():
        print(picture("SAC", TASKS, "locomotion"))
        print(picture("TD3", LONG["TD3"], "locomotion-long"))
        print(picture("SAC", LONG["SAC"], "locomotion-long-sac"))
        print(shares())


if __name__ == "__main__":
    main()
