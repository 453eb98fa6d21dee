"""Rewards and scores by strategy with and without weight decay, and noise of replayed experiences."""

import numpy as np
from scipy.stats import fisher_exact

from benchmarks.tables.stored import Cell, cell, cells, looks, results, runs
from benchmarks.tables.text import between, captioned, difference, number, table

PAPER = {
    "Expl[Uniform]": (0.993, 0.991, 0.999),
    "Expl[PER]": (1.036, 1.021, 0.999),
    "TDE[Uniform]": (1.073, 1.019, 1.001),
    "TDE[PER]": (1.157, 1.092, 0.999),
}
"""What de Bruin et al. (2018) print in table 6 of PendulumDCSC, divided by σ √(2/π)."""


def texts() -> dict[str, str]:
    return {
        "orderings": _compared("orderings"),
        **_separation(),
        **_orderings(),
        **_noise(),
    }


def _row(found: Cell) -> list[str]:
    digits = 1 if found.plant.startswith("Pendulum") else 2
    return [
        found.plant,
        "5e-3, printed" if found.learner.endswith("printed-l2") else "0",
        found.strategy,
        f"{number(found.final.mean(), digits)} ({number(float(np.median(found.final)), digits)})",
        number(found.greedy.mean(), digits),
        between(*(found[f"mu_final_{bound}"] for bound in ("mean", "low", "high")), 3),
        number(found["dead"], 0),
    ]


def _compared(study: str) -> str:
    caption = (
        f"Runs: {runs(study)} at 50 Hz without noise. *Critic L2* is the weight decay of the critic. *Reward per step* "
        "is averaged over the last 100 training episodes, exploration included, and over seeds. The median over seeds "
        "is in brackets. *Greedy* is the mean reward per step over seeds of the greedy episodes after training "
        f"episodes {looks(study)}. *μ_final* is the mean over seeds with its 95 % interval. *Collapsed* is the number "
        "of seeds with μ_final below 0.2."
    )
    headings = ("plant", "critic L2", "strategy", "reward per step", "greedy", "μ_final [95 %]", "collapsed")
    return captioned(caption, table(headings, map(_row, cells(study))))


def _ahead(one: Cell, other: Cell) -> str:
    """Return how far a cell's μ_final is ahead of another's, seed by seed."""
    return "{}, p {}".format(*difference(one.data["mu_final"].values, other.data["mu_final"].values, 3))


def _fates(found: Cell) -> list[int]:
    """Return how many runs are dead, and how many are not."""
    return [int(found["dead"]), found.data.sizes["seed"] - int(found["dead"])]


def _dead(found: Cell) -> str:
    return f"{_fates(found)[0]} of {sum(_fates(found))}"


def _separation() -> dict[str, str]:
    """Return the table of two strategies at many seeds, their difference, and how many runs collapse."""
    fifo, per = (cell("separation", strategy=name) for name in ("FIFO[Uniform]", "FULL[PER]"))
    before = cell("orderings", plant="PendulumDCSC", learner="DDPG", strategy="FIFO[Uniform]")
    return {
        "separation": _compared("separation"),
        "separation.ahead": _ahead(per, fifo),
        "separation.collapsed": _dead(fifo),
        "separation.collapsed-before": _dead(before),
        "separation.chance": number(float(fisher_exact([_fates(fifo), _fates(before)]).pvalue), 3),
    }


def _orderings() -> dict[str, str]:
    def found(plant: str, strategy: str, printed: bool) -> Cell:
        learner = "DDPG:printed-l2" if printed else "DDPG"
        return cell("orderings", plant=plant, learner=learner, strategy=strategy)

    printed = found("PendulumDCSC", "FIFO[Uniform]", True)
    plain_score, printed_score = (found("Magman", "FIFO[Uniform]", l2)["mu_final_mean"] for l2 in (False, True))
    plain = _ahead(found("PendulumDCSC", "FULL[PER]", False), found("PendulumDCSC", "FIFO[Uniform]", False))
    return {
        "orderings.dead": f"{number(printed['dead'], 0)} of {printed.data.sizes['seed']}",
        "orderings.magman-fifo": number(plain_score - printed_score, 2),
        "orderings.plain": plain,
    }


def _noise() -> dict[str, str]:
    rows, widths = [], []
    for found in cells("replayed_noise"):
        noise = found.data["replayed_noise"].values / (found.data["noise"].item() * np.sqrt(2 / np.pi))
        paper = PAPER.get(found.strategy, ()) if found.plant == "PendulumDCSC" else ()
        shown = [number(mean, 3) for mean in noise.mean(axis=0)]
        shown = [f"{ours} [{theirs:.3f}]" for ours, theirs in zip(shown, paper, strict=True)] if paper else shown
        mu = between(*(found[f"mu_final_{bound}"] for bound in ("mean", "low", "high")))
        rows.append([f"{found.plant} {found.strategy}", *shown, mu])
        widths.append(1.96 * noise.std(axis=0, ddof=1).max() / np.sqrt(len(noise)))
    caption = (
        f"Runs: {runs('replayed_noise')} at 50 Hz, with noise of {results('replayed_noise')['noise'].item():g} on "
        "sensors and actuator, and buffers of 10⁴ experiences. The first number is the mean absolute noise in the "
        "experiences of all batches, divided by its mean in all collected experiences (σ · √(2/π)). Its 95 % interval "
        f"is ±{number(max(widths), 3)} or narrower. The number in brackets is the value of de Bruin et al. (2018), "
        "table 6, divided in the same way. *μ_final* is the mean over seeds with its 95 % interval."
    )
    signals = ("angle", "velocity", "voltage")
    return {
        "noise": captioned(caption, table(("strategy", *signals, "μ_final [95 %]"), rows)),
    }
