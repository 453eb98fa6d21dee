"""Why ReF-ER helps in one place and harms in another: networks that die, and how much is remembered."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.tables.stored import Cell, cell, made, runs
from benchmarks.tables.text import captioned, difference, number, table

PLAIN, REFER = "[Uniform]", "[Uniform+ReFER]"
NETWORKS: Final = {
    "DDPG": "50-50 and 50-50-20 (de Bruin et al. 2018), as in the preset",
    "DDPG:two-by-64": "64-64 and 64-64",
}
MEMORIES: Final = {"DDPG": "novati2019-fig1mujoco", "NAF": "novati2019-fig3mujoco"}
"""Where the runs with a memory of all of the past are."""
SMALLER: Final = (20_000, 5000)


def texts() -> dict[str, str]:
    return {"refer.networks": _networks(), "refer.memory": _memories()}


def _networks() -> str:
    """Tell how many learners die with either network, with plain replay and with ReF-ER."""
    study, rows = "refer-networks", []
    for learner, said in NETWORKS.items():
        plain, refer = (cell(study, learner=learner, strategy=f"FIFO{replay}") for replay in (PLAIN, REFER))
        scores = [one.data["mu_final"].values for one in (refer, plain)]
        deaths = [f"{number(one['dead'], 0)} of {one.data.sizes['seed']}" for one in (plain, refer)]
        means = [number(float(np.nanmean(score)), 2) for score in reversed(scores)]
        rows.append([said, *deaths, *means, *difference(*scores, digits=2)])
    caption = (
        f"{runs(study)} of DDPG on the pendulum, {made(study)}. Dead: μ_final below 0.2. Differences of paired seeds "
        "with BCa intervals, p by flipped signs."
    )
    dead = ("dead, plain", "dead, ReF-ER")
    return captioned(caption, table(("networks", *dead, "μ_final, plain", "ReF-ER", "difference [95 %]", "p"), rows))


def _memories() -> str:
    """Tell what ReF-ER does on HalfCheetah by how much is remembered."""
    study, rows = "refer-memory", []
    for learner, whole in MEMORIES.items():
        pairs = {"all": (_cheetah(whole, learner, "FIFO", PLAIN), _cheetah(whole, learner, "FIFO", REFER))}
        for capacity in SMALLER:
            of = f"FIFO({capacity})"
            pairs[f"{capacity:,}"] = _cheetah(study, learner, of, PLAIN), _cheetah(study, learner, of, REFER)
        for memory, (plain, refer) in pairs.items():
            means = [number(float(np.mean(one.final)), 0) for one in (plain, refer)]
            held = float(refer.data["metric_kl"].mean())
            beta = float(refer.data["metric_beta"][:, -1].mean())
            told = [number(held, 2), number(beta, 2)]
            rows.append([learner, memory, *means, *difference(refer.final, plain.final, digits=0), *told])
    caption = (
        f"{runs(study)} of 1000 steps on HalfCheetah, {made(study)}; with a memory of all {made(MEMORIES['DDPG'])}. "
        "Return: mean over seeds of the last tenth of training. Differences of paired seeds with BCa intervals, p by "
        "flipped signs. D_KL(μ‖π) with ReF-ER: mean over seeds and looks; β at the end."
    )
    headings = ("learner", "memory", "return, plain", "ReF-ER", "difference [95 %]", "p", "D_KL", "β")
    return captioned(caption, table(headings, rows))


def _cheetah(study: str, learner: str, kept: str, replay: str) -> Cell:
    return cell(study, plant="MujocoHalfCheetah", learner=learner, strategy=f"{kept}{replay}")
