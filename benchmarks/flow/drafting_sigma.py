"""How V-RACER's σ, a memory and a clock change how fast it learns to draft: python -m benchmarks.flow.drafting_sigma

It reads the drafting studies in `benchmarks/results` and draws `drafting-sigma/on-the-way.png`.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.tables.stored import RESULTS, Cell, cell
from replaybench.reports.figures.style import PALETTE, new_figure, save, style

SEEDS = 3
"""The first ones, which all studies have."""
WINDOW = 20
"""Rounds over which curves are averaged."""


def moving(steps: np.ndarray) -> np.ndarray:
    """Return means over the last `WINDOW` rounds `[seeds, rounds − WINDOW + 1]` of steps `[seeds, rounds]`."""
    means: np.ndarray = np.lib.stride_tricks.sliding_window_view(steps, WINDOW, axis=1).mean(axis=2)
    return means


class Variant(NamedTuple):
    """A learner of a study: its networks and its σ, in words."""

    study: str
    learner: str
    networks: str
    sigma: str

    def stored(self) -> Cell:
        """Return its results with 20,000 experiences."""
        return cell(self.study, learner=self.learner, strategy="FIFO(20000)[Uniform+ReFER]")


_BOTH = "LSTM 2 × 32, then 64-64"
VARIANTS = (
    Variant("drafting-vracer", "V-RACER:slow", "64-64", "learned"),
    Variant("drafting-sigma", "V-RACER:fixed", "64-64", "0.05"),
    Variant("drafting-sigma", "V-RACER:fixed-small", "64-64", "0.025"),
    Variant("drafting-clock", "V-RACER:fixed", "64-64, which see an episode's age", "0.05"),
    Variant("drafting-recurrent-million", "V-RACER:lstm-64-64", _BOTH, "learned"),
    Variant("drafting-sigma", "V-RACER:lstm-64-64-fixed", _BOTH, "0.05"),
    Variant("drafting-recurrent", "V-RACER:lstm", "LSTM 2 × 32", "learned"),
    Variant("drafting-sigma", "V-RACER:lstm-fixed", "LSTM 2 × 32", "0.05"),
)


def main() -> Path:
    """Draw the lengths of training episodes, of which a geometric mean over seeds is drawn."""
    rounds = 800
    caption = (
        f"Training episodes, exploration included: geometric mean over {SEEDS} seeds of means over {WINDOW} rounds of "
        "400 steps. Leaving the box ends an episode, as do 400 actions."
    )
    with style():
        figure = new_figure(8.4, 4.0, "Drafting: what σ, a memory and a clock do to V-RACER", caption)
        axes = figure.subplots()
        colors = dict(zip(dict.fromkeys(variant.networks for variant in VARIANTS), PALETTE, strict=False))
        lines = {"learned": "--", "0.05": "-", "0.025": ":"}
        for variant in VARIANTS:
            means = moving(variant.stored().data["episode_steps"].values[:SEEDS, :rounds])
            x = np.arange(means.shape[1]) + WINDOW
            label = f"{variant.networks}, σ {variant.sigma}"
            mean = np.exp(np.log(means).mean(axis=0))
            axes.plot(x, mean, lines[variant.sigma], color=colors[variant.networks], label=label)
        axes.set(yscale="log", xlabel="round of training", ylabel="actions survived")
        axes.set_yticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
        axes.minorticks_off()
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
        return save(figure, RESULTS / "drafting-sigma", "on-the-way")


if __name__ == "__main__":
    print(main())
