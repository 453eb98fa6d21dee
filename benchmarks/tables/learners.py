"""Results of every learner, results with an LSTM, and the divergence of policies with ReF-ER."""

import numpy as np

from benchmarks.tables.stored import Cell, cell, cells, looks, results, runs
from benchmarks.tables.text import between, captioned, listed, number, significant, table
from replaybench.experiments.statistics import DEAD_LEVEL

ORDER = ("V-RACER", "TD3", "SAC", "DDPG", "NAF", "ACER", "DQN", "ACER-discrete")
PARTIAL = {
    "V-RACER:memory": "V-RACER with an LSTM",
    "V-RACER:none": "V-RACER without an LSTM",
    "DDPG:memory": "DDPG with an LSTM",
    "NAF:memory": "NAF with an LSTM",
}
RULES = {
    "FIFO[Uniform]": "plain",
    "FIFO[PER(0.5)]": "prioritised",
    "FIFO[Uniform+ReFER-1]": "ReF-ER-1",
    "FIFO[Uniform+ReFER-2]": "ReF-ER-2",
    "FIFO[Uniform+ReFER]": "ReF-ER",
}
FAR = 0.1
"""The share of far-policy steps at which ReF-ER aims, D."""


def texts() -> dict[str, str]:
    return {"learners": _learners(), "learners.naf": _failing(), **_memory(), **_refer()}


def _digits(found: Cell) -> int:
    return 1 if found.plant.startswith("Pendulum") else 2


def _mu(found: Cell, digits: int) -> str:
    return between(*(found[f"mu_final_{bound}"] for bound in ("mean", "low", "high")), digits)


def _learners() -> str:
    rows = []
    for found in sorted(cells("learners"), key=lambda c: (c.plant != "PendulumDCSC", ORDER.index(c.learner))):
        digits = _digits(found)
        rise = found.data["rise_time"].values
        rows.append([
            f"{found.learner} {found.strategy}",
            found.plant,
            f"{number(found.final.mean(), digits)} ({number(float(np.median(found.final)), digits)})",
            f"{number(found.greedy.mean(), digits)} ({number(float(np.median(found.greedy)), digits)})",
            _mu(found, 3),
            f"{(found.data['mu_final'].values >= 0.8).sum()} of {rise.size}",
            number(float(np.median(rise)), 0),
            number(found["dead"], 0),
        ])  # fmt: skip
    caption = (
        f"{runs('learners')}, with default settings and one strategy per learner. *Reward per step* is the mean over "
        "the last 100 training episodes, exploration included. *Greedy* is the mean over the greedy episodes after "
        f"training episodes {looks('learners')}. Both columns show the mean over seeds, with the median in brackets. "
        "*Episodes to 0.8* is the first training episode with μ_r ≥ 0.8, as a median over seeds. A learner passes if "
        "at least three of four seeds reach μ_final ≥ 0.8."
    )
    headings = (
        "learner, strategy", "plant", "reward per step", "greedy", "μ_final [95 %]", "seeds with μ_final ≥ 0.8",
        "episodes to 0.8", "collapsed seeds",
    )  # fmt: skip
    return captioned(caption, table(headings, rows))


def _failing() -> str:
    """Count NAF's policies on magman whose greedy episodes are below μ_r = 0.8."""
    greedy, span = cell("learners", plant="Magman", learner="NAF").greedy, results("learners").sel(plant="Magman")
    bar = span["reference_random"].item() + 0.8 * (span["reference_dp"].item() - span["reference_random"].item())
    return f"{(greedy < bar).sum()} of {greedy.size}"


def _memory() -> dict[str, str]:
    rows = [
        [
            f"{PARTIAL[found.learner]}, {found.strategy}",
            number(found.final.mean(), 1),
            number(found.greedy.mean(), 1),
            _mu(found, 2),
        ]
        for found in cells("partial")
    ]
    caption = (
        f"{runs('partial')}. Entries are means over seeds. *Reward per step* covers the last 100 training episodes, "
        "exploration included. *Greedy* is the reward per step in the greedy episodes after training episodes "
        f"{looks('partial')}."
    )
    headings = ("learner, strategy", "reward per step", "greedy", "μ_final [95 %]")
    mu = {name: number(cell("partial", learner=name)["mu_final_mean"]) for name in PARTIAL}
    return {
        "partial": captioned(caption, table(headings, rows)),
        "partial.with": mu["V-RACER:memory"],
        "partial.without": mu["V-RACER:none"],
    }


