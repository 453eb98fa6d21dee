"""ReF-ER over 10⁶ steps beside ACER and PPO, which replays nothing: the figure, and the returns in the table of both.

    python -m benchmarks.walkers.refer_figure

It reads what `refer-million.toml`, `refer-walker.toml` and `locomotion_peer.py` have left in `benchmarks/results`.
"""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.walkers.locomotion_figure import ROUND, by_round
from replaybench.experiments.results_file import read_results
from replaybench.reports.figures.style import PALETTE, add_legend, new_figure, save, style

RESULTS: Final = Path(__file__).parents[1] / "results"
RUNS: Final = {"HalfCheetah": "refer-million", "Hopper": "refer-million", "Walker2d": "refer-walker"}
"""Where each task's runs lie."""
BESIDE: Final = ("HalfCheetah", "Hopper")
"""Tasks that PPO was run on."""
STEPS: Final = 1_000_000
WINDOW: Final = 20
"""Rounds whose returns make a point of a curve."""
REPLAYS: Final = {"FIFO[Uniform]": "--", "FIFO[Uniform+ReFER]": "-"}
COLORS: Final = dict(zip(("DDPG", "NAF", "V-RACER", "ACER", "PPO"), (*PALETTE[:4], "#2b2b2b"), strict=True))

Floats = NDArray[np.float64]


def ppo(task: str) -> Floats:
    """Return the mean return of PPO's training episodes that ended in each round `[seeds, rounds]`.

    NaN where none did: all copies of a task may end at once, every so many rounds.
    """
    return by_round(RESULTS / RUNS[task] / f"ppo-{task}.csv", STEPS)[0]


def curves(task: str) -> dict[tuple[str, str], Floats]:
    """Return the returns `[seeds, rounds]` by learner and replay, of those that were run."""
    run = read_results(RESULTS / RUNS[task] / "results.nc")
    data = run.sel(plant=f"Mujoco{task}").dropna("frequency", how="all", subset=["reward"])
    found = {}
    for learner in data["learner"].values.tolist():
        for replay in REPLAYS:
            reward = data["reward"].sel(learner=learner, strategy=replay).squeeze(drop=True)
            if reward.notnull().any():
                found[learner, replay] = reward.transpose("seed", "episode").values
    return {**found, ("PPO", ""): ppo(task)} if task in BESIDE else found


def windows(returns: Floats) -> Floats:
    """Return means over windows `[windows]` of the returns of seeds that did not fail."""
    whole = returns[~np.isnan(returns[:, -WINDOW:]).all(axis=1)]
    parts = whole[:, : whole.shape[1] // WINDOW * WINDOW].reshape(len(whole), -1, WINDOW)
    means: Floats = np.nanmean(parts, axis=(0, 2))
    return means


def main() -> None:
    with style():
        caption = (
            f"Training episodes, means over {WINDOW:,} rounds of {ROUND:,} steps and over the seeds whose networks did "
            "not diverge. PPO is Stable-Baselines3's, from eight copies of the task at once."
        )
        figure = new_figure(12.6, 3.2, "ReF-ER over 10⁶ steps of locomotion, ACER and PPO", caption)
        panels = figure.subplots(1, len(RUNS))
        for axes, task in zip(panels, RUNS, strict=True):
            for (learner, replay), returns in curves(task).items():
                points = windows(returns)
                label = f"{learner} {replay.removeprefix('FIFO')}".strip()
                steps = (np.arange(len(points)) + 0.5) * WINDOW * ROUND / 1e6
                axes.plot(steps, points, REPLAYS.get(replay, ":"), color=COLORS[learner], label=label)
            axes.set(title=task, xlabel="steps (millions)", ylabel="return")
        add_legend(figure, list(panels[0].lines))
        print(save(figure, RESULTS / "refer-million", "beside-ppo"))


if __name__ == "__main__":
    main()
