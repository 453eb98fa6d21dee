"""ReF-ER by network, capacity and length of the run."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from benchmarks.tables.stored import Cell, cell, cells, runs
from benchmarks.tables.text import captioned, difference, number, table
from benchmarks.walkers.refer_figure import BESIDE, RUNS, ppo

PLAIN, REFER = "[Uniform]", "[Uniform+ReFER]"
NETWORKS: Final = {
    "DDPG": "50-50 and 50-50-20, as in de Bruin et al. (2018) and in the preset",
    "DDPG:two-by-64": "64-64 and 64-64",
}
WHOLE: Final = {"DDPG": "novati2019-fig1mujoco", "NAF": "novati2019-fig3mujoco"}
"""Studies whose buffers hold all experiences, by learner."""
SMALLER: Final = (20_000, 5000)
STRETCHES: Final = {"to 100,000": (90, 100), "to 500,000": (400, 500), "to 10⁶ steps": (900, 1000)}
"""Episodes whose returns are averaged."""


def texts() -> dict[str, str]:
    return {"refer.networks": _networks(), "refer.memory": _memories(), "refer.million": _million()}


def _networks() -> str:
    """Count collapsed learners by network, with plain replay and with ReF-ER."""
    study, rows = "refer-networks", []
    for learner, said in NETWORKS.items():
        plain, refer = (cell(study, learner=learner, strategy=f"FIFO{replay}") for replay in (PLAIN, REFER))
        scores = [one.data["mu_final"].values for one in (refer, plain)]
        deaths = [f"{number(one['dead'], 0)} of {one.data.sizes['seed']}" for one in (plain, refer)]
        means = [number(float(np.nanmean(score)), 2) for score in reversed(scores)]
        rows.append([said, *deaths, *means, *difference(*scores, digits=2)])
    caption = (
        f"Runs: {runs(study)} of DDPG on the pendulum. *Collapsed* is the number of seeds with μ_final below 0.2. "
        "*μ_final* is the mean over seeds. *Difference* is μ_final with ReF-ER minus μ_final with plain replay, as a "
        "mean over paired seeds with its BCa interval. *p* is from a sign-flip test, uncorrected."
    )
    dead = ("collapsed, plain replay", "collapsed, ReF-ER")
    means = ("μ_final, plain replay", "μ_final, ReF-ER")
    return captioned(caption, table(("units of actor and critic", *dead, *means, "difference [95 %]", "p"), rows))


def _memories() -> str:
    """Compare ReF-ER with plain replay on HalfCheetah, by learner and capacity."""
    study, rows = "refer-memory", []
    for learner, whole in WHOLE.items():
        buffers = {"all": (whole, "FIFO"), **{f"{size:,}": (study, f"FIFO({size})") for size in SMALLER}}
        for capacity, (stored, kept) in buffers.items():
            plain, refer = (
                cell(stored, plant="MujocoHalfCheetah", learner=learner, strategy=f"{kept}{replay}")
                for replay in (PLAIN, REFER)
            )
            means = [number(float(np.nanmean(one.final)), 0) for one in (plain, refer)]
            metrics = float(refer.data["metric_kl"].mean()), float(refer.data["metric_beta"][:, -1].mean())
            told = [f"{np.isfinite(refer.final - plain.final).sum()}", *(number(metric, 2) for metric in metrics)]
            rows.append([learner, capacity, *means, *difference(refer.final, plain.final, digits=0), *told])
    caption = (
        f"Runs: {runs(study)} of 1000 steps on HalfCheetah. The runs that keep all experiences are those of the "
        "presets for figures 1 and 3. *Return* is the mean over seeds of the last tenth of training. *Difference* is "
        "the return with ReF-ER minus that with plain replay, as a mean over paired seeds with its BCa interval. *p* "
        "is from a sign-flip test, uncorrected. *n* is the number of pairs without a failed run. *D_KL* is the "
        "divergence D_KL(μ‖π) with ReF-ER, averaged over seeds and evaluations. *β* is the weight of the policy "
        "gradient at the end of training; the penalty has the weight 1 − β."
    )
    returns = ("return, plain replay", "return, ReF-ER")
    headings = ("learner", "capacity", *returns, "difference [95 %]", "p", "n", "D_KL", "β")
    return captioned(caption, table(headings, rows))


def _million() -> str:
    """Compare ReF-ER and its rules on HalfCheetah, Hopper and Walker2d over 10⁶ steps."""
    rows = []
    million, walker = sorted(set(RUNS.values()))
    stored = [*cells(million), *cells(walker)]
    plain = {(c.plant, c.learner): _stretches(c) for c in stored if c.strategy == f"FIFO{PLAIN}"}
    for found in stored:
        returns, replay = _stretches(found), found.strategy.removeprefix("FIFO")
        last = list(STRETCHES)[-1]
        whole = np.isfinite(returns[last])
        beside = plain[found.plant, found.learner][last]
        apart = ("", "") if replay == PLAIN else difference(returns[last], beside, digits=0)
        held = ("", "")
        if "ReFER" in replay:
            kl, beta = (float(found.data[f"metric_{name}"][whole, -10:].mean()) for name in ("kl", "beta"))
            held = number(kl, 2), number(beta, 2)
        plant = found.plant.removeprefix("Mujoco")
        rows.append([plant, found.learner, replay, *_told(returns), *apart, *held])
    for task in BESIDE:
        returns = {name: np.nanmean(ppo(task)[:, first:last], axis=1) for name, (first, last) in STRETCHES.items()}
        rows.append([task, "PPO", "none", *_told(returns), *[""] * 4])
    rows.sort(key=lambda row: row[:2])
    caption = (
        f"Runs: {runs(million)} of 1000 steps. *n* is the number of seeds whose networks did not diverge. The "
        "columns of steps show the mean return over seeds of the training episodes from 90,000 to 100,000 steps, from "
        "400,000 to 500,000 steps and from 900,000 to 10⁶ steps. *Range* is the lowest and the highest return of a "
        "seed in the last of these columns. *Difference* is the return minus that of plain replay in the last of these "
        "columns, as a mean over paired seeds with its BCa interval. *p* is from a sign-flip test, uncorrected. It is "
        "at least 0.031 with six seeds and 0.125 with four. *D_KL* is D_KL(μ‖π), and *β* is the weight of the policy "
        "gradient; both are means over seeds and the last ten evaluations. PPO is that of Stable-Baselines3."
    )
    until = "90,000 to 100,000 steps", "400,000 to 500,000 steps", "900,000 to 10⁶ steps"
    headings = ("plant", "learner", "replay", "n", *until, "range of seeds", "difference [95 %]", "p", "D_KL", "β")
    return captioned(caption, table(headings, rows))


def _told(returns: Mapping[str, np.ndarray]) -> list[str]:
    """Return how many seeds did not diverge, their means in every stretch, and the least and most in the last."""
    last = list(returns.values())[-1]
    whole = np.isfinite(last)
    means = [number(float(of[whole].mean()), 0) for of in returns.values()]
    return [f"{whole.sum()}", *means, " … ".join(number(f(last[whole]), 0) for f in (np.min, np.max))]


def _stretches(found: Cell) -> dict[str, np.ndarray]:
    """Return each seed's mean return `[seeds]` in every stretch."""
    rewards = found.data["reward"].values
    return {name: rewards[:, first:last].mean(axis=1) for name, (first, last) in STRETCHES.items()}