def _refer() -> dict[str, str]:
    studies = "novati2019-fig1", "novati2019-fig4"
    data = results(studies[0])
    rows, values, far = [], {}, []
    every = int(data["greedy_episode"].values[0])
    hundreds = (data["greedy_episode"].values - 1) // 100
    found_cells = [found for study in studies for found in cells(study)]
    order = sorted(found_cells, key=lambda c: (c.learner, c.plant != "PendulumDCSC", list(RULES).index(c.strategy)))
    for found in order:
        divergence = found.data["metric_kl"].values.mean(axis=0)
        parts = [divergence[hundreds == part].mean() for part in range(hundreds.max() + 1)]
        values[found.plant, found.learner, RULES[found.strategy]] = [*parts, divergence.mean()]
        share = found.data["metric_far"].values if "metric_far" in found.data else np.full((1, 1), np.nan)
        known = bool(np.isfinite(share).all())
        if known and found.strategy == "FIFO[Uniform+ReFER]":
            far.append((share > FAR).mean())
        first = found.strategy == "FIFO[Uniform]"
        rows.append([
            f"{found.plant}, {found.learner}" if first else "",
            RULES[found.strategy],
            ", ".join(map(significant, parts)) if np.isfinite(parts).all() else "–",
            significant(float(divergence.mean())),
            f"{number(share.mean(), 3)}, {number(100 * (share > FAR).mean(), 0)} %" if known else "–",
            _mu(found, 2),
            number(found["dead"], 0),
        ])  # fmt: skip
    caption = (
        f"Runs: {runs(studies[0])} with buffers of 20,000 experiences. *D_KL* is the divergence D_KL(μ‖π) over the "
        f"stored experiences, computed every {every} episodes by a new forward pass. The first of its columns has the "
        "means over seeds in each hundred episodes, the second the mean over all evaluations. *Far-policy* is the mean "
        f"share of far-policy steps, then the share of evaluations in which it is above the target D = {FAR}. "
        "*μ_final* is the mean over seeds with its 95 % interval. *Collapsed* is the number of seeds with μ_final "
        "below 0.2. DDPG explores with white noise of σ = 0.2. DDPG:correlated explores with correlated noise, whose "
        "density is not known, and has weight decay."
    )
    kl = "D_KL by hundred episodes", "D_KL, all"
    headings = ("plant, learner", "replay", *kl, "far-policy", "μ_final [95 %]", "collapsed")

    def factors(plant: str) -> np.ndarray:
        plain, with_rule = (np.array(values[plant, "DDPG", rule]) for rule in ("plain", "ReF-ER"))
        found: np.ndarray = plain / with_rule
        return found

    def live(strategy: str) -> str:
        found = cell(studies[0], plant="PendulumDCSC", strategy=strategy)
        late = found.data["metric_kl"].values[:, -(found.last // every) :].mean(axis=1)
        alive = found.data["mu_final"].values >= DEAD_LEVEL
        return (
            f"{significant(float(np.median(late[alive])))} with {RULES[strategy]} ({alive.sum()} of {alive.size} runs)"
        )

    pendulum, magman = factors("PendulumDCSC"), factors("Magman")
    return {
        "refer": captioned(caption, table(headings, rows)),
        "refer.pendulum": number(pendulum[-1], 0),
        "refer.magman": number(magman[-1], 0),
        "refer.live": listed([live("FIFO[Uniform+ReFER-1]"), live("FIFO[Uniform+ReFER-2]")]),
        "refer.far": f"{number(100 * min(far), 0)} to {number(100 * max(far), 0)} %",
    }
